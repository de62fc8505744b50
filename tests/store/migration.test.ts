import assert from 'node:assert/strict';
import {
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readFileSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { DatabaseSync } from '@photostructure/sqlite';
import { DummyDriver, Kysely, PostgresAdapter, PostgresIntrospector, PostgresQueryCompiler } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import { migrate, migrationNames, runMigration } from '../../src/store/migrations/migrate.ts';
import {
  closeConnection,
  openConnection,
  openReadOnlyConnection,
  type Connection,
} from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { customer, differencesOf, openStore, temporaryFolder, usage } from './fixture.ts';

const unusable = (words: RegExp) => (error: unknown) =>
  error instanceof StoreError && error.code === 'unusable' && words.test(error.message);

function schemaOf(connection: Connection): unknown[] {
  return connection
    .prepare(`select type, name, sql from sqlite_schema where name not like 'sqlite_%' order by name`)
    .all()
    .map((row) => ({ ...(row as object) }));
}

async function schemaAfter(file: string, steps: readonly (string | undefined)[]): Promise<unknown[]> {
  const connection = openConnection(file);
  for (const last of steps) await migrate(kyselyOn(connection), 'sqlite', last);
  const schema = schemaOf(connection);
  closeConnection(connection);
  return schema;
}

test('every earlier state of the schema comes to the same one, and running again changes nothing', async (t) => {
  const folder = temporaryFolder(t);
  const latest = await schemaAfter(join(folder, 'latest.db'), [undefined]);
  assert.ok(latest.length >= 10);
  for (const [index, name] of migrationNames.entries()) {
    assert.deepEqual(await schemaAfter(join(folder, `${index}.db`), [name, undefined, undefined]), latest, name);
  }
});

test('the service starts on every earlier state and works', async (t) => {
  const folder = temporaryFolder(t);
  for (const name of migrationNames) {
    const file = join(folder, `${name}.db`);
    await schemaAfter(file, [name]);
    const store = await openStore(t, file);
    await customer(store, 'acct_a', 10n);
    await store.ledger.settle(usage('acct_a', 1n));
    await store.close();
    assert.deepEqual(await differencesOf(file, false), []);
  }
});

test('S9: whatever a process leaves that dies at any statement of the migration, the next start completes', async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'x.db');
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
  assert.ok(statements > 30);
  for (let statement = 1; statement <= statements; statement++) {
    assert.deepEqual(await schemaAfter(join(folder, `${statement}.db`), [undefined]), latest, `statement ${statement}`);
  }
});

test('a database of a newer version is refused, untouched', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  await schemaAfter(file, [undefined]);
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
  await schemaAfter(damaged, [undefined]);
  const descriptor = openSync(damaged, 'r+');
  for (let page = 2; page < 12; page++) writeSync(descriptor, Buffer.alloc(4096, 0x5a), 0, 4096, page * 4096);
  closeSync(descriptor);
  await assert.rejects(start(damaged), unusable(/damaged/));

  const short = join(folder, 'short.db');
  await schemaAfter(short, [undefined]);
  truncateSync(short, 3 * 4096);
  await assert.rejects(start(short), unusable(/damaged/));

  await assert.rejects(start(join(text, 'x.db')), unusable(/cannot be made/));
});

test('the migrations speak PostgreSQL too: no type and no clause of SQLite in what they print', async () => {
  const printed: string[] = [];
  const db = new Kysely<Database>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (on) => new PostgresIntrospector(on),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
    log: (event) => void printed.push(event.query.sql),
  });
  for (const name of migrationNames) await runMigration(db, 'postgres', name);
  const all = printed.join('\n');
  assert.match(all, /create table "usage" \("request_id" bytea not null primary key/);
  assert.match(all, /"cost" bigint not null/);
  assert.match(all, /create function usage_is_immutable\(\)/);
  assert.doesNotMatch(all, /\bblob\b|strict|without rowid|raise\(abort| integer/);
});
