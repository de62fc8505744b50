/** Removal of old usage on PostgreSQL: as in tests/usage, and beside a service that answers. */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import type { Kysely } from 'kysely';
import type { Database } from '../../../src/store/database.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { freePartitions } from '../../../src/store/postgres/free-partitions.ts';
import { listPartitions, makePartitions } from '../../../src/store/postgres/partitions.ts';
import { startOfUtcMonth } from '../../../src/platform/calendar/months.ts';
import { nextKeptSince, prunedRequests, retentionOf } from '../../../src/store/retention/retention.ts';
import { built } from '../../support/built.ts';
import { until } from '../../support/service.ts';
import { makeAccounts } from '../../usage/accounts.ts';
import { insertUsage, randomOf, randomRow } from '../../usage/ledger-of-rows.ts';
import { compareAroundRemoval, makeUsage } from '../../usage/retention.ts';
import { keys, users } from '../../usage/sums.ts';
import { assertRight, openReplica } from './fixture.ts';
import { ask, asked, configOn, serviceOn } from './replica-service.ts';
import { PostgresServer } from './server.ts';

const dayMs = 86_400_000;
let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

function databaseOf(t: TestContext, url: string): Kysely<Database> {
  const db = kyselyOnPostgres({ url }, 2);
  t.after(() => db.destroy());
  return db;
}

/** In place of the one partition of everything before this month, as if the database had been there all the time. */
async function makeEarlierPartitions(db: Kysely<Database>, url: string, fromMs: number): Promise<void> {
  const [first] = (await listPartitions(db)).filter((one) => one.fromMs === -Infinity);
  await server.sql(url, `drop table ${first!.name}`);
  for (let at = startOfUtcMonth(fromMs); at < Date.now(); at = startOfUtcMonth(at, 1)) await makePartitions(db, at);
}

test('whatever old usage is removed, at every moment: balances, budgets, movements and sums are what they were', async (t) => {
  const url = await server.createDatabase();
  await openReplica(t, url);
  const db = databaseOf(t, url);
  await makeEarlierPartitions(db, url, Date.UTC(2026, 1, 1));
  const owned = keys.map((id) => ({ id, accountId: 'acct_a', userId: users[id] ?? null }));
  await makeAccounts(db, ['acct_a', 'acct_b'], owned);
  const seed = Math.floor(Math.random() * 2 ** 31);
  t.diagnostic(`seed ${seed}`);
  await compareAroundRemoval(db, seed, 5);
});

test('a service removes old usage while it answers; partitions without rows are dropped, and no request fails', async (t) => {
  const url = await server.createDatabase();
  const service = serviceOn(url);
  t.after(() => service.dispose());
  await service.start();
  const db = databaseOf(t, url);
  const [from, to] = [Date.now() - 160 * dayMs, Date.now() - 80 * dayMs];
  await makeEarlierPartitions(db, url, from);
  const rows = await makeUsage(db, randomOf(11), {
    accountIds: [service.accountId],
    from,
    to,
    closedUntil: Date.now() - 50 * dayMs,
    count: 2_500,
  });
  // Hours that end in the past are summed up for good when a later one is.
  assert.equal((await asked(service, ask)).status, 200);
  const keptSince = Math.floor((Date.now() - 90 * dayMs) / dayMs) * dayMs;
  const older = rows.filter(({ endedAt }) => endedAt < keptSince).length;
  const empty = (await listPartitions(db)).filter(({ toMs }) => toMs <= keptSince).map(({ name }) => name);
  assert.ok(empty.length >= 1);

  let isOver = false;
  let answered = 0;
  const load = Promise.all(
    Array.from({ length: 3 }, async () => {
      while (!isOver) {
        const answer = await asked(service, ask);
        assert.equal(answer.status, 200, await answer.text());
        answered++;
        // Load beside the removal, not in place of it.
        await setTimeout(20);
      }
    }),
  );
  const day = new Date(keptSince).toISOString().slice(0, 10);
  const shown = await service.command('db', 'prune', '--before', day, '--json');
  assert.equal(shown.code, 0, shown.stderr);
  const plan = JSON.parse(shown.stdout) as Record<string, unknown>;
  assert.deepEqual([plan['before'], plan['limited_by'], plan['done']], [day, null, false]);
  assert.equal((plan['rows'] as number) + (plan['rows_staying'] as number), older);
  assert.equal((await retentionOf(db)).keptSince, 0, 'nothing was changed');
  const done = await service.command('db', 'prune', '--before', day, '--yes');
  assert.equal(done.code, 0, done.stderr);
  await until(async () => (await retentionOf(db)).removedAt !== null && (await prunedRequests(db)) > 0, 300_000);
  isOver = true;
  await load;
  assert.ok(answered > 10);
  const left = await server.sql(url, `select count(*)::int as n from usage where ended_at < ${keptSince}`);
  assert.equal(Number(left[0]!['n']) + (await prunedRequests(db)), older);
  await service.verify();

  // What stays keeps the partitions of its months; the others go, now that nobody holds them.
  const staying = await server.sql(
    url,
    `select distinct tableoid::regclass::text as name from usage where ended_at < ${keptSince}`,
  );
  const kept = new Set(staying.map(({ name }) => String(name)));
  while ((await freePartitions(db)) !== 'done');
  const there = new Set((await listPartitions(db)).map(({ name }) => name));
  for (const name of empty) assert.equal(there.has(name), kept.has(name), name);
  assert.equal((await asked(service, ask)).status, 200);
  assert.equal(await service.stop(), 0);
  await assertRight(url, false);
});

test('the partitions of requests that ended before the bound refuse them, and no other partition looks', async (t) => {
  const url = await server.createDatabase();
  await openReplica(t, url);
  const db = databaseOf(t, url);
  await makeEarlierPartitions(db, url, Date.UTC(2026, 1, 1));
  await makeAccounts(
    db,
    ['acct_a'],
    keys.map((id) => ({ id, accountId: 'acct_a', userId: null })),
  );
  const looking = async () =>
    (
      await server.sql(
        url,
        `select relname from pg_trigger join pg_class on pg_class.oid = tgrelid where tgname = 'usage_not_removed' order by 1`,
      )
    ).map(({ relname }) => relname);
  const addOne = (endedAt: number) =>
    insertUsage(db, [
      { ...randomRow(randomOf(endedAt), { accountId: 'acct_a', from: endedAt, to: endedAt + 1 }, keys), endedAt },
    ]);
  assert.deepEqual(await looking(), []);
  const bound = Date.UTC(2026, 3, 5);
  await addOne(bound - 1);
  await server.sql(url, `update usage_retention set kept_since = ${bound}`);
  assert.deepEqual(await looking(), ['usage_2026_02', 'usage_2026_03', 'usage_2026_04', 'usage_default']);
  await assert.rejects(addOne(bound - 1), /request from before the retention of usage/);
  await assert.rejects(addOne(Date.UTC(2026, 1, 10)), /request from before the retention of usage/);
  for (const endedAt of [bound, Date.now()]) await addOne(endedAt);
  await server.sql(url, `update usage_retention set kept_since = ${Date.UTC(2026, 4, 1)}`);
  assert.equal((await looking()).length, 4, 'May is not before it');
});

test('two replicas remove old usage by themselves: one of them moves the bound, one step a day, while both answer', async (t) => {
  const url = await server.createDatabase();
  const entry = built('tests/support/quick-jobs-entry.ts');
  const maker = serviceOn(url);
  const [first, second] = [serviceOn(url, { entry }), serviceOn(url, { entry })];
  for (const service of [maker, first, second]) t.after(() => service.dispose());
  // Nobody sums hours up while they are made.
  await maker.start();
  assert.equal(await maker.stop(), 0);
  const db = databaseOf(t, url);
  const [from, to] = [Date.now() - 160 * dayMs, Date.now() - 80 * dayMs];
  await makeEarlierPartitions(db, url, from);
  const rows = await makeUsage(db, randomOf(12), {
    accountIds: [maker.accountId],
    from,
    to,
    closedUntil: Date.now() - 50 * dayMs,
    count: 1_500,
  });
  const firstDay = Math.floor(rows[0]!.endedAt / dayMs) * dayMs;
  const both = async (): Promise<void> => {
    for (const service of [first, second]) assert.equal((await asked(service, ask)).status, 200);
  };
  for (const service of [first, second]) await service.takesAccountOf(maker).start();
  await both();
  // Hours are summed up for good when a later one is.
  await until(async () => (await nextKeptSince(db, { before: to, now: Date.now() })) === firstDay + 7 * dayMs, 60_000);
  for (const service of [first, second]) service.configure({ config: configOn('retention: { details_days: 31 }\n') });
  await until(async () => (await retentionOf(db)).keptSince > 0, 60_000);
  await until(async () => (await retentionOf(db)).removedAt !== null, 60_000);
  await both();
  assert.ok((await prunedRequests(db)) > 0);
  assert.equal((await retentionOf(db)).keptSince, firstDay + 7 * dayMs);
  const noted = await server.sql(
    url,
    `select outcome, actor_kind from audit_log where action = 'usage.prune' order by id`,
  );
  assert.deepEqual(
    noted.map(({ outcome, actor_kind: kind }) => [outcome, kind]),
    [
      ['begun', 'system'],
      ['done', 'system'],
    ],
  );
  const moved = [first, second].flatMap(({ log }) => log).filter(({ event }) => event === 'usage_retention_moved');
  assert.equal(moved.length, 1);
  for (const service of [first, second]) assert.equal(await service.stop(), 0);
  await assertRight(url, false);
});

test('a partition goes whose rows are all removed; one that a reader holds goes later, and settlements do not wait', async (t) => {
  const url = await server.createDatabase();
  await openReplica(t, url);
  const db = databaseOf(t, url);
  await makeEarlierPartitions(db, url, Date.UTC(2026, 1, 1));
  await server.sql(url, `update usage_retention set kept_since = ${Date.UTC(2026, 3, 5)}`);
  const reader = databaseOf(t, url);
  await reader.transaction().execute(async (transaction) => {
    await transaction.selectFrom('usage').select('request_id').execute();
    assert.equal(await freePartitions(db), 'later');
    assert.deepEqual((await listPartitions(db))[0]!.name, 'usage_2026_02');
  });
  assert.equal(await freePartitions(db), 'done');
  assert.deepEqual((await listPartitions(db))[0]!.name, 'usage_2026_04', 'April has requests that are kept');
});
