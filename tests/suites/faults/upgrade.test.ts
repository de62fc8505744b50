/**
 * Upgrade and roll back on SQLite, with the whole program, on a database that an earlier version has left (docs/operations.md). What a
 * kill in the middle of a step leaves is in `tests/store/migration.test.ts`.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { DatabaseSync } from '@photostructure/sqlite';

import { closeConnection, openConnection } from '../../../src/store/sqlite/connection.ts';
import {
  assertKept,
  costOfLoad,
  earlierKeys,
  keptTables,
  migrationsOf,
  usedWith,
  writeEarlierFile,
  type Rows,
} from '../../store/earlier-databases.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';

const config = scriptedModel('- say: [ { text: "one two three" } ]');
const secret = 'a secret of thirty-two characters';
const ask = { model: 'demo', messages: [{ role: 'user', content: 'hello' }] };
const [earlier, newest] = ['100-baseline', '114-ended-usage'];
const stepsBetween = 14;

const dataOf = (service: TestService): string => join(service.folder, 'data');
const fileOf = (service: TestService): string => join(dataOf(service), 'tokenhouse.db');

function rowsIn(file: string, query: string): Rows {
  const connection = new DatabaseSync(file, { readOnly: true, readBigInts: true });
  try {
    return connection.prepare(query).all() as Rows;
  } finally {
    connection.close();
  }
}

const schemaOf = (file: string): string =>
  String(rowsIn(file, 'select max(name) as name from kysely_migration')[0]!['name']);

/** The service of an earlier version, as kill -9 has left it. */
function earlierService(t: TestContext): TestService {
  const service = new TestService({ config });
  t.after(() => service.dispose());
  mkdirSync(dataOf(service), { mode: 0o700 });
  writeFileSync(join(dataOf(service), 'secret'), secret, { mode: 0o600 });
  writeEarlierFile('100', fileOf(service));
  const connection = openConnection(fileOf(service));
  connection.exec(usedWith(secret, 'sqlite'));
  closeConnection(connection);
  service.key = earlierKeys['first key'];
  service.accountId = String(rowsIn(fileOf(service), `select id from account where name = 'first account'`)[0]!['id']);
  return service;
}

interface Before {
  readonly tables: ReadonlyMap<string, Rows>;
  readonly budgets: Rows;
  readonly available: bigint;
}

function read(file: string): Before {
  const inFile = new Set(rowsIn(file, 'select name from sqlite_schema').map(({ name }) => String(name)));
  const tables = keptTables.filter((table) => inFile.has(table));
  return {
    tables: new Map(tables.map((table) => [table, rowsIn(file, `select * from ${table}`)])),
    budgets: rowsIn(file, 'select id, amount, spent_before, available from budget_balance order by id'),
    available: rowsIn(file, `select available from account where name = 'first account'`)[0]!['available'] as bigint,
  };
}

/** All that was there is there; only what ran when the earlier version was killed has ended, and cost nothing. */
async function assertCarriedOver(service: TestService, before: Before): Promise<void> {
  const file = fileOf(service);
  assert.equal(schemaOf(file), newest);
  for (const [table, rows] of before.tables) assertKept(table, rows, rowsIn(file, `select * from ${table}`));
  const budgets = rowsIn(file, 'select id, amount, spent_before, available from budget_balance');
  assertKept('budget_balance', before.budgets, budgets);
  assert.equal(await new TestLedger(service).balance(), before.available);
  const crashed = rowsIn(file, `select cost, uncharged from usage where ending = 'crashed'`);
  assert.deepEqual(
    crashed.map(({ cost }) => cost),
    [0n, 0n, 0n],
  );
  assert.equal(await new TestLedger(service).openRequests(), 0);
}

const load = (service: TestService): Promise<bigint> =>
  costOfLoad(
    (key) => service.chat(ask, { key }),
    (request) => request < 8,
  );

test('the start brings a database up to date, with requests that ran in it, and serves its keys', async (t) => {
  const service = earlierService(t);
  const before = read(fileOf(service));
  assert.ok(before.budgets.length >= 2 && before.tables.get('usage')!.length >= 4);
  await service.start();
  await assertCarriedOver(service, before);
  const cost = await load(service);
  assert.ok(cost > 0n);
  assert.equal(await new TestLedger(service).balance(), before.available - cost);
  await service.verify();
  assert.equal(await service.stop(), 0);
  await service.start();
  // The log comes by another pipe than what says that it is ready.
  await until(() => migrationsOf(service).length > 1);
  assert.deepEqual(migrationsOf(service), [stepsBetween, 0], 'nothing is left to be done');
  assert.equal(await new TestLedger(service).balance(), before.available - cost);
  assert.equal((await service.chat(ask)).status, 200);
  await service.stop();
  await service.verify();
});

/** Every file of the data folder, by its content; without what SQLite makes for a reader: an index, and an empty log. */
const contentOf = (folder: string): Readonly<Record<string, string>> =>
  Object.fromEntries(
    readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .filter(
        ({ name }) => !name.endsWith('-shm') && !(name.endsWith('-wal') && statSync(join(folder, name)).size === 0),
      )
      .map(({ name }) => [
        name,
        createHash('sha256')
          .update(readFileSync(join(folder, name)))
          .digest('hex'),
      ]),
  );

test('a database of a newer version is refused by every way to open it, with both versions named, and every byte stays', async (t) => {
  const service = earlierService(t);
  await service.start();
  await service.stop();
  const connection = openConnection(fileOf(service));
  connection.exec(`
    insert into kysely_migration (name, timestamp) values ('999-future', '2030-01-01');
    alter table account rename to customer`);
  closeConnection(connection);
  const before = contentOf(dataOf(service));
  const target = join(service.folder, 'backup.db');
  for (const command of [['serve'], ['db', 'migrate'], ['db', 'backup', target], ['ledger', 'verify'], ['usage']]) {
    const { code, stderr } = await service.command(...command);
    assert.equal(code, 69, `${command.join(' ')}: ${stderr}`);
    assert.match(stderr, new RegExp(`newer version of Tokenhouse: it has 999-future,.* nothing after ${newest}`));
    assert.match(stderr, /Start the newer version again, or restore the backup that was made before the upgrade/);
    assert.deepEqual(contentOf(dataOf(service)), before, command.join(' '));
  }
  assert.ok(!existsSync(target));
});

test('roll back: the backup from before the upgrade is put in place as the earlier version wrote it, and its state is served again', async (t) => {
  const service = earlierService(t);
  const file = fileOf(service);
  const run = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await service.command(...args);
    assert.equal(code, 0, stdout + stderr);
    return stdout;
  };
  const backup = join(service.folder, 'before.db');
  await run('db', 'backup', backup);
  const before = read(file);
  const everything = (of: string): ReadonlyMap<string, Rows> =>
    new Map(
      rowsIn(of, `select name from sqlite_schema where type = 'table' order by name`).map(({ name }) => [
        String(name),
        rowsIn(of, `select * from "${String(name)}"`),
      ]),
    );
  const original = everything(file);
  await service.start();
  const cost = await load(service);
  await service.stop();
  const upgraded = contentOf(dataOf(service))['tokenhouse.db'];

  const kept = /The replaced database is kept: (\S+)/.exec(await run('db', 'restore', backup, '--force'))![1]!;
  // What the earlier version finds is what it had: each table, each row.
  assert.equal(schemaOf(file), earlier);
  assert.deepEqual(everything(file), original);
  assert.equal(contentOf(dataOf(service))[kept.split('/').at(-1)!], upgraded);

  await service.start();
  await assertCarriedOver(service, before);
  assert.equal((await service.chat(ask, { key: earlierKeys.budgeted })).status, 200);
  await service.stop();
  await service.verify();
  // The way back is open too: what was charged in between is in the file that was kept.
  await run('db', 'restore', kept, '--force');
  assert.equal(await new TestLedger(service).balance(), before.available - cost);
});
