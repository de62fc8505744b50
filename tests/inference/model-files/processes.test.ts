import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import type { FetchedModelFile } from '../../../src/inference/model-files/fetch-model-file.ts';
import { acquireLock } from '../../../src/inference/model-files/lock.ts';
import { fileServer, sendFile, type FileServer } from './file-server.ts';
import { emptyFolder, someBytes } from './surroundings.ts';
import { built } from '../../support/built.ts';
import { sha256Of } from '../../support/folder.ts';

const size = 8_000_000;
const { body, sha256 } = someBytes(size);
const program = built('tests/inference/model-files/fetch-process.ts');

interface ActiveRequests {
  readonly child: ChildProcess;
  /** Resolves when the process has ended. */
  readonly result: Promise<FetchedModelFile>;
}

const children: ChildProcess[] = [];
const servers: FileServer[] = [];
after(async () => {
  for (const child of children) child.kill('SIGKILL');
  await Promise.all(servers.map((server) => server.close()));
});

function fetching(server: FileServer, directory: string): ActiveRequests {
  const child = spawn(process.execPath, [program, `${server.url}/m.gguf`, sha256, directory], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(child);
  let output = '';
  let errors = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const result = new Promise<FetchedModelFile>((resolve, reject) => {
    child.on('close', (code, signal) => {
      if (code === 0) resolve(JSON.parse(output) as FetchedModelFile);
      else reject(new Error(`ended with ${code ?? signal}: ${errors}`));
    });
  });
  result.catch(() => {}); // Whoever wants to know awaits it.
  return { child, result };
}

async function until(condition: () => boolean, what: string): Promise<void> {
  const deadline = Date.now() + 30_000;
  while (!condition()) {
    if (Date.now() > deadline) assert.fail(`not within 30 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const partSize = (directory: string): number => {
  const file = path.join(directory, 'm.gguf.part');
  return existsSync(file) ? statSync(file).size : 0;
};
const left = (directory: string): string[] => readdirSync(directory).filter((name) => name !== '.verified');

async function serving(answer: FileServer['answer']): Promise<FileServer> {
  const server = await fileServer(answer);
  servers.push(server);
  return server;
}

describe('several processes that want the same file', () => {
  it('fetch it once', async () => {
    const directory = emptyFolder();
    let release = () => {};
    const everybodyIsThere = new Promise<void>((resolve) => (release = resolve));
    const server = await serving(
      (request, response, self) => void everybodyIsThere.then(() => sendFile(request, response, self, { body })),
    );
    const running = [fetching(server, directory), fetching(server, directory), fetching(server, directory)];
    // The first one asks; the lock keeps the others from asking as well.
    await until(() => server.seen.length > 0, 'the first request');
    release();
    const results = await Promise.all(running.map(({ result }) => result));
    assert.equal(server.sentBytes, size);
    assert.equal(server.seen.length, 1);
    assert.deepEqual(results.map(({ alreadyThere }) => alreadyThere).toSorted(), [false, true, true]);
    assert.equal(new Set(results.map(({ path: file }) => file)).size, 1);
    assert.equal(sha256Of(results[0]!.path), sha256);
    assert.deepEqual(left(directory), ['m.gguf']);
  });

  it('go on with what a killed one has fetched', async () => {
    const directory = emptyFolder();
    const server = await serving((request, response, self) =>
      sendFile(request, response, self, { body, hangAfter: 5_000_000 }),
    );
    const first = fetching(server, directory);
    await until(() => partSize(directory) === 5_000_000, 'the first 5 MB');
    const second = fetching(server, directory);
    first.child.kill('SIGKILL');
    await assert.rejects(first.result, /SIGKILL/);
    server.answer = (request, response, self) => sendFile(request, response, self, { body });
    const result = await second.result;
    assert.equal(result.resumed, true);
    assert.equal(sha256Of(result.path), sha256);
    assert.deepEqual(
      server.seen.map(({ range }) => range),
      [undefined, 'bytes=5000000-'],
    );
    assert.deepEqual(left(directory), ['m.gguf']);
  });

  it('never see a file that is not whole, wherever one is killed', async () => {
    const directory = emptyFolder();
    for (const bytes of [1, 65_536, 3_000_000, 7_999_999]) {
      const server = await serving((request, response, self) => {
        const start = Number(/\d+/.exec(request.headers.range ?? '0')![0]);
        sendFile(request, response, self, { body, hangAfter: Math.max(0, bytes - start) });
      });
      const running = fetching(server, directory);
      await until(() => partSize(directory) === bytes, `${bytes} bytes`);
      running.child.kill('SIGKILL');
      await assert.rejects(running.result, /SIGKILL/);
      assert.ok(!existsSync(path.join(directory, 'm.gguf')));
      // Its lock would be waited for a few seconds; it is taken away as time would.
      utimesSync(path.join(directory, 'm.gguf.lock'), new Date(0), new Date(0));
    }
    const server = await serving((request, response, self) => sendFile(request, response, self, { body }));
    const { path: file, resumed } = await fetching(server, directory).result;
    assert.equal(sha256Of(file), sha256);
    assert.equal(resumed, true);
    assert.equal(server.sentBytes, 1);
  });
});

describe('a lock', () => {
  const file = () => path.join(emptyFolder(), 'x.lock');
  const signal = () => AbortSignal.timeout(20_000);

  it('lets one in at a time', async () => {
    const lock = file();
    let inside = 0;
    let most = 0;
    await Promise.all(
      Array.from({ length: 5 }, async () => {
        const { release } = await acquireLock(lock, signal());
        most = Math.max(most, ++inside);
        await new Promise((resolve) => setTimeout(resolve, 20));
        inside--;
        await release();
      }),
    );
    assert.equal(most, 1);
    assert.ok(!existsSync(lock));
  });

  it('of a process that is gone is broken, by exactly one of those who wait', async () => {
    const lock = file();
    const gone = spawn(process.execPath, ['-e', '']);
    await new Promise((resolve) => gone.on('close', resolve));
    writeFileSync(lock, JSON.stringify({ pid: gone.pid, host: os.hostname(), token: 'x' }));
    utimesSync(lock, new Date(), new Date(Date.now() - 10_000));
    let inside = 0;
    let most = 0;
    await Promise.all(
      Array.from({ length: 4 }, async () => {
        const { release } = await acquireLock(lock, signal());
        most = Math.max(most, ++inside);
        await new Promise((resolve) => setTimeout(resolve, 20));
        inside--;
        await release();
      }),
    );
    assert.equal(most, 1);
  });

  it('of a living process is not broken, nor one of another computer that shows signs of life', async () => {
    for (const holder of [
      { pid: process.pid, host: os.hostname(), token: 'x' },
      { pid: 1, host: 'another-computer', token: 'x' },
    ]) {
      const lock = file();
      writeFileSync(lock, JSON.stringify(holder));
      utimesSync(lock, new Date(), new Date(Date.now() - 10_000));
      const waited: (number | undefined)[] = [];
      await assert.rejects(
        acquireLock(lock, AbortSignal.timeout(500), (pid) => waited.push(pid)),
        { name: /AbortError|TimeoutError/ },
      );
      assert.equal(waited[0], holder.pid);
      assert.equal(readFileSync(lock, 'utf8'), JSON.stringify(holder));
    }
  });

  it('that nobody has touched for a minute is broken, whatever is in it', async () => {
    for (const content of ['', '{"pid":1', JSON.stringify({ pid: 1, host: 'another-computer', token: 'x' })]) {
      const lock = file();
      writeFileSync(lock, content);
      utimesSync(lock, new Date(), new Date(Date.now() - 61_000));
      await (await acquireLock(lock, signal())).release();
      assert.ok(!existsSync(lock));
    }
  });

  it('that was taken away is noticed by its holder, who does not remove the other one', async () => {
    const lock = file();
    const held = await acquireLock(lock, signal());
    writeFileSync(lock, JSON.stringify({ pid: 1, host: 'another-computer', token: 'theirs' }));
    await until(() => held.signal.aborted, 'the loss is noticed');
    await held.release();
    assert.match(readFileSync(lock, 'utf8'), /theirs/);
  });
});
