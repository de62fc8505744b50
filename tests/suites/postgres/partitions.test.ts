/** Usage in partitions by month: ahead of time, and whatever time a key says (money.md, "Tables"). */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { uuidMaker } from '../../../src/platform/ids/uuid.ts';
import type { Database } from '../../../src/store/database.ts';
import { clientConfig } from '../../../src/store/postgres/connection.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { listPartitions, makePartitions } from '../../../src/store/postgres/partitions.ts';
import { listUsage } from '../../../src/store/repositories/usage-rows.ts';
import { rowsOn } from '../../../src/store/schema/codec.ts';
import { sumUsage } from '../../../src/store/repositories/usage-totals.ts';
import { recomputeUsageHours } from '../../../src/store/reports/roll-ups.ts';
import { startOfUtcMonth } from '../../../src/platform/calendar/months.ts';
import { usage } from '../../store/fixture.ts';
import { assertRight, balanceOf, customer, hold, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

const dayMs = 86_400_000;
let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

function databaseOf(t: TestContext, url: string): Kysely<Database> {
  const db = kyselyOnPostgres({ url }, 2);
  t.after(() => db.destroy());
  return db;
}

/** A key that says another time than now. */
const keyOf = (ms: number): Uint8Array => uuidMaker(() => ms)();

/** Which table has which rows. */
async function placesOf(url: string): Promise<Readonly<Record<string, number>>> {
  const rows = await server.sql(
    url,
    'select tableoid::regclass::text as place, count(*)::int as n from usage group by 1',
  );
  return Object.fromEntries(rows.map(({ place, n }) => [place, n])) as Record<string, number>;
}

const nameOf = (ms: number): string => `usage_${new Date(ms).toISOString().slice(0, 7).replace('-', '_')}`;

test('rows go where their keys belong; one of a month that is not there yet is kept all the same, once', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  const { ledger, repositories } = replica.store;
  const db = databaseOf(t, url);
  await customer(replica.store, 'acct_a', 10_000n);
  assert.ok(await hold(replica, 'acct_a', 1_000n));
  const now = Date.now();
  const times = [
    now,
    startOfUtcMonth(now, 1),
    startOfUtcMonth(now, 2) - 1,
    startOfUtcMonth(now, 3),
    now + 400 * dayMs,
    now - 40 * dayMs,
  ];
  const rows = times.map((ms) => usage('acct_a', 10n, { requestId: keyOf(ms), startedAt: ms, endedAt: ms }));
  for (const outcome of await Promise.all(rows.map((row) => ledger.settle(row)))) assert.equal(outcome, 'billed');
  for (const row of rows) assert.equal(await ledger.settle(row), 'billed', 'M3: in every partition');
  const before = `usage_before_${nameOf(now).slice('usage_'.length)}`;
  const places = {
    [nameOf(now)]: 1,
    [nameOf(startOfUtcMonth(now, 1))]: 2,
    [nameOf(startOfUtcMonth(now, 3))]: 1,
    usage_default: 1,
    [before]: 1,
  };
  assert.deepEqual(await placesOf(url), places);
  assert.equal(await balanceOf(replica.store, 'acct_a'), 10_000n - 10n * BigInt(times.length));

  // The year goes by. A month whose rows are in the default partition stays there; the others are made.
  const later = startOfUtcMonth(now + 400 * dayMs);
  const made = await makePartitions(db, later);
  assert.deepEqual(
    made,
    [1, 2, 3].map((months) => nameOf(startOfUtcMonth(later, months))),
  );
  assert.deepEqual(await makePartitions(db, later), []);
  assert.deepEqual(await placesOf(url), places);
  assert.equal((await repositories.listUsage({ accountId: 'acct_a' })).length, times.length);
  await assertRight(url);

  // M7, on each.
  const partitions = await server.sql(
    url,
    `select inhrelid::regclass::text as name from pg_inherits where inhparent = 'usage'::regclass`,
  );
  assert.ok(partitions.length > 6);
  for (const { name } of partitions) {
    await assert.rejects(server.sql(url, `truncate ${String(name)}`), /usage is immutable/);
    if (places[String(name)] === undefined) continue;
    await assert.rejects(server.sql(url, `delete from ${String(name)}`), /usage is immutable/);
    await assert.rejects(server.sql(url, `update ${String(name)} set cost = 0`), /usage is immutable/);
  }
});

test('several replicas that tidy at once make each partition once, while a report reads all of them', async (t) => {
  const url = await server.databaseWithTables();
  const replicas = await Promise.all([1, 2, 3].map(() => openReplica(t, url)));
  await server.sql(url, `drop table ${nameOf(startOfUtcMonth(Date.now(), 3))}`);
  const reader = new pg.Client(clientConfig({ url }));
  await reader.connect();
  t.after(() => reader.end());
  await reader.query('begin; select count(*) from usage');
  // The default partition is in use: it waits for a moment, and leaves it to a later round.
  await Promise.all(replicas.map(({ store }) => store.tidy()));
  await reader.query('commit');
  await Promise.all(replicas.map(({ store }) => store.tidy()));
  const db = databaseOf(t, url);
  assert.equal((await listPartitions(db)).length, 5);
});

test('reads that name a time read the partitions of its months only', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  await customer(replica.store, 'acct_a', 10_000n);
  assert.ok(await hold(replica, 'acct_a', 1_000n));
  const now = Date.now();
  for (const months of [-6, 0, 2]) {
    const ms = startOfUtcMonth(now, months) + 15 * dayMs;
    const row = usage('acct_a', 10n, { requestId: keyOf(ms), startedAt: ms, endedAt: ms });
    assert.equal(await replica.store.ledger.settle(row), 'billed');
  }
  const asked: { readonly sql: string; readonly parameters: readonly unknown[] }[] = [];
  const pool = new pg.Pool({ ...clientConfig({ url }), max: 2 });
  const db = new Kysely<Database>({
    dialect: new PostgresDialect({ pool }),
    log: ({ query }) => void asked.push(query),
  });
  t.after(() => db.destroy());
  /** Which partitions the queries on usage read. */
  const readBy = async (query: Promise<unknown>): Promise<readonly string[]> => {
    asked.length = 0;
    await query;
    const read = new Set<string>();
    for (const { sql, parameters } of asked.filter((one) => /"usage"/.test(one.sql) && /^select/.test(one.sql))) {
      const { rows } = await pool.query<{ 'QUERY PLAN': string }>(`explain ${sql}`, [...parameters]);
      for (const { 'QUERY PLAN': line } of rows)
        for (const [name] of line.matchAll(/\busage_(?:before_)?(?:\d{4}_\d\d|default)\b(?!_)/g)) read.add(name);
    }
    return [...read].filter((name) => name !== 'usage_default').toSorted();
  };
  const middle = startOfUtcMonth(now) + 15 * dayMs;
  const month = [nameOf(now)];
  const span = { from: middle - dayMs, to: middle + dayMs + 1 };
  assert.deepEqual(await readBy(sumUsage(db, { ...span, by: ['model'] })), month);
  assert.deepEqual(await readBy(sumUsage(db, { ...span, accountId: 'acct_a' })), month);
  assert.deepEqual(await readBy(listUsage(rowsOn(db), { ...span, accountId: 'acct_a' })), month);
  const [sum] = await sumUsage(db, span);
  assert.equal(sum?.requests, 1);
  // The first ever begins with the first row there is.
  const after = (hours: number) => ({ now: middle + hours * 3_600_000 });
  // A day whose latencies are not added up yet is read again: it has to be complete.
  await recomputeUsageHours(db, after(30));
  assert.deepEqual(await readBy(recomputeUsageHours(db, after(33))), month);
  const [all] = await sumUsage(db, { from: 0, to: startOfUtcMonth(now, 4) });
  assert.equal(all?.requests, 3);
  await assertRight(url);
});
