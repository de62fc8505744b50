import assert from 'node:assert/strict';
import {
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { DatabaseSync } from '@photostructure/sqlite';
import { migrate, migrationNames, migrationsThatRan } from '../../src/store/migrations/migrate.ts';
import { createSchema } from '../../src/store/schema/create-schema.ts';
import { backUp } from '../../src/store/sqlite/backup.ts';
import {
  closeConnection,
  openConnection,
  openReadOnlyConnection,
  type Connection,
} from '../../src/store/sqlite/connection.ts';
import { kyselyOn, openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { earlierDatabases, writeEarlierFile } from './earlier-databases.ts';
import { balanceOf, differencesOf, openStore, temporaryFolder, usage } from './fixture.ts';
import { addNextStep, removeNextStep } from './steps.ts';

const unusable = (words: RegExp) => (error: unknown) =>
  error instanceof StoreError && error.code === 'unusable' && words.test(error.message);

/** In one form: renaming prints names with or without quotes. */
function schemaOf(connection: Connection): unknown[] {
  return connection
    .prepare(`select type, name, sql from sqlite_schema where name not like 'sqlite_%' order by name`)
    .all()
    .map((row) => {
      const { type, name, sql } = row as Readonly<Record<'type' | 'name' | 'sql', string | null>>;
      return {
        type,
        name,
        sql: sql
          ?.toLowerCase()
          .replaceAll('"', '')
          .replaceAll(/\s+/g, ' ')
          .replaceAll(/\( | (?=\))/g, (at) => at.trim()),
      };
    });
}

async function schemaAfter(file: string): Promise<unknown[]> {
  const connection = openConnection(file);
  await migrate(kyselyOn(connection), 'sqlite');
  const schema = schemaOf(connection);
  closeConnection(connection);
  return schema;
}

test('every earlier database comes to the schema that is described, and starting again changes nothing', async (t) => {
  const folder = temporaryFolder(t);
  const described = await schemaAfter(join(folder, 'new.db'));
  assert.ok(described.length >= 100);
  for (const earlier of earlierDatabases) {
    const file = join(folder, `${earlier}.db`);
    writeEarlierFile(earlier, file);
    assert.deepEqual(await schemaAfter(file), described, earlier);
    const before = readFileSync(file);
    assert.deepEqual(await schemaAfter(file), described);
    assert.deepEqual(readFileSync(file), before);
  }
});

test('the service starts on every earlier database: balances, budgets and the log are what they were, and requests are charged', async (t) => {
  const folder = temporaryFolder(t);
  for (const earlier of earlierDatabases) {
    const file = join(folder, `${earlier}.db`);
    writeEarlierFile(earlier, file);
    const old = new DatabaseSync(file, { readOnly: true });
    const rowsOf = (query: string) =>
      old
        .prepare(query)
        .all()
        .map((row) => ({ ...row }));
    const [customers, balances, inputs] = [
      rowsOf('select id, available from account where kind = 0 order by created_at') as {
        id: string;
        available: number;
      }[],
      rowsOf('select id, amount, spent_before, available from budget_balance order by id'),
      rowsOf('select hex(id) as id, input from audit_log order by id'),
    ];
    assert.ok(balances.length >= 2 && inputs.length >= 8 && customers.length === 2);
    old.close();

    const store = await openStore(t, file);
    assert.deepEqual(store.migrated, migrationNames().slice(1));
    const { id, available } = customers[0]!;
    assert.equal(await balanceOf(store, id), BigInt(available));
    await store.ledger.leases.lease(id, 1n);
    assert.equal(await store.ledger.settle(usage(id, 7n)), 'billed');
    assert.equal(await balanceOf(store, id), BigInt(available) - 7n);
    await store.close();
    assert.deepEqual(await differencesOf(file, false), []);

    const now = new DatabaseSync(file, { readOnly: true });
    const rowsNow = (query: string) =>
      now
        .prepare(query)
        .all()
        .map((row) => ({ ...row }));
    assert.deepEqual(rowsNow('select id, amount, spent_before, available from budget_balance order by id'), balances);
    assert.deepEqual(rowsNow('select hex(id) as id, input from audit_log order by id'), inputs);
    now.close();
  }
});

test('a backup of an earlier version is verified as it is, and stays one of that version', async (t) => {
  const folder = temporaryFolder(t);
  const [file, copy] = [join(folder, 'x.db'), join(folder, 'copy.db')];
  writeEarlierFile('100', file);
  addNextStep();
  t.after(removeNextStep);
  const { differences, usageRows } = await backUp(file, copy);
  assert.deepEqual([differences, usageRows], [[], 4]);
  assert.deepEqual(
    readdirSync(folder).filter((name) => name.startsWith('copy')),
    ['copy.db'],
  );
  const db = openReadOnly(copy);
  t.after(() => db.destroy());
  assert.deepEqual(await migrationsThatRan(db), ['100-baseline']);
});

test('a database from before the first release is refused in words, untouched', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  writeEarlierFile('100', file);
  const connection = openConnection(file);
  connection.exec(`update kysely_migration set name = '038-owed-returns'`);
  closeConnection(connection);
  const before = readFileSync(file);
  await assert.rejects(
    openSqliteStore({ file, onFatal: assert.ifError }),
    unusable(/from before the first release \(038-owed-returns\), which no version upgrades/),
  );
  assert.deepEqual(readFileSync(file), before);
});

for (const earlier of [undefined, '100'] as const)
  test(`S9: whatever a process leaves that dies at any statement of the migration, the next start completes: ${earlier ?? 'a new database'}`, async (t) => {
    const folder = temporaryFolder(t);
    const file = join(folder, 'x.db');
    if (earlier !== undefined) {
      writeEarlierFile(earlier, file);
      addNextStep();
      t.after(removeNextStep);
    }
    const connection = openConnection(file);
    // kill -9 leaves what is in the files at that moment, and nothing else: so a copy of them is what a killed process leaves.
    let statements = 0;
    const watched = new Proxy(connection, {
      get(target, name) {
        if (name === 'prepare') {
          statements += 1;
          copyFileSync(file, join(folder, `${statements}.db`));
          if (existsSync(`${file}-wal`)) copyFileSync(`${file}-wal`, join(folder, `${statements}.db-wal`));
        }
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
    await migrate(kyselyOn(watched), 'sqlite');
    const latest = schemaOf(connection);
    connection.close();
    assert.ok(statements > (earlier === undefined ? 20 : 6));
    for (let statement = 1; statement <= statements; statement++) {
      assert.deepEqual(await schemaAfter(join(folder, `${statement}.db`)), latest, `statement ${statement}`);
    }
  });

test('a step runs once, on what is there, and its failure leaves everything as it was', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  writeEarlierFile('100', file);
  addNextStep();
  t.after(removeNextStep);
  const connection = openConnection(file);
  t.after(() => closeConnection(connection));
  const db = kyselyOn(connection);
  connection.exec('create table added_by_step (id text)');
  await assert.rejects(
    migrate(db, 'sqlite'),
    unusable(/the migration failed at 900-leases-made-anew \(.*already exists/),
  );
  assert.deepEqual(await migrationsThatRan(db), ['100-baseline']);
  connection.exec('drop table added_by_step');
  assert.deepEqual(await migrate(db, 'sqlite'), migrationNames().slice(1));
  assert.deepEqual(await migrate(db, 'sqlite'), []);
});

test('a database of a newer version is refused, untouched', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  await schemaAfter(file);
  const connection = openConnection(file);
  connection.exec(`insert into kysely_migration (name, timestamp) values ('999-future', '2030-01-01')`);
  closeConnection(connection);
  const before = readFileSync(file);
  await assert.rejects(
    openSqliteStore({ file, onFatal: assert.ifError }),
    unusable(/newer version of Tokenhouse: it has 999-future.*restore the backup/),
  );
  assert.deepEqual(readFileSync(file), before);
});

test('a file that is no database, is damaged, or belongs to another program is refused in words', async (t) => {
  const folder = temporaryFolder(t);
  const start = (file: string) => openSqliteStore({ file, onFatal: assert.ifError });

  const text = join(folder, 'text.db');
  writeFileSync(text, 'a shopping list, and not a short one: '.repeat(40));
  await assert.rejects(start(text), unusable(/not a database/));

  const foreign = join(folder, 'foreign.db');
  const other = new DatabaseSync(foreign);
  other.exec('create table mine (a)');
  other.close();
  await assert.rejects(start(foreign), unusable(/another program/));
  assert.throws(() => openReadOnlyConnection(foreign), unusable(/another program/));

  const damaged = join(folder, 'damaged.db');
  await schemaAfter(damaged);
  const descriptor = openSync(damaged, 'r+');
  for (let page = 2; page < 12; page++) writeSync(descriptor, Buffer.alloc(4096, 0x5a), 0, 4096, page * 4096);
  closeSync(descriptor);
  await assert.rejects(start(damaged), unusable(/damaged/));

  const short = join(folder, 'short.db');
  await schemaAfter(short);
  truncateSync(short, 3 * 4096);
  await assert.rejects(start(short), unusable(/damaged/));

  await assert.rejects(start(join(text, 'x.db')), unusable(/cannot be created/));
});

test('the schema speaks PostgreSQL too: no type and no clause of SQLite in it', () => {
  const all = createSchema('postgres').join('\n');
  assert.match(all, /create table "usage" \("request_id" bytea not null primary key/);
  assert.match(all, /"cost" bigint not null/);
  assert.match(all, /create function usage_is_immutable\(\)/);
  assert.doesNotMatch(all, /\bblob\b|strict|without rowid|raise\(abort| integer/);
});
