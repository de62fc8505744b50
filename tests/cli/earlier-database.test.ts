/** A command that reads a database of an earlier version says so, and what to do; the file stays as it is. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { migrationNames } from '../../src/store/migrations/migrate.ts';
import { earlierDatabases, writeEarlierFile } from '../store/earlier-databases.ts';
import { scriptedModel } from '../support/service.ts';
import { CommandFolder, jsonOf } from './command.ts';

const commands = [
  ['ledger', 'verify'],
  ['accounts', 'list'],
  ['keys', 'list'],
  ['usage'],
  ['invoices', 'list'],
  ['audit', 'list'],
];

for (const name of earlierDatabases)
  test(`a database with the steps until ${name} is not read before the service has brought it up to date`, async (t) => {
    const folder = new CommandFolder(scriptedModel('- say: [ { text: "hello" } ]'));
    t.after(() => folder.dispose());
    const file = join(folder.path, 'data', 'tokenhouse.db');
    mkdirSync(join(folder.path, 'data'));
    writeEarlierFile(name, file);
    const before = readFileSync(file);
    for (const command of commands) {
      const { code, stdout, stderr } = await folder.run(...command);
      assert.equal(code, 1, command.join(' '));
      assert.equal(stdout, '', command.join(' '));
      assert.match(stderr, new RegExp(`an earlier version, whose schema is ${name}-`), command.join(' '));
      assert.match(stderr, new RegExp(`this version reads ${migrationNames.at(-1)!}`));
      assert.match(stderr, /^ {2}repair {2}npm start$/m);
    }
    assert.ok(readFileSync(file).equals(before));

    const migrated = jsonOf(await folder.run('db', 'migrate', '--json')) as { migrated: string[] };
    assert.equal(migrated.migrated.at(-1), migrationNames.at(-1));
    assert.match((await folder.run('db', 'migrate')).stdout, /up to date, nothing was changed/);
    assert.equal((await folder.run('ledger', 'verify')).code, 0);
  });
