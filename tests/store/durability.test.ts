import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { DatabaseSync } from '@photostructure/sqlite';
import { statSync } from 'node:fs';
import { assertDurable, openConnection, readPragma } from '../../src/store/sqlite/connection.ts';
import { openStore, temporaryFolder } from './fixture.ts';

test('M10: every connection that writes waits for the disk, also one that did not create the file', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  for (const which of ['first', 'second']) {
    const connection = openConnection(file);
    assert.equal(readPragma(connection, 'synchronous'), 2n, which);
    assert.equal(readPragma(connection, 'journal_mode'), 'wal', which);
    assert.equal(readPragma(connection, 'secure_delete'), 1n, which);
    assert.equal(readPragma(connection, 'busy_timeout'), 1500n, which);
    connection.exec('create table if not exists t (a integer) strict');
    connection.close();
  }
});

test('M10: a connection that does not wait for the disk is refused for settling', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  openConnection(file).close();
  const plain = new DatabaseSync(file, { readBigInts: true });
  t.after(() => plain.close());
  assert.throws(() => assertDurable(plain), /synchronous=2/); // what an open without our pragmas gives
});

test('the database gives pages back, and is readable by its owner only', async (t) => {
  const file = join(temporaryFolder(t), 'folder', 'x.db');
  await openStore(t, file);
  const connection = openConnection(file);
  t.after(() => connection.close());
  assert.equal(readPragma(connection, 'auto_vacuum'), 2n);
  if (process.platform !== 'win32') {
    for (const name of [file, `${file}-wal`, `${file}-shm`]) assert.equal(statSync(name).mode & 0o077, 0, name);
  }
});
