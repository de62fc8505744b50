import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { sql, type Kysely } from 'kysely';
import type { Database } from '../src/store/database.ts';
import { periodOf } from '../src/store/budget.ts';
import { creditSummary, listLedger } from '../src/store/repositories/credit.ts';
import { listGenerations } from '../src/store/repositories/generations.ts';
import { lastUseOfKeys } from '../src/store/repositories/key-last-use.ts';
import { migrate } from '../src/store/migrations/migrate.ts';
import { kyselyOnPostgres } from '../src/store/postgres/dialect.ts';
import { reportLatency, type LatencyDimension } from '../src/store/reports/latency.ts';
import { readLedgerSpan } from '../src/store/reports/ledger-span.ts';
import { reportUsage, spendOfKeys, spendSince, type ReportDimension } from '../src/store/reports/reports.ts';
import { rowsOn } from '../src/store/schema/codec.ts';
import { openConnection } from '../src/store/sqlite/connection.ts';
import { kyselyOn } from '../src/store/sqlite/dialect.ts';
import { startOfUtcMonth } from '../src/platform/calendar/months.ts';
import { bucketBounds, hourMs, startOfDay, type BucketWidth } from '../src/platform/calendar/time-zone.ts';
import { say } from './command.ts';
import {
  fillUsage,
  filledAccounts,
  filledDays,
  filledFrom,
  filledNow as now,
  filledZone as zone,
} from './fill-usage.ts';
import { partitionsSince, startPostgres } from './postgres.ts';
import type { PostgresServer } from '../tests/suites/postgres/server.ts';

const dayMs = 24 * hourMs;
const times = 21;

interface Case {
  readonly name: string;
  run(db: Kysely<Database>, accountId: string): Promise<unknown>;
}

const report =
  (width: BucketWidth, span: number, by: readonly ReportDimension[], timeZone = zone, filter = {}) =>
  (db: Kysely<Database>, accountId: string) => {
    const begin = width === '1d' ? startOfDay(timeZone, now - span) : now - span;
    const bounds = bucketBounds(timeZone, width, { from: begin, to: now }, 1440);
    return reportUsage(db, { accountId, timeZone, bounds, by, ...filter });
  };

const latency = (span: number, by: readonly LatencyDimension[]) => (db: Kysely<Database>, accountId: string) =>
  reportLatency(db, { accountId, from: now - span, to: now, by });

const cases: readonly Case[] = [
  { name: '30 days by day and model', run: report('1d', 30 * dayMs, ['model']) },
  { name: '30 days by day, model and key', run: report('1d', 30 * dayMs, ['model', 'key']) },
  { name: '30 days by day and label', run: report('1d', 30 * dayMs, ['tag']) },
  { name: '30 days by day, one label', run: report('1d', 30 * dayMs, [], zone, { tag: 'tag-3' }) },
  { name: '30 days by day and tier', run: report('1d', 30 * dayMs, ['tier']) },
  {
    name: '30 days by day, failed requests by model',
    run: report('1d', 30 * dayMs, ['model'], zone, { ending: 'failed' }),
  },
  { name: 'latencies of 30 days by model', run: latency(30 * dayMs, ['model']) },
  { name: 'latencies of 24 hours', run: latency(dayMs, []) },
  { name: '90 days by day and model', run: report('1d', 89 * dayMs, ['model']) },
  { name: '7 days by hour and model, UTC', run: report('1h', 7 * dayMs, ['model'], 'UTC') },
  { name: '24 hours by hour and model, zone at :30', run: report('1h', dayMs, ['model']) },
  { name: '7 days by hour and model, zone at :30', run: report('1h', 7 * dayMs, ['model']) },
  { name: '60 minutes by minute and model', run: report('1m', hourMs, ['model']) },
  { name: 'a day by minute', run: report('1m', dayMs, []) },
  {
    name: '30 days by day and model, just after a change of zone to another at :45',
    run: report('1d', 30 * dayMs, ['model'], 'Asia/Kathmandu'),
  },
  {
    name: 'what a statement reads of a month',
    run: (db, accountId) =>
      readLedgerSpan(rowsOn(db), {
        accountId,
        from: startOfUtcMonth(filledFrom, 1),
        to: startOfUtcMonth(filledFrom, 2),
      }),
  },
  {
    name: 'spend of a key since 30 days',
    run: (db, accountId) => spendSince(db, { accountId, from: now - 30 * dayMs, to: now, by: 'key', id: 'key_2' }),
  },
  {
    name: 'spend of a label since 30 days',
    run: (db, accountId) => spendSince(db, { accountId, from: now - 30 * dayMs, to: now, by: 'tag', id: 'tag-3' }),
  },
  { name: '50 newest requests', run: (db, accountId) => listGenerations(rowsOn(db), { accountId, limit: 50 }) },
  {
    name: 'credit: balance, held, spent',
    run: (db, accountId) => creditSummary(db, { accountId, now }),
  },
  { name: 'movements of credit, one page', run: (db, accountId) => listLedger(db, { accountId, limit: 21, now }) },
  {
    name: 'movements of credit, a page of 60 days ago',
    run: (db, accountId) => listLedger(db, { accountId, limit: 21, now, after: { usageFrom: now - 60 * dayMs } }),
  },
  {
    name: 'top-ups with the balance after each',
    run: (db, accountId) => listLedger(db, { accountId, limit: 21, now, kind: 'topup' }),
  },
  {
    name: 'what keys have spent: ever, today, this week and month',
    run: (db, accountId) =>
      spendOfKeys(db, {
        accountId,
        since: [0, ...(['day', 'week', 'month'] as const).map((period) => periodOf(period, now).startsAt)],
        to: now,
      }),
  },
  {
    name: 'when 20 keys were last used, 15 of them never',
    run: (db, accountId) =>
      lastUseOfKeys(db, { accountId, keyIds: Array.from({ length: 20 }, (_, index) => `key_${index}`) }),
  },
  {
    name: 'requests with a filter that fits none, one page',
    run: (db, accountId) => listGenerations(rowsOn(db), { accountId, errorCode: 'none', limit: 50 }),
  },
];

/** Latencies of one case for one account. */
interface Reading {
  readonly p50Ms: number;
  readonly p95Ms: number;
  /** Processor time of our process and of the server's, once. */
  readonly cpuMs: number;
}

/** For each case, the readings of the accounts. */
type Readings = readonly (readonly Reading[])[];

/** All readings of one store. */
interface Measurement {
  readonly store: string;
  /** What was in it. */
  readonly filled: string;
  readonly readings: Readings;
  readonly load: number;
  /** By each case for the largest account, where the store counts them. */
  readonly rowsRead: readonly number[];
}

/** How long the reports of the console take on many rows: 1000 accounts, of which the largest has a tenth. Resolves with a table. */
export async function measureReports(options: {
  readonly root: string;
  readonly rows: number;
  readonly stores: readonly ('sqlite' | 'postgres')[];
  readonly folder: string | undefined;
}): Promise<string> {
  const { root, rows, stores } = options;
  const measurements: Measurement[] = [];
  if (stores.includes('sqlite')) {
    const folder = mkdtempSync(join(options.folder ?? os.tmpdir(), 'tokenhouse-bench-'));
    try {
      measurements.push(await onSqlite(join(folder, 'reports.db'), rows));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
    say(tableOf(measurements));
  }
  if (stores.includes('postgres')) {
    const server = await startPostgres(root);
    try {
      measurements.push(await onPostgres(server, rows));
    } finally {
      await server.dispose();
    }
  }
  return [
    tableOf(measurements),
    '',
    ...measurements.map(({ filled }) => `- ${filled}`),
    ...measurements.map(({ store, load }) => `- ${store}: load average ${load.toFixed(1)} when it had been measured`),
    `- ${rows.toLocaleString('en')} rows of usage over ${filledDays} days, ${filledAccounts} accounts, 5 keys, 8 models, a label on every fourth, a top-up a day; the largest account has a tenth; its day is that of ${zone}`,
    `- milliseconds p50 / p95 of ${times}, the first left out, and in parentheses the median of processor time, of our process and of the server's that answers; the largest account, and one of the middle`,
    "- rows: of tables, that the largest account's report reads, as PostgreSQL counts them",
  ].join('\n');
}

async function onSqlite(path: string, rows: number): Promise<Measurement> {
  const empty = kyselyOn(openConnection(path));
  await migrate(empty, 'sqlite');
  const run = (text: string) => sql.raw(text).execute(empty);
  for (const pragma of ['synchronous = off', 'cache_size = -1000000', 'temp_store = memory'])
    await run(`pragma ${pragma}`);
  const filled = await fillUsage({ name: 'SQLite', dialect: 'sqlite', db: empty, run, rows });
  await empty.destroy();
  const db = kyselyOn(openConnection(path));
  const readings = await measured(db, ownProcessor);
  await db.destroy();
  return { store: 'SQLite', filled, readings, load: os.loadavg()[0]!, rowsRead: [] };
}

async function onPostgres(server: PostgresServer, rows: number): Promise<Measurement> {
  const url = await server.createDatabase();
  const db = kyselyOnPostgres({ url }, 1);
  await migrate(db, 'postgres');
  await partitionsSince(db, filledFrom);
  const settings = `set work_mem = '512MB'; set maintenance_work_mem = '512MB'; set synchronous_commit = off; set jit = off`;
  const filled = await fillUsage({
    name: 'PostgreSQL',
    dialect: 'postgres',
    db,
    // A vacuum stands alone.
    run: (text) => server.sql(url, text.startsWith('vacuum') ? text : `${settings}; ${text}`),
    rows,
  });
  const measurement = await measuredOnPostgres(db, filled);
  await db.destroy();
  return measurement;
}

async function measuredOnPostgres(db: Kysely<Database>, filled: string): Promise<Measurement> {
  const rowsRead = await countedRows(db);
  const { rows: backend } = await sql<{ pid: bigint }>`select pg_backend_pid() as pid`.execute(db);
  const pid = Number(backend[0]!.pid);
  const readings = await measured(db, () => ownProcessor() + processorMs(pid));
  return { store: 'PostgreSQL', filled, readings, load: os.loadavg()[0]!, rowsRead };
}

/** The table of a database that `fillUsage` has filled. */
export const reportsOn = async (db: Kysely<Database>): Promise<string> => tableOf([await measuredOnPostgres(db, '')]);

function ownProcessor(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Finer than ticks: the kernel's scheduler counts in nanoseconds. */
const processorMs = (pid: number): number => Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6;

const measuredAccounts = ['acct_0', 'acct_500'] as const;

async function measured(db: Kysely<Database>, processor: () => number): Promise<Readings> {
  const results: Reading[][] = [];
  for (const { name, run } of cases) {
    say(name);
    const ofCase: Reading[] = [];
    for (const accountId of measuredAccounts) {
      const took: number[] = [];
      const used: number[] = [];
      for (let time = 0; time <= times; time++) {
        const [begun, before] = [performance.now(), processor()];
        await run(db, accountId);
        took.push(performance.now() - begun);
        used.push(processor() - before);
      }
      const quantile = (all: readonly number[], share: number): number => {
        const sorted = all.slice(1).sort((a, b) => a - b);
        return sorted[Math.floor(sorted.length * share)]!;
      };
      ofCase.push({ p50Ms: quantile(took, 0.5), p95Ms: quantile(took, 0.95), cpuMs: quantile(used, 0.5) });
    }
    results.push(ofCase);
  }
  return results;
}

/** Rows of tables that each case reads for the largest account. */
async function countedRows(db: Kysely<Database>): Promise<readonly number[]> {
  const counter = async (): Promise<number> => {
    await sql`select pg_stat_force_next_flush()`.execute(db);
    const { rows } = await sql<{ n: bigint }>`
      select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) as n from pg_stat_user_tables`.execute(db);
    return Number(rows[0]!.n);
  };
  const counts: number[] = [];
  for (const { run } of cases) {
    const before = await counter();
    await run(db, measuredAccounts[0]);
    counts.push((await counter()) - before);
  }
  return counts;
}

function tableOf(measurements: readonly Measurement[]): string {
  const rowsRead = measurements.find((one) => one.rowsRead.length > 0)?.rowsRead ?? [];
  const cell = ({ p50Ms, p95Ms, cpuMs }: Reading): string =>
    `${p50Ms.toFixed(1)} / ${p95Ms.toFixed(1)} (${cpuMs.toFixed(1)})`;
  return [
    `| | rows | ${measurements.flatMap(({ store }) => [`${store}, largest`, `${store}, middle`]).join(' | ')} |`,
    `|-|-:|${'-:|'.repeat(measurements.length * 2)}`,
    ...cases.map(({ name }, index) => {
      const cells = measurements.flatMap(({ readings }) => readings[index]!.map(cell));
      return `| ${name} | ${rowsRead[index]?.toLocaleString('en') ?? ''} | ${cells.join(' | ')} |`;
    }),
  ].join('\n');
}
