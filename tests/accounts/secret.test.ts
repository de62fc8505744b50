import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { openSecret } from '../../src/accounts/secret.ts';
import { built } from '../support/built.ts';

function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-secret-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const silent = { fromEnvironment: undefined, warn: (message: string) => assert.fail(message) };

test('without one, a secret is made once, for its owner only, and found again', (t) => {
  const dataFolder = join(temporaryFolder(t), 'data');
  const made = openSecret({ ...silent, dataFolder });
  assert.equal(made.source, 'created');
  const found = openSecret({ ...silent, dataFolder });
  assert.equal(found.source, 'file');
  assert.equal(found.id, made.id);
  assert.ok(found.pepper.equals(made.pepper));
  assert.deepEqual(readdirSync(dataFolder), ['secret'], 'no draft is left behind');
  if (process.platform !== 'win32') assert.equal(statSync(join(dataFolder, 'secret')).mode & 0o777, 0o600);
  const other = openSecret({ ...silent, dataFolder: join(temporaryFolder(t), 'data') });
  assert.notEqual(other.id, made.id);
});

test('the environment comes first, and nothing is written then', (t) => {
  const dataFolder = temporaryFolder(t);
  const secret = openSecret({ ...silent, dataFolder, fromEnvironment: 'correct horse battery staple, twice' });
  assert.equal(secret.source, 'environment');
  assert.deepEqual(readdirSync(dataFolder), []);
  assert.equal(openSecret({ ...silent, dataFolder, fromEnvironment: '' }).source, 'created');
});

test('a secret that can be guessed is refused in words', (t) => {
  const dataFolder = temporaryFolder(t);
  assert.throws(
    () => openSecret({ ...silent, dataFolder, fromEnvironment: 'hunter2' }),
    /TOKENHOUSE_SECRET is shorter than 32/,
  );
  writeFileSync(join(dataFolder, 'secret'), 'short\n', { mode: 0o600 });
  assert.throws(() => openSecret({ ...silent, dataFolder }), /restore the file from a backup/);
});

test('a secret that others can read is closed to them, with a warning', { skip: process.platform === 'win32' }, (t) => {
  const dataFolder = temporaryFolder(t);
  const { id } = openSecret({ ...silent, dataFolder });
  chmodSync(join(dataFolder, 'secret'), 0o644);
  const warnings: string[] = [];
  assert.equal(openSecret({ ...silent, dataFolder, warn: (message) => warnings.push(message) }).id, id);
  assert.match(warnings.join(), /was readable by other users \(mode 644\)/);
  assert.equal(statSync(join(dataFolder, 'secret')).mode & 0o777, 0o600);
});

test('processes that start together agree on one secret', async (t) => {
  const dataFolder = temporaryFolder(t);
  const url = pathToFileURL(built('src/accounts/secret.ts')).href;
  const script = `
    const { openSecret } = await import('${url}');
    console.log(openSecret({ fromEnvironment: undefined, dataFolder: process.argv[1], warn: console.error }).id);`;
  const ids = await Promise.all(
    Array.from({ length: 6 }, async () => {
      const child = spawn(process.execPath, ['--input-type=module', '-e', script, dataFolder], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
      const [code] = (await once(child, 'close')) as [number];
      assert.equal(code, 0);
      return output.trim();
    }),
  );
  assert.equal(new Set(ids).size, 1);
  assert.ok(readFileSync(join(dataFolder, 'secret'), 'utf8').length > 40);
  assert.deepEqual(readdirSync(dataFolder), ['secret']);
});
