/** Statements are compiled once and kept: they have to stay right when tables change, when one fails, and when there are many. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DatabaseSync } from '@photostructure/sqlite';
import { CompiledQuery } from 'kysely';

import { kyselyOn } from '../../src/store/sqlite/dialect.ts';

const compiled: string[] = [];

class Watched extends DatabaseSync {
  override prepare(text: string): ReturnType<InstanceType<typeof DatabaseSync>['prepare']> {
    compiled.push(text);
    return super.prepare(text);
  }
}

function counted() {
  compiled.splice(0);
  const db = kyselyOn(new Watched(':memory:', { readBigInts: true }));
  const ask = async (text: string, ...given: unknown[]): Promise<readonly unknown[]> =>
    (await db.executeQuery<object>(CompiledQuery.raw(text, given))).rows.map((row) => ({ ...row }));
  return { ask, timesOf: (text: string) => compiled.filter((one) => one === text).length, db };
}

const read = 'select * from t order by n';

test('a statement is compiled once, and sees the columns of a table that was changed', async () => {
  const { ask, timesOf, db } = counted();
  await ask('create table t (n integer primary key) strict');
  const insert = 'insert into t (n) values (?)';
  await ask(insert, 1n);
  assert.deepEqual(await ask(read), [{ n: 1n }]);
  await ask("alter table t add column word text default 'a'");
  await ask(insert, 2n);
  assert.deepEqual(await ask(read), [
    { n: 1n, word: 'a' },
    { n: 2n, word: 'a' },
  ]);
  await assert.rejects(ask(insert, 2n), /UNIQUE/);
  await ask(insert, 3n);
  assert.equal((await ask(read)).length, 3);
  // None that is kept is still at work.
  await ask('drop table t');
  await ask('create table t (n integer) strict');
  assert.deepEqual(await ask(read), []);
  assert.deepEqual([timesOf(insert), timesOf(read)], [1, 1]);
  await db.destroy();
});

test('those that come again are kept among many others, and long ones are not', async () => {
  const { ask, timesOf, db } = counted();
  await ask('create table t (n integer) strict');
  for (let other = 0; other < 1_000; other++) {
    await ask(`select ${other}`);
    if (other % 100 === 0) await ask(read);
  }
  assert.equal(timesOf(read), 1);
  assert.deepEqual([await ask('select 0'), timesOf('select 0')], [[{ 0: 0n }], 2]);
  const long = `select n from t where n in (${Array.from({ length: 2_000 }, (_, n) => n).join()})`;
  await ask(long);
  await ask(long);
  assert.equal(timesOf(long), 2);
  await db.destroy();
});
