import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { after, describe, test } from 'node:test';

import { TestService, scriptedModel, until } from '../support/service.ts';
import { CommandFolder, assertNoStack, runCommand } from './command.ts';
import { mainFile } from '../support/built.ts';

/** Starts that fail say why, end by themselves and leave nothing behind; a service survives the reader of its log. */
const model = scriptedModel(
  '- when: { last_text: slow }\n  say: [ { text: "one two" } ]\n  pace_ms: 60000\n- say: [ { text: "hello" } ]',
);
const folders: CommandFolder[] = [];
const folderWith = (config: string, environment: Record<string, string> = {}): CommandFolder => {
  const folder = new CommandFolder(config, environment);
  folders.push(folder);
  return folder;
};
after(() => folders.forEach((folder) => folder.dispose()));

describe('a port that is taken', () => {
  for (const host of ['inference', 'account']) {
    test(`of the ${host} host is reported in words, and no key is lost`, async () => {
      const holder = createServer();
      await new Promise<void>((resolve) => holder.listen(0, '127.0.0.1', resolve));
      const { port } = holder.address() as AddressInfo;
      const other = host === 'inference' ? 'account' : 'inference';
      const config = (taken: number) => `server: { ${host}: { port: ${taken} }, ${other}: { port: 0 } }\n${model}`;
      const folder = folderWith(config(port));
      const { code, stderr, stdout } = await folder.run('serve');
      assert.equal(code, 69);
      assert.match(stderr, new RegExp(`Port ${port} of 127\\.0\\.0\\.1 is taken`));
      assert.match(stderr, new RegExp(`set another one in tokenhouse\\.yaml: server\\.${host}\\.port`));
      assert.doesNotMatch(stderr + stdout, /tkh_/);
      await new Promise<void>((resolve) => holder.close(() => resolve()));
      // The key is shown by the first start that works.
      const second = spawn(process.execPath, [mainFile, 'serve'], {
        cwd: folder.path,
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      let said = '';
      second.stderr.on('data', (text: Buffer) => (said += text.toString()));
      await until(() => /Then see what it cost/.test(said), 30_000);
      assert.match(said, /tkh_/);
      second.kill('SIGTERM');
      await new Promise((resolve) => second.on('close', resolve));
    });
  }
});

describe('one data folder', () => {
  const service = new TestService({ config: model });
  after(() => service.dispose());

  test('has one service; the second is refused in words and the first goes on', async () => {
    await service.start();
    const { code, stderr } = await runCommand(service.folder, ['serve']);
    assert.equal(code, 69);
    assert.match(stderr, /Another process owns .*tokenhouse\.db/);
    assert.equal((await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] })).status, 200);
    assert.equal((await service.command('keys', 'create')).code, 0, 'its control socket is gone');
  });

  test('with another secret is refused: its keys would never match', async () => {
    await service.stop();
    const { code, stderr } = await runCommand(service.folder, ['serve'], { TOKENHOUSE_SECRET: 'another'.repeat(8) });
    assert.equal(code, 78);
    assert.match(stderr, /API keys in the database were created with another secret/);
    await service.start();
    assert.equal((await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] })).status, 200);
  });

  test('with several workers is refused in words: SQLite is of one process', async () => {
    await service.stop();
    service.configure({ config: model, workers: 2 });
    const { code, stderr } = await runCommand(service.folder, ['serve']);
    assert.equal(code, 78, stderr);
    assert.match(
      stderr,
      /workers is 2, and the storage is SQLite.*`tokenhouse db copy`.*docs\/one-machine-to-many\.md/,
    );
    service.configure({ config: model });
  });
});

test('--no-key shows none, and says how to make one', async () => {
  const folder = folderWith(`server: { inference: { port: 0 }, account: { port: 0 } }\n${model}`);
  const child = spawn(process.execPath, [mainFile, 'serve', '--no-key'], {
    cwd: folder.path,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (text: Buffer) => (said += text.toString()));
  child.stdout.on('data', (text: Buffer) => (said += text.toString()));
  await until(() => /not shown \(--no-key\).*tokenhouse keys create/.test(said), 30_000);
  assert.doesNotMatch(said, /tkh_|curl/);
  child.kill('SIGINT');
  assert.equal(await new Promise((resolve) => child.on('close', resolve)), 0);
});

test('a second signal ends the service at once', async () => {
  const service = new TestService({ config: model });
  await service.start();
  const stream = await service.chat({ model: 'demo', messages: [{ role: 'user', content: 'slow' }], stream: true });
  assert.equal(stream.status, 200);
  const first = service.stop('SIGTERM');
  await until(() => service.output.includes('stopping'));
  process.kill(service.pid, 'SIGTERM');
  assert.equal(await first, 130);
  await stream.text().catch(() => {});
  await service.start();
  await service.verify();
  await service.dispose();
});

describe('a reader that goes away', () => {
  test('of the log: the service goes on', async () => {
    const folder = folderWith(`server: { inference: { port: 0 }, account: { port: 0 } }\n${model}`);
    const child = spawn(process.execPath, [mainFile, 'serve'], { cwd: folder.path, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    child.stderr.on('data', (text: Buffer) => (said += text.toString()));
    await until(() => /Then see what it cost/.test(said), 30_000);
    child.stdout.destroy();
    const [, url = ''] = /API +(\S+)/.exec(said) ?? [];
    for (let request = 0; request < 20; request++) {
      const answer = await fetch(`${url}/chat/completions`, { method: 'POST', body: '{}' });
      assert.equal(answer.status, 401);
      await answer.text();
    }
    child.kill('SIGTERM');
    assert.equal(await new Promise((resolve) => child.on('close', resolve)), 0, said);
    assertNoStack(said);
  });

  test('of a command: it ends without a word', async () => {
    const folder = folderWith(model);
    const child = spawn('sh', ['-c', '"$0" "$1" models list --json | true', process.execPath, mainFile], {
      cwd: folder.path,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    child.stderr.on('data', (text: Buffer) => (said += text.toString()));
    await new Promise((resolve) => child.on('close', resolve));
    assert.doesNotMatch(said, /EPIPE|node:/);
  });
});
