import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { isOwned, takeLock } from '../../src/store/sqlite/lock.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { openStore, temporaryFolder } from './fixture.ts';
import { built } from '../support/built.ts';

test('a second owner is refused in words, in this process and in another', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  assert.equal(isOwned(file), true);
  await assert.rejects(
    openSqliteStore({ file, onFatal: assert.ifError }),
    (error) =>
      error instanceof StoreError && error.code === 'busy' && /Another process owns .*x\.db/.test(error.message),
  );
  assert.equal(isOwned(file), true, 'the refused one has not broken the lock of the first');
  await store.close();
  assert.equal(isOwned(file), false);
  takeLock(file).release();
});

test('the lock of a killed process is free again', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const lockUrl = pathToFileURL(built('src/store/sqlite/lock.ts')).href;
  const holder = spawn(
    process.execPath,
    [
      '--input-type=module',
      '-e',
      // Kept: a lock that nobody holds on to is collected, and free.
      `globalThis.lock = (await import('${lockUrl}')).takeLock(process.argv[1]); console.log('held'); setInterval(() => {}, 1e6);`,
      file,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  t.after(() => holder.kill('SIGKILL'));
  await once(holder.stdout, 'data');
  assert.equal(isOwned(file), true);
  assert.throws(
    () => takeLock(file),
    (error) => error instanceof StoreError && error.code === 'busy',
  );
  holder.kill('SIGKILL');
  await once(holder, 'exit');
  assert.equal(isOwned(file), false);
  takeLock(file).release();
});
