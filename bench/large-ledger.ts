/**
 * What a ledger of very many rows on PostgreSQL costs whoever keeps it: settlements beside it, exports, retention, verification.
 */
import os from 'node:os';
import { sql, type Kysely } from 'kysely';

import { printExport } from '../src/account-api/export.ts';
import { exportedGenerations, generationColumns } from '../src/account-api/exported-generation.ts';
import { startOfUtcMonth } from '../src/platform/calendar/months.ts';
import { hourMs } from '../src/platform/calendar/time-zone.ts';
import type { Database } from '../src/store/database.ts';
import { migrate } from '../src/store/migrations/migrate.ts';
import { kyselyOnPostgres } from '../src/store/postgres/dialect.ts';
import { freePartitions } from '../src/store/postgres/free-partitions.ts';
import { listPartitions } from '../src/store/postgres/partitions.ts';
import { repositoriesOn } from '../src/store/repositories/repositories.ts';
import { removeUsage, type RemovalCursor } from '../src/store/retention/removal.ts';
import { keyBound } from '../src/store/reports/usage-months.ts';
import { keepUsageSince } from '../src/store/retention/retention.ts';
import { verifyLedger } from '../src/store/verify/verify.ts';
import type { PostgresServer } from '../tests/suites/postgres/server.ts';
import { say } from './command.ts';
import { fillUsage, filledFrom, filledNow, filledZone } from './fill-usage.ts';
import { reportsOn } from './reports.ts';
import { settleBeside } from './settle.ts';
import { partitionsSince, startPostgres } from './postgres.ts';

const dayMs = 24 * hourMs;
const burst = 20;
const settleSeconds = 20;
/** Removing is measured for so long, and then stopped. */
const removalMs = 120_000;

/** Resolves with tables. `accounts`: a power of ten. */
export async function measureLargeLedger(options: {
  readonly root: string;
  readonly rows: number;
  readonly accounts: number;
}): Promise<string> {
  const server = await startPostgres(options.root);
  try {
    return await measured(server, options);
  } finally {
    await server.dispose();
  }
}

async function measured(
  server: PostgresServer,
  { rows, accounts }: { readonly rows: number; readonly accounts: number },
): Promise<string> {
  const settings = { shared_buffers: '4GB', max_wal_size: '6GB', wal_level: 'minimal', max_wal_senders: 0 };
  for (const [name, value] of Object.entries(settings))
    await server.sql('postgres', `alter system set ${name} = '${value}'`);
  await server.kill();
  await server.resume();
  const url = await server.createDatabase();
  const db = kyselyOnPostgres({ url }, 1);
  await migrate(db, 'postgres');
  await partitionsSince(db, filledFrom);
  const session = `set work_mem = '1GB'; set maintenance_work_mem = '2GB'; set synchronous_commit = off; set jit = off`;
  const run = (text: string) => server.sql(url, text.startsWith('vacuum') ? text : `${session}; ${text}`);
  const filled = await fillUsage({ name: 'PostgreSQL', dialect: 'postgres', db, run, rows, accounts, burst });
  const lines: string[] = [];
  const state = (line: string): void => {
    say(line);
    lines.push(`- ${line}`);
  };
  state(`${filled}; ${await sizes(db)}`);
  const reports = await reportsOn(db);
  await measureExports(db, state);
  await measureVerification(db, state);
  const name = `PostgreSQL with ${count(rows)} rows`;
  const settled = await settleBeside(server, { name, url, seconds: settleSeconds });
  await measureRetention(db, state);
  await db.destroy();
  return [reports, '', settled, '', ...lines, `- load average ${os.loadavg()[0]!.toFixed(1)} at the end`].join('\n');
}

/** In GB, with indexes. */
async function sizes(db: Kysely<Database>): Promise<string> {
  const { rows } = await sql<{ whole: bigint; usage: bigint }>`
    select pg_database_size(current_database()) as whole,
      (select sum(pg_total_relation_size(inhrelid)) from pg_inherits where inhparent = 'usage'::regclass)::bigint as usage
  `.execute(db);
  const [whole, usage] = [rows[0]!.whole, rows[0]!.usage].map((bytes) => (Number(bytes) / 1e9).toFixed(1));
  return `the database is ${whole} GB, ${usage} of it usage`;
}

type State = (line: string) => void;

async function measureExports(db: Kysely<Database>, state: State): Promise<void> {
  const repositories = repositoriesOn(db);
  const filter = { accountId: 'acct_0', from: filledNow - 30 * dayMs, to: filledNow };
  for (const format of ['csv', 'parquet'] as const) {
    const begun = performance.now();
    let [bytes, rows] = [0, 0];
    const counted = async function* () {
      for await (const page of exportedGenerations(repositories, filter, filledZone)) {
        rows += page.length;
        yield page;
      }
    };
    for await (const piece of printExport(format, generationColumns, counted())) bytes += piece.length;
    state(
      `30 days of the largest account as ${format}: ${count(rows)} rows, ${(bytes / 1e6).toFixed(0)} MB, ${seconds(begun)}, ${rate(rows, begun)}`,
    );
  }
}

async function measureVerification(db: Kysely<Database>, state: State): Promise<void> {
  const begun = performance.now();
  const { differences, usageRows, accounts, transfers, hours } = await verifyLedger(db, { owned: true });
  if (differences.length > 0) throw new Error(`the ledger is wrong: ${differences[0]!.what}`);
  const memory = (process.resourceUsage().maxRSS / 1024).toFixed(0);
  state(
    `verification of ${count(usageRows)} rows of usage, ${count(transfers)} movements, ${count(accounts)} accounts, ${count(hours)} sums by the hour: no difference, ${seconds(begun)}, ${rate(usageRows, begun)}, at most ${memory} MiB of memory`,
  );
}

/** Details of the first month go: for a while, and then its partition after the rest was deleted at once, as the job would have in time. */
async function measureRetention(db: Kysely<Database>, state: State): Promise<void> {
  const before = startOfUtcMonth(filledFrom, 1);
  // As if all statements of that month were issued.
  await db
    .insertInto('closed_until')
    .columns(['account_id', 'at'])
    .expression((is) =>
      is
        .selectFrom('account')
        .where('kind', '=', 0n)
        .select(['id', sql<bigint>`${BigInt(before)}`.as('at')]),
    )
    .execute();
  let begun = performance.now();
  await keepUsageSince(db, { before, now: filledNow });
  state(`setting how long details are kept: ${seconds(begun)}`);
  begun = performance.now();
  let removed = 0;
  let after: RemovalCursor | undefined;
  for (let isOver = false; !isOver && performance.now() - begun < removalMs;) {
    const page = await removeUsage(db, { after, now: filledNow });
    removed += page.removed;
    after = page.next;
    isOver = page.state !== 'more';
  }
  state(
    `details removed by the job, a page after the other without a pause: ${count(removed)} rows, ${rate(removed, begun)}`,
  );
  const [first] = (await listPartitions(db)).filter(({ toMs }) => toMs === before);
  for (let day = filledFrom; day < before; day += dayMs)
    await db.transaction().execute(async (transaction) => {
      await sql`set local session_replication_role = replica`.execute(transaction);
      await sql`delete from ${sql.table(first!.name)} where request_id < ${keyBound(day + dayMs)}`.execute(transaction);
    });
  begun = performance.now();
  const freed = await freePartitions(db);
  const isThere = (await listPartitions(db)).some(({ name }) => name === first!.name);
  state(`freeing an emptied partition: ${freed}, ${isThere ? 'it is still there' : 'dropped'}, ${seconds(begun)}`);
}

const count = (value: number): string => value.toLocaleString('en');
const seconds = (begun: number): string => `${((performance.now() - begun) / 1000).toFixed(1)} s`;
const rate = (rows: number, begun: number): string =>
  `${count(Math.round(rows / ((performance.now() - begun) / 1000)))} rows a second`;
