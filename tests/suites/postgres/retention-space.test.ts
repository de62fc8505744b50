/** A month whose rows are mostly removed gives its space back: by a copy of what stays, beside everything else, whatever breaks. */
import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { sql, type CompiledQuery, type Kysely } from 'kysely';
import pg from 'pg';
import { startOfUtcMonth } from '../../../src/platform/calendar/months.ts';
import type { Database } from '../../../src/store/database.ts';
import { kyselyOn, kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { freePartitions } from '../../../src/store/postgres/free-partitions.ts';
import { listPartitions, makePartitions } from '../../../src/store/postgres/partitions.ts';
import { PoolDriver } from '../../../src/store/postgres/pool-driver.ts';
import { reportRefunds, reportUsage } from '../../../src/store/reports/reports.ts';
import { creditSummary, listLedger } from '../../../src/store/repositories/credit.ts';
import { sumUsage } from '../../../src/store/repositories/usage-totals.ts';
import { removeUsage, type RemovalCursor } from '../../../src/store/retention/removal.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { until } from '../../support/service.ts';
import { makeAccounts } from '../../usage/accounts.ts';
import { insertUsage, randomOf, randomRow } from '../../usage/ledger-of-rows.ts';
import { makeUsage } from '../../usage/retention.ts';
import { keys } from '../../usage/sums.ts';
import { FaultyWire } from './faulty-wire.ts';
import { PostgresServer } from './server.ts';

const accountId = 'acct_a';
const month = 'usage_2026_03';
const [from, to] = [Date.UTC(2026, 2, 26), Date.UTC(2026, 3, 1)];
/** Within April: its partition is guarded too, and not over. */
const keptSince = Date.UTC(2026, 3, 10);
const now = Date.UTC(2026, 5, 1);
/** Enough for a table of more than a megabyte. */
const count = 4_500;

let server: PostgresServer;
let filled: string;
before(async () => {
  server = await PostgresServer.start({ fsync: 'off' });
  filled = await mostlyRemoved();
});
after(() => server.dispose());

function databaseOf(t: TestContext, url: string, connections = 2): Kysely<Database> {
  const db = kyselyOnPostgres({ url }, connections);
  t.after(() => db.destroy());
  return db;
}

/** A database in which all rows of March are removed, except those that stay: its name. */
async function mostlyRemoved(): Promise<string> {
  const url = await server.databaseWithTables();
  const db = kyselyOnPostgres({ url }, 1);
  try {
    const [first] = (await listPartitions(db)).filter((one) => one.fromMs === -Infinity);
    if (first !== undefined) await server.sql(url, `drop table ${first.name}`);
    for (let at = startOfUtcMonth(from); at < Date.now(); at = startOfUtcMonth(at, 1)) await makePartitions(db, at);
    await makeAccounts(
      db,
      [accountId],
      keys.map((id) => ({ id, accountId, userId: null })),
    );
    const random = randomOf(17);
    await makeUsage(db, random, { accountIds: [accountId], from, to, closedUntil: now, count, budgetShare: 0 });
    await server.sql(url, `update usage_retention set kept_since = ${keptSince}, removed_at = null`);
    let next: RemovalCursor | undefined;
    for (let state = 'more'; state === 'more';) ({ state, next } = await removeUsage(db, { after: next, now }));
    // What is settled a month late: its key is of March.
    await insertUsage(db, [lateRow(random, now)]);
    return new URL(url).pathname.slice(1);
  } finally {
    await db.destroy();
  }
}

async function copyOfFilled(t: TestContext) {
  const url = await server.createDatabase(filled);
  return { url, db: databaseOf(t, url) };
}

const lateRow = (random: () => number, endedAt: number) => ({
  ...randomRow(random, { accountId, from: to - 1, to }, keys),
  endedAt,
});

/** Vacuum waits some seconds for a table that is in use. */
const waits = (transaction: Kysely<Database>) =>
  sql`set local idle_in_transaction_session_timeout = 0`.execute(transaction);

const sizeOf = async (url: string): Promise<number> =>
  Number((await server.sql(url, `select pg_total_relation_size('${month}') as bytes`))[0]!['bytes']);

/** Which table it is, by whatever name. */
const tableOf = async (url: string): Promise<unknown> =>
  (await server.sql(url, `select '${month}'::regclass::oid as oid`))[0]!['oid'];

const rowsOf = async (url: string): Promise<unknown> =>
  (
    await server.sql(url, `select count(*) as n, md5(string_agg(u::text, ',' order by request_id)) as all from usage u`)
  )[0];

const copiesIn = async (url: string): Promise<number> =>
  (await server.sql(url, `select 1 from pg_class where relname like '%being_copied%'`)).length;

async function figuresOf(db: Kysely<Database>, url: string) {
  const span = { accountId, timeZone: 'UTC', bounds: [from - 3_600_000, to, now] };
  return [
    await rowsOf(url),
    await reportUsage(db, { ...span, by: ['model', 'key', 'tag'] }),
    await reportRefunds(db, { ...span, by: ['model'] }),
    await sumUsage(db, { from: from - 3_600_000, to, accountId, by: ['tier'] }),
    await creditSummary(db, { accountId, now }),
    await listLedger(db, { accountId, limit: 100, now }),
    (await verifyLedger(db, { owned: true })).differences,
  ];
}

/** All that the catalog says of a partition, but for its name, its bounds and its statistics. */
async function described(url: string, name: string): Promise<unknown> {
  const table = `'${name}'::regclass`;
  const lines = await server.sql(
    url,
    `select 'table', to_jsonb(c) - '{oid,relname,reltype,relfilenode,relpages,reltuples,relallvisible,relallfrozen,reltoastrelid,relfrozenxid,relminmxid,relpartbound}'::text[]
       || jsonb_build_object('toast', reltoastrelid <> 0) as value from pg_class c where oid = ${table}
     union all select 'column', to_jsonb(a) - '{attrelid,attcacheoff}'::text[] from pg_attribute a where attrelid = ${table} and attnum > 0
     union all select 'default', to_jsonb(pg_get_expr(adbin, adrelid)) from pg_attrdef where adrelid = ${table}
     union all select 'index', jsonb_build_array(pg_get_indexdef(indexrelid), indisvalid, indisprimary, reloptions, inhparent::regclass::text)
       from pg_index join pg_class on pg_class.oid = indexrelid left join pg_inherits on inhrelid = indexrelid where indrelid = ${table}
     union all select 'trigger', jsonb_build_array(pg_get_triggerdef(oid), tgenabled) from pg_trigger where tgrelid = ${table}
     union all select 'constraint', jsonb_build_array(conname, contype, convalidated, conislocal, coninhcount, pg_get_constraintdef(oid)) from pg_constraint where conrelid = ${table}
     union all select 'parent', to_jsonb(inhparent::regclass::text) from pg_inherits where inhrelid = ${table}`,
  );
  return lines.map((line) => JSON.stringify(line).replaceAll(name, '#')).sort();
}

test('a month with few rows left shrinks; every figure, and the schema, is what it was', async (t) => {
  const { url, db } = await copyOfFilled(t);
  const left = Number((await server.sql(url, `select count(*) as n from ${month}`))[0]!['n']);
  assert.ok(left > 40 && left < count * 0.12, `${left} stay`);
  const [size, figures] = [await sizeOf(url), await figuresOf(db, url)];
  const untouched = await described(url, 'usage_2026_04');
  assert.deepEqual(await described(url, month), untouched);

  // Who holds the table is not waited for, nor what is copied in vain.
  const reader = databaseOf(t, url, 1);
  await reader.transaction().execute(async (transaction) => {
    await waits(transaction);
    await transaction.selectFrom('usage').select('request_id').limit(1).execute();
    assert.equal(await freePartitions(db), 'later');
    assert.equal(await copiesIn(url), 0);
  });
  // Who sees the rows as they were before they were copied finds them all, although it looks at usage only now.
  const expected = await rowsOf(url);
  await reader
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (transaction) => {
      await waits(transaction);
      await transaction.selectFrom('account').select('id').execute();
      assert.equal(await freePartitions(db), 'later');
      const { rows } = await sql`
        select count(*)::text as n, md5(string_agg(u::text, ',' order by request_id)) as all from usage u`.execute(
        transaction,
      );
      assert.deepEqual(rows[0], expected);
    });
  assert.notEqual(await copiesIn(url), 0, 'of the last try');
  assert.deepEqual(await figuresOf(db, url), figures);

  const table = await tableOf(url);
  assert.equal(await freePartitions(db), 'done');
  assert.notEqual(await tableOf(url), table);
  assert.equal(await copiesIn(url), 0);
  const smaller = await sizeOf(url);
  t.diagnostic(`${size} bytes, and ${smaller} for ${left} rows`);
  assert.ok(smaller < size / 4, `${size} bytes became ${smaller}`);
  assert.deepEqual(await described(url, month), untouched);
  assert.deepEqual(await figuresOf(db, url), figures);
  await assert.rejects(insertUsage(db, [lateRow(randomOf(3), to)]), /request from before the retention of usage/);
  await assert.rejects(server.sql(url, `update ${month} set cost = 0`), /usage is immutable/);

  const shrunk = await tableOf(url);
  assert.equal(await freePartitions(db), 'done');
  assert.equal(await tableOf(url), shrunk, 'once');
});

test('beside every statement but those of the swap, requests are settled and read; one that is settled late is kept', async (t) => {
  const { url, db } = await copyOfFilled(t);
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  t.after(() => other.end());
  const random = randomOf(5);
  let [asked, late] = [0, 0];
  let isAlone = false;
  const beside = async (text: string): Promise<void> => {
    if (text.startsWith('lock table')) {
      // Comes after the rows were counted, and is not in the copy.
      if (late++ === 0) await insertUsage(db, [lateRow(random, now)]);
      isAlone = true;
    }
    if (text === 'commit' || text === 'rollback') {
      // Until it is carried out.
      isAlone = false;
      return;
    }
    if (isAlone) return;
    await other.query('begin; lock table usage in row exclusive mode nowait; rollback');
    asked++;
  };
  const table = await tableOf(url);
  const heard = kyselyOn(new HeardDriver(url, beside));
  t.after(() => heard.destroy());
  assert.equal(await freePartitions(heard), 'later');
  assert.equal(await tableOf(url), table);
  const rows = await rowsOf(url);
  assert.equal(await freePartitions(heard), 'done');
  assert.notEqual(await tableOf(url), table);
  assert.deepEqual(await rowsOf(url), rows);
  assert.deepEqual((await verifyLedger(db, { owned: true })).differences, []);
  assert.ok(asked > 20);
});

/** A connection to the database that tells of each statement before it runs. */
class HeardDriver extends PoolDriver {
  readonly #hear: (text: string) => Promise<void>;

  constructor(url: string, hear: (text: string) => Promise<void>) {
    super({ address: { url }, connections: 1 });
    this.#hear = hear;
  }

  override async acquireConnection() {
    const connection = await super.acquireConnection();
    const run = connection.executeQuery.bind(connection);
    connection.executeQuery = async <Row>(query: CompiledQuery) => {
      await this.#hear(query.sql);
      return await run<Row>(query);
    };
    return connection;
  }
}

test('the connection breaks before or after any statement: no row is lost or twice, and the next call ends the work', async (t) => {
  const { url, db } = await copyOfFilled(t);
  const wire = await FaultyWire.open(server.port);
  t.after(() => wire.close());
  const worker = databaseOf(t, wire.url(url), 1);
  const rows = await rowsOf(url);
  const table = await tableOf(url);
  const isQuiet = async (): Promise<boolean> =>
    (
      await server.sql(
        url,
        `select 1 from pg_locks where pid <> pg_backend_pid() and locktype = 'relation' and relation >= 16384
           and database = (select oid from pg_database where datname = current_database())`,
      )
    ).length === 0;
  let isOver = false;
  for (let call = 1; !isOver; call++)
    for (const fault of ['cut-before', 'cut-after'] as const) {
      wire.arm(fault, call);
      await freePartitions(worker).catch(() => {});
      isOver = !wire.hasFailed;
      wire.disarm();
      await until(isQuiet, 10_000);
      assert.deepEqual(await rowsOf(url), rows, `${fault} at call ${call}`);
      if (isOver) t.diagnostic(`${call - 1} calls`);
    }
  assert.equal(await freePartitions(worker), 'done');
  assert.notEqual(await tableOf(url), table);
  assert.equal(await copiesIn(url), 0);
  assert.deepEqual(await described(url, month), await described(url, 'usage_2026_04'));
  assert.deepEqual((await verifyLedger(db, { owned: true })).differences, []);
});
