import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { DatabaseSync } from '@photostructure/sqlite';
import { sqliteCode, type Connection } from '../../src/store/sqlite/connection.ts';
import { temporaryFolder } from './fixture.ts';

const ways: Readonly<Record<string, (database: Connection, sql: string) => unknown>> = {
  exec: (database, sql) => database.exec(sql),
  run: (database, sql) => database.prepare(sql).run(),
  get: (database, sql) => database.prepare(sql).get(),
  all: (database, sql) => database.prepare(sql).all(),
  iterate: (database, sql) => [...database.prepare(sql).iterate()],
};

/** What a caller must be able to tell apart, whether or not a statement returns rows. */
const faults: readonly {
  readonly name: string;
  readonly code: number;
  readonly begin: (database: Connection, other: Connection) => void;
  readonly sql: string;
}[] = [
  { name: 'unique', code: 19, begin: () => {}, sql: "update a set x = 'one' where x = 'two' returning x" },
  { name: 'check', code: 19, begin: () => {}, sql: "insert into a values ('') returning x" },
  { name: 'not null', code: 19, begin: () => {}, sql: 'insert into a values (null) returning x' },
  { name: 'locked', code: 5, begin: (_, other) => other.exec('begin immediate'), sql: 'delete from a returning x' },
  {
    name: 'full',
    code: 13,
    begin: (database) => database.exec('pragma max_page_count = 1'),
    sql: 'insert into a values (hex(randomblob(100000))) returning x',
  },
];

for (const { name, code, begin, sql } of faults) {
  for (const [way, ask] of Object.entries(ways)) {
    test(`SQLite's code of '${name}' is found by ${way}`, (t) => {
      const file = join(temporaryFolder(t), 'x.db');
      const [database, other] = [new DatabaseSync(file), new DatabaseSync(file)];
      t.after(() => database.close());
      t.after(() => other.close());
      database.exec(
        "create table a (x text not null unique check (x <> '')) strict; insert into a values ('one'), ('two')",
      );
      begin(database, other);
      assert.throws(
        () => ask(database, sql),
        (error) => sqliteCode(error) === code,
      );
    });
  }
}

test('what is no error of SQLite has no code', () => {
  for (const error of [
    new Error('UNIQUE constraint failed: a.x'),
    new TypeError('x'),
    undefined,
    'x',
    { errcode: 'x' },
  ])
    assert.equal(sqliteCode(error), 0);
});
