/** Usage in partitions by month: from a table with rows, ahead of time, and whatever time a key says (money.md, "Tables"). */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import { uuidMaker } from '../../../src/platform/ids/uuid.ts';
import type { Database } from '../../../src/store/database.ts';
import type { UsageRow } from '../../../src/store/ledger.ts';
import { migrate, migrationNames } from '../../../src/store/migrations/migrate.ts';
import { clientConfig } from '../../../src/store/postgres/connection.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { PostgresLedger } from '../../../src/store/postgres/ledger.ts';
import { listPartitions, makePartitions } from '../../../src/store/postgres/partitions.ts';
import { listUsage, sumUsage } from '../../../src/store/repositories/queries.ts';
import { recomputeUsageHours } from '../../../src/store/reports/roll-ups.ts';
import { usageColumns, usageValues } from '../../../src/store/reports/usage-columns.ts';
import { startOfMonth } from '../../../src/store/reports/usage-months.ts';
import { grant, usage, uuid } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { assertRight, balanceOf, Budgets, customer, hold, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

const dayMs = 86_400_000;
/** The newest schema in which usage is one table. */
const lastBefore = migrationNames[migrationNames.indexOf('014-usage-partitions') - 1]!;
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

/** Settles as a version does that knows the columns of its time alone. */
async function settleAsBefore(db: Kysely<Database>, { replicaId }: PostgresLedger, row: UsageRow): Promise<void> {
  const known = usageColumns.indexOf('zdr');
  const columns = ['request_id', ...usageColumns.slice(0, known)].map((column) => sql.ref(column));
  const values = [row.requestId, ...usageValues(row).slice(0, known)];
  await sql`
    with charged as (
      insert into usage (${sql.join(columns)}) values (${sql.join(values)}) returning account_id, cost
    )
    update slice set remaining = remaining - charged.cost from charged
    where slice.replica_id = ${replicaId} and slice.account_id = charged.account_id`.execute(db);
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

test('a table with rows is partitioned while a version of before settles: not a row is copied or lost', async (t) => {
  const url = await server.createDatabase();
  const db = databaseOf(t, url);
  await migrate(db, 'postgres', lastBefore);
  const free = new Budgets();
  const older = new PostgresLedger({ address: { url }, free, newId: uuidMaker() });
  await older.start();
  t.after(() => older.close());
  await older.createAccount({ id: 'acct_a', name: 'a', creditLimitMicrocents: 0n, at: Date.now(), changeId: uuid() });
  await older.transfer(grant('acct_a', 10n ** 9n));
  const months = 6;
  const now = Date.now();
  await server.sql(
    url,
    `insert into usage (request_id, public_id, account_id, key_id, model_id, api, streamed, started_at, ended_at, prompt_tokens,
       cached_tokens, completion_tokens, reasoning_tokens, cost, uncharged, hold, ending, counted, input_price, output_price,
       cache_read_price, total_ms)
     select decode(lpad(to_hex(at), 12, '0') || '7' || lpad(to_hex(n), 19, '0'), 'hex'), 'req_0', 'acct_a', 'key', 'model', 'chat', 0, at, at,
       0, 0, 0, 0, 0, 0, 0, 'failed', 0, 0, 0, 0, 0
     from (select n, ${now} - n * ${Math.round((months * 30 * dayMs) / 50_000)}::bigint as at from generate_series(1, 50000) as n) as old`,
  );

  let settled = 0;
  let slowestMs = 0;
  let goesOn = true;
  const load = Array.from({ length: 4 }, async () => {
    while (goesOn) {
      const begunMs = performance.now();
      if (!free.reserve('acct_a', 10n)) free.credit('acct_a', await older.slice('acct_a', 10n));
      else {
        await settleAsBefore(db, older, usage('acct_a', 10n));
        settled++;
      }
      slowestMs = Math.max(slowestMs, performance.now() - begunMs);
    }
  });
  await until(() => settled > 100, 30_000);
  const fileOf = `select relfilenode::text as file from pg_class where relname like 'usage%' and relkind = 'r' order by pg_relation_size(oid) desc limit 1`;
  const [fileBefore] = await server.sql(url, fileOf);
  const replica = await openReplica(t, url);
  const before = settled;
  await until(() => settled > before + 100, 30_000);
  goesOn = false;
  await Promise.all(load);
  t.diagnostic(`${settled} settled meanwhile, the slowest in ${slowestMs.toFixed(0)} ms`);

  assert.ok(replica.store.migrated.includes('014-usage-partitions'));
  assert.deepEqual(await server.sql(url, fileOf), [fileBefore], 'the table of before, as it is');
  const partitions = await listPartitions(db);
  const old = partitions.find(({ fromMs }) => fromMs === -Infinity)!;
  assert.equal(old.toMs, startOfMonth(now, 2));
  assert.equal(old.name, `usage_before_${nameOf(old.toMs).slice('usage_'.length)}`);
  assert.deepEqual(await placesOf(url), { [old.name]: 50_000 + settled });
  const constraints = await server.sql(
    url,
    `select 1 from pg_constraint where conname like 'usage_before%' and contype = 'c'`,
  );
  assert.deepEqual(constraints, []);
  // Months behind it are there ahead of time.
  assert.deepEqual(
    partitions.filter((one) => one !== old).map(({ name }) => name),
    [2, 3].map((later) => nameOf(startOfMonth(now, later))),
  );
  // One of the new version, and one of the version of before that has not noticed anything.
  assert.ok(await hold(replica, 'acct_a', 100n));
  assert.equal(await replica.store.ledger.settle(usage('acct_a', 100n)), 'billed');
  assert.equal(await balanceOf(replica.store, 'acct_a'), 10n ** 9n - 10n * BigInt(settled) - 100n);
  await recomputeUsageHours(db, { now: Date.now() });
  await assertRight(url);
  const again = await openReplica(t, url);
  assert.deepEqual(again.store.migrated, []);
});

test('a migration that is stopped on its way leaves a table that takes every row, and the next one completes it', async (t) => {
  const url = await server.createDatabase();
  const db = databaseOf(t, url);
  await migrate(db, 'postgres', lastBefore);
  const older = new PostgresLedger({ address: { url }, free: new Budgets(), newId: uuidMaker() });
  await older.start();
  t.after(() => older.close());
  await older.createAccount({ id: 'acct_a', name: 'a', creditLimitMicrocents: 0n, at: Date.now(), changeId: uuid() });
  const failed = { ending: 'failed', finish: null } as const;
  await settleAsBefore(db, older, usage('acct_a', 0n, failed));
  // Something that the transaction meets: a table of that name is there already.
  await server.sql(url, 'create table usage_default ()');
  await assert.rejects(migrate(db, 'postgres'), /the migration failed at 014-usage-partitions .*usage_default/s);
  const constraints = `select conname from pg_constraint where conname like 'usage_before%' and contype = 'c'`;
  assert.deepEqual(await server.sql(url, constraints), []);
  const ahead = keyOf(Date.now() + 400 * dayMs);
  await settleAsBefore(db, older, usage('acct_a', 0n, { ...failed, requestId: ahead }));
  // As a process leaves it that was killed before it could take it back: of a month that is over.
  await server.sql(
    url,
    `alter table usage add constraint usage_before_2020_01 check (request_id < '\\xffff') not valid`,
  );
  await server.sql(url, 'drop table usage_default');
  await migrate(db, 'postgres');
  assert.deepEqual(await server.sql(url, constraints), []);
  // The bound is behind the newest key, whatever clock has made it.
  assert.equal((await listPartitions(db))[0]?.toMs, startOfMonth(Date.now() + 400 * dayMs, 2));
  assert.equal(Object.values(await placesOf(url)).length, 1);
  await assertRight(url);
});

test('rows go where their keys belong; one of a month that is not there yet is kept all the same, once', async (t) => {
  const url = await server.createDatabase();
  const replica = await openReplica(t, url);
  const { ledger, repositories } = replica.store;
  const db = databaseOf(t, url);
  await customer(replica.store, 'acct_a', 10_000n);
  assert.ok(await hold(replica, 'acct_a', 1_000n));
  const now = Date.now();
  const times = [
    now,
    startOfMonth(now, 1),
    startOfMonth(now, 2) - 1,
    startOfMonth(now, 3),
    now + 400 * dayMs,
    now - 40 * dayMs,
  ];
  const rows = times.map((ms) => usage('acct_a', 10n, { requestId: keyOf(ms), startedAt: ms, endedAt: ms }));
  for (const outcome of await Promise.all(rows.map((row) => ledger.settle(row)))) assert.equal(outcome, 'billed');
  for (const row of rows) assert.equal(await ledger.settle(row), 'billed', 'M3: in every partition');
  const before = `usage_before_${nameOf(now).slice('usage_'.length)}`;
  const places = {
    [nameOf(now)]: 1,
    [nameOf(startOfMonth(now, 1))]: 2,
    [nameOf(startOfMonth(now, 3))]: 1,
    usage_default: 1,
    [before]: 1,
  };
  assert.deepEqual(await placesOf(url), places);
  assert.equal(await balanceOf(replica.store, 'acct_a'), 10_000n - 10n * BigInt(times.length));

  // The year goes by. A month whose rows are in the default partition stays there; the others are made.
  const later = startOfMonth(now + 400 * dayMs);
  const made = await makePartitions(db, later);
  assert.deepEqual(
    made,
    [1, 2, 3].map((months) => nameOf(startOfMonth(later, months))),
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
  const url = await server.createDatabase();
  const replicas = await Promise.all([1, 2, 3].map(() => openReplica(t, url)));
  await server.sql(url, `drop table ${nameOf(startOfMonth(Date.now(), 3))}`);
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
  const url = await server.createDatabase();
  const replica = await openReplica(t, url);
  await customer(replica.store, 'acct_a', 10_000n);
  assert.ok(await hold(replica, 'acct_a', 1_000n));
  const now = Date.now();
  for (const months of [-6, 0, 2]) {
    const ms = startOfMonth(now, months) + 15 * dayMs;
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
  const middle = startOfMonth(now) + 15 * dayMs;
  const month = [nameOf(now)];
  const span = { from: middle - dayMs, to: middle + dayMs + 1 };
  assert.deepEqual(await readBy(sumUsage(db, { ...span, by: 'model' })), month);
  assert.deepEqual(await readBy(sumUsage(db, { ...span, accountId: 'acct_a' })), month);
  assert.deepEqual(await readBy(listUsage(db, { ...span, accountId: 'acct_a' })), month);
  const [sum] = await sumUsage(db, span);
  assert.equal(sum?.requests, 1);
  // The first ever begins with the first row there is.
  await recomputeUsageHours(db, { now: middle });
  assert.deepEqual(await readBy(recomputeUsageHours(db, { now: middle })), month);
  const [all] = await sumUsage(db, { from: 0, to: startOfMonth(now, 4) });
  assert.equal(all?.requests, 3);
  await assertRight(url);
});
