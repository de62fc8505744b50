import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { sql, type Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import { migrate } from '../../src/store/migrations/migrate.ts';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { temporaryFolder } from '../store/fixture.ts';
import { makeAccounts } from './accounts.ts';
import { removeUsage, type RemovalCursor } from '../../src/store/retention/removal.ts';
import { keepUsageSince, nextKeptSince, retentionOf } from '../../src/store/retention/retention.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';
import { randomOf } from './ledger-of-rows.ts';
import { compareAroundRemoval, makeUsage } from './retention.ts';
import { keys, users } from './sums.ts';

/** Thousands of commits, of which none has to survive this machine. */
function openFast(file: string): Kysely<Database> {
  const connection = openConnection(file);
  connection.exec('pragma synchronous = off');
  return kyselyOn(connection);
}

async function databaseOf(t: TestContext): Promise<Kysely<Database>> {
  const db = openFast(join(temporaryFolder(t), 'usage.db'));
  t.after(() => db.destroy());
  await migrate(db, 'sqlite');
  await makeAccounts(
    db,
    ['acct_a', 'acct_b'],
    keys.map((id) => ({ id, accountId: 'acct_a', userId: users[id] ?? null })),
  );
  return db;
}

test('whatever old usage is removed, at every moment: balances, budgets, movements and sums are what they were', async (t) => {
  const db = await databaseOf(t);
  const seed = Math.floor(Math.random() * 2 ** 31);
  t.diagnostic(`seed ${seed}`);
  await compareAroundRemoval(db, seed, 8);
});

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const [from, to, now] = [Date.UTC(2026, 0, 1), Date.UTC(2026, 2, 1), Date.UTC(2026, 4, 1)];
const old = { accountIds: ['acct_a', 'acct_b'], from, to, closedUntil: now, count: 600 };

async function removeAll(db: Kysely<Database>): Promise<void> {
  let after: RemovalCursor | undefined;
  for (let state = 'more'; state === 'more';) ({ state, next: after } = await removeUsage(db, { after, now }));
}

test('what somebody changes of old sums, with the file in hand, is found', async (t) => {
  const db = await databaseOf(t);
  await makeUsage(db, randomOf(7), old);
  const { keptSince } = await keepUsageSince(db, { before: to - 10 * dayMs, now });
  await removeAll(db);
  const folder = temporaryFolder(t);
  let copies = 0;
  /** Of a copy, changed behind the back of its triggers. */
  const differencesAfter = async (statement: string): Promise<readonly string[]> => {
    const file = join(folder, `${++copies}.db`);
    await sql`vacuum into ${file}`.execute(db);
    const copy = openFast(file);
    try {
      for (const table of ['pruned_usage', 'usage_hour', 'usage_tag_hour', 'usage_tier_hour'])
        for (const change of ['update', 'delete']) await sql.raw(`drop trigger ${table}_no_${change}`).execute(copy);
      await sql.raw(statement).execute(copy);
      return (await verifyLedger(copy, { owned: true })).differences.map(({ what }) => what);
    } finally {
      await copy.destroy();
    }
  };
  assert.deepEqual(await differencesAfter('select 1'), []);
  const first = (table: string, order: string): string => `(select min(${order}) from ${table})`;
  const pruned = `id = ${first('pruned_usage where cost > 0 and tags is not null', 'id')}`;
  for (const [statement, expected] of [
    [`update pruned_usage set cost = cost + 1 where ${pruned}`, /^balance$/],
    [
      `update pruned_usage set prompt_tokens = prompt_tokens + 1 where ${pruned}`,
      /^usage_hour before .*: prompt_tokens$/,
    ],
    [`update pruned_usage set tags = '["other"]' where ${pruned}`, /^usage_tag_hour before /],
    [`update pruned_usage set day = day - 86400000 * 40 where key_budget = 'month'`, /^budget /],
    [`delete from pruned_usage where ${pruned}`, /^balance$/],
    [
      `update usage_hour set requests = requests + 1 where hour = ${first('usage_hour', 'hour')}`,
      /^usage_hour before .*: requests$/,
    ],
    [`delete from usage_hour where hour = ${first('usage_hour', 'hour')}`, /^usage_hour before /],
    [
      `update usage_tag_hour set cost = cost + 1 where hour = ${first('usage_tag_hour', 'hour')}`,
      /^usage_tag_hour before .*: cost$/,
    ],
    [
      `update usage_tier_hour set cost = cost + 1 where hour = ${first('usage_tier_hour', 'hour')}`,
      /^usage_tier_hour before .*: cost$/,
    ],
    [`update usage_day set cost = cost + 1 where day = ${first('usage_day', 'day')}`, /^usage_day .*: cost$/],
    [
      `update usage_hour set requests_q1 = coalesce(requests_q1, 0) + 1 where hour = ${first('usage_hour where hour > (select kept_since from usage_retention)', 'hour')}`,
      /requests_q1$/,
    ],
  ] as const) {
    const found = await differencesAfter(statement);
    assert.ok(
      found.some((what) => expected.test(what)),
      `${statement}: ${found.join(', ')}`,
    );
  }
  assert.ok(keptSince > from);
});

test('details are kept for as long as something is made of them', async (t) => {
  const db = await databaseOf(t);
  const ask = async (before: number, at = now) => {
    const { keptSince, limitedBy } = await keepUsageSince(db, { before, now: at });
    return [keptSince, limitedBy];
  };
  await makeUsage(db, randomOf(8), { ...old, closedUntil: from + 20 * dayMs });
  assert.deepEqual(await ask(to, from + 40 * dayMs), [from + 9 * dayMs, 'recent'], '31 days');
  assert.deepEqual(await ask(to), [from + 20 * dayMs, 'statements']);
  await db.updateTable('closed_until').set({ at: now }).where('account_id', '=', 'acct_a').execute();
  assert.deepEqual(await ask(to), [from + 20 * dayMs, 'statements'], 'of each account');
  await db.updateTable('closed_until').set({ at: now }).execute();
  const [until, why] = await ask(now);
  assert.equal(why, 'roll-ups', 'the newest hours are written again');
  assert.ok(Number(until) > to - 3 * dayMs && Number(until) <= to);
  assert.deepEqual(await ask(from), [until, undefined], 'it only grows');
});

test('by itself, details go a week a day, each when the one before is removed, and no later than was asked for', async (t) => {
  const db = await databaseOf(t);
  const next = (at: number, before = to) => nextKeptSince(db, { before, now: at });
  const take = async (at: number) => {
    const before = await next(at);
    assert.ok(before !== undefined);
    const { keptSince } = await keepUsageSince(db, { before, now: at });
    assert.equal(keptSince, before);
  };
  /** As if it took no time. */
  const remove = async (at: number): Promise<void> => {
    let after: RemovalCursor | undefined;
    for (let state = 'more'; state === 'more';) ({ state, next: after } = await removeUsage(db, { after, now: at }));
    assert.equal((await retentionOf(db)).removedAt, at);
  };
  assert.equal(await next(now), undefined, 'there is nothing');
  const rows = await makeUsage(db, randomOf(9), { ...old, from: from + 2 * dayMs });
  const first = Math.floor(rows[0]!.endedAt / dayMs) * dayMs;
  assert.equal(await next(now, first), undefined, 'nothing is that old');
  assert.equal(await next(now, first + 3 * dayMs + hourMs), first + 3 * dayMs);

  await take(now);
  assert.equal((await retentionOf(db)).keptSince, first + 7 * dayMs);
  assert.equal(await next(now + 2 * dayMs), undefined, 'rows are left');
  await remove(now);
  assert.equal(await next(now + 19 * hourMs), undefined, 'once a day');
  assert.equal(await next(now + 20 * hourMs), first + 14 * dayMs);
  assert.equal(await next(now + 20 * hourMs, first + 7 * dayMs + hourMs), undefined, 'as much as was asked for');

  // A clock that is years ahead for a moment takes one step, and does not stop those of the right time.
  const wrong = now + 3000 * dayMs;
  await take(wrong);
  await remove(wrong);
  assert.equal((await retentionOf(db)).keptSince, first + 14 * dayMs);
  assert.equal(await next(wrong + hourMs), undefined);
  assert.equal(await next(now + dayMs), first + 21 * dayMs);

  await db
    .updateTable('closed_until')
    .set({ at: first + 16 * dayMs })
    .where('account_id', '=', 'acct_a')
    .execute();
  assert.equal(await next(now + dayMs), first + 16 * dayMs, 'statements are made of rows');
  assert.deepEqual((await verifyLedger(db, { owned: true })).differences, []);
});
