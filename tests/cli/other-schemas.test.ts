/** A command that reads a database of another version says so, and what to do; the file stays as it is. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { closeConnection, openConnection } from '../../src/store/sqlite/connection.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { writeEarlierFile } from '../store/earlier-databases.ts';
import { addNextStep, nextStep, removeNextStep } from '../store/steps.ts';
import { scriptedModel } from '../support/service.ts';
import { CommandFolder } from './command.ts';

const commands = [
  ['ledger', 'verify'],
  ['accounts', 'list'],
  ['keys', 'list'],
  ['usage'],
  ['invoices', 'list'],
  ['audit', 'list'],
];

test('a database of an earlier version is not read before the service has brought it up to date', async (t) => {
  const folder = new CommandFolder(scriptedModel('- say: [ { text: "hello" } ]'));
  t.after(() => folder.dispose());
  addNextStep();
  t.after(removeNextStep);
  const file = join(folder.path, 'data', 'tokenhouse.db');
  mkdirSync(join(folder.path, 'data'));
  writeEarlierFile('100', file);
  const before = readFileSync(file);
  for (const command of commands) {
    const { code, stdout, stderr } = await folder.run(...command);
    assert.equal(code, 1, command.join(' '));
    assert.equal(stdout, '', command.join(' '));
    assert.match(stderr, /an earlier version, whose schema is 100-baseline/, command.join(' '));
    assert.match(stderr, new RegExp(`this version reads ${nextStep}`));
    assert.match(stderr, /^ {2}repair {2}npm start$/m);
  }
  assert.ok(readFileSync(file).equals(before));
});

test('a database of a newer version is not read', async (t) => {
  const folder = new CommandFolder(scriptedModel('- say: [ { text: "hello" } ]'));
  t.after(() => folder.dispose());
  const file = join(folder.path, 'data', 'tokenhouse.db');
  mkdirSync(join(folder.path, 'data'));
  await (await openSqliteStore({ file, onFatal: assert.ifError })).close();
  const connection = openConnection(file);
  connection.exec(`
    insert into kysely_migration (name, timestamp) values ('999-future', '2030-01-01');
    alter table usage rename to used; alter table account rename to customer; alter table audit_log rename to audited`);
  closeConnection(connection);
  const before = readFileSync(file);
  for (const command of commands) {
    const { code, stdout, stderr } = await folder.run(...command);
    assert.notEqual(code, 0, command.join(' '));
    assert.equal(stdout, '', command.join(' '));
    assert.match(stderr, /written by a newer version of Tokenhouse: it has 999-future.*Start the newer version again/);
    assert.match(stderr, /^ {2}repair {2}tokenhouse doctor$/m);
    assert.doesNotMatch(stderr, /no such/);
  }
  assert.ok(readFileSync(file).equals(before));
});
