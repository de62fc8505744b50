import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { uuidMaker } from '../src/platform/ids/uuid.ts';
import { systemAccounts, type AccountLedger } from '../src/store/ledger.ts';
import { openPostgresStore } from '../src/store/postgres/store.ts';
import { openSqliteStore } from '../src/store/sqlite/store.ts';
import { verifyLedger } from '../src/store/verify/verify.ts';
import { kyselyOnPostgres } from '../src/store/postgres/dialect.ts';
import { openReadOnly } from '../src/store/sqlite/dialect.ts';
import type { PostgresServer } from '../tests/suites/postgres/server.ts';
import { say } from './command.ts';
import { startPostgres } from './postgres.ts';
import { processorSeconds } from './processes.ts';
import type { SettleJob, SettleReading } from './settle-process.ts';
import { median } from './table.ts';

const accountId = 'acct_benchmark00';
const inFlight = 64;

interface Case {
  readonly name: string;
  readonly store: 'sqlite' | 'postgres';
  readonly processes: number;
}

const cases: readonly Case[] = [
  { name: 'SQLite', store: 'sqlite', processes: 1 },
  { name: 'PostgreSQL, one hot account, 1 process', store: 'postgres', processes: 1 },
  { name: 'PostgreSQL, one hot account, 2 processes', store: 'postgres', processes: 2 },
];

interface Result {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly batch: number;
  readonly mainUs: number;
  readonly ledgerUs: number;
  readonly otherUs: number;
  readonly serverUs: number;
}

/**
 * How many settlements the ledger takes, and what one costs: a closed loop in the ledger's own process, on its real classes,
 * on one account. Every round is a new database, whose ledger is verified afterwards. Resolves with a table.
 */
export async function settle(options: {
  readonly root: string;
  readonly rounds: number;
  readonly seconds: number;
  readonly folder: string | undefined;
}): Promise<string> {
  const { root, rounds, seconds } = options;
  const folder = mkdtempSync(join(options.folder ?? os.tmpdir(), 'tokenhouse-bench-'));
  const server = await startPostgres(root);
  const results = new Map<Case, Result[]>(cases.map((one) => [one, []]));
  try {
    for (let round = 1; round <= rounds; round++) {
      for (const one of cases) {
        say(`round ${round} of ${rounds}: ${one.name}`);
        const job = { accountId, inFlight, seconds };
        const result =
          one.store === 'sqlite'
            ? await onSqlite({ ...job, place: { file: join(folder, `${round}.db`) } })
            : await onPostgres(server, { ...job, place: { url: await server.createDatabase() } }, one.processes);
        results.get(one)!.push(result);
      }
    }
  } finally {
    await server.dispose();
    rmSync(folder, { recursive: true, force: true });
  }
  return tableOf(results);
}

async function onSqlite(job: SettleJob & { readonly place: { readonly file: string } }): Promise<Result> {
  const { file } = job.place;
  const store = await openSqliteStore({
    file,
    onFatal: (error) => {
      throw error;
    },
  });
  await fund(store.ledger);
  await store.close();
  const [reading] = await played([job]);
  const db = openReadOnly(file);
  const { differences } = await verifyLedger(db, { owned: false });
  await db.destroy();
  if (differences.length > 0) throw new Error('the ledger is inconsistent');
  return resultOf([reading!], 0);
}

type OnPostgres = SettleJob & { readonly place: { readonly url: string } };

async function onPostgres(server: PostgresServer, job: OnPostgres, processes: number): Promise<Result> {
  const result = await settledOn(server, job, processes);
  const db = kyselyOnPostgres({ url: job.place.url }, 1);
  const { differences } = await verifyLedger(db, { owned: false });
  await db.destroy();
  if (differences.length > 0) throw new Error('the ledger is inconsistent');
  return result;
}

async function settledOn(server: PostgresServer, job: OnPostgres, processes: number): Promise<Result> {
  const store = await openPostgresStore({ address: { url: job.place.url }, shown: 'the benchmark' });
  await fund(store.ledger);
  await store.close();
  let usedBefore = 0;
  let usedAfter = 0;
  const readings = await played(
    Array.from({ length: processes }, () => job),
    () => (usedBefore = processorSeconds(server.pid)),
    () => (usedAfter = processorSeconds(server.pid)),
  );
  return resultOf(readings, usedAfter - usedBefore);
}

/** The table of one process at a database with rows, whose ledger it leaves for others to verify. */
export async function settleBeside(
  server: PostgresServer,
  { name, url, seconds }: { readonly name: string; readonly url: string; readonly seconds: number },
): Promise<string> {
  const result = await settledOn(server, { accountId, inFlight, seconds, place: { url } }, 1);
  return tableOf(new Map([[{ name }, [result]]]));
}

async function fund(ledger: AccountLedger): Promise<void> {
  const newId = uuidMaker();
  const at = Date.now();
  await ledger.createAccount({ id: accountId, name: 'hot', creditLimitMicrocents: 0n, at, changeId: newId() });
  await ledger.transfer({
    id: newId(),
    debitAccount: systemAccounts.promo,
    creditAccount: accountId,
    amountMicrocents: 10n ** 16n,
    kind: 'grant',
    idempotencyKey: 'benchmark',
    reference: null,
    by: 'benchmark',
    at,
  });
}

/** Each job in a process of its own; all begin together. */
async function played(
  jobs: readonly SettleJob[],
  begins = (): void => {},
  ends = (): void => {},
): Promise<readonly SettleReading[]> {
  const program = fileURLToPath(new URL('./settle-process.js', import.meta.url));
  const children = jobs.map(() => fork(program, { serialization: 'advanced' }));
  try {
    await Promise.all(
      children.map(async (child, index) => {
        child.send(jobs[index]!);
        await answer(child);
      }),
    );
    // They warm up meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    begins();
    const answers = children.map((child) => answer(child));
    for (const child of children) child.send('go');
    const readings = await Promise.all(answers);
    ends();
    for (const child of children) if (child.exitCode === null) await once(child, 'exit');
    return readings as readonly SettleReading[];
  } finally {
    for (const child of children) child.kill('SIGKILL');
  }
}

function answer(child: ChildProcess): Promise<unknown> {
  return new Promise((resolve, reject) => {
    child.once('message', resolve);
    child.once('exit', (code, signal) => reject(new Error(`a process ended with ${signal ?? code}`)));
  });
}

function resultOf(readings: readonly SettleReading[], serverSeconds: number): Result {
  const sum = (of: (reading: SettleReading) => number): number =>
    readings.reduce((total, reading) => total + of(reading), 0);
  const settlements = sum((reading) => reading.settlements);
  const latencies = Float64Array.from(readings.flatMap(({ latenciesMs }) => [...latenciesMs])).sort();
  const quantile = (share: number): number => latencies[Math.floor((latencies.length - 1) * share)]!;
  return {
    perSecond: sum((reading) => reading.settlements / reading.seconds),
    p50Ms: quantile(0.5),
    p99Ms: quantile(0.99),
    batch: settlements / sum((reading) => reading.batches),
    mainUs: sum((reading) => reading.mainCpuUs) / settlements,
    ledgerUs: sum((reading) => reading.ledgerCpuUs) / settlements,
    otherUs: sum((reading) => reading.otherCpuUs) / settlements,
    serverUs: (serverSeconds * 1e6) / settlements,
  };
}

function tableOf(results: ReadonlyMap<Pick<Case, 'name'>, readonly Result[]>): string {
  const columns: readonly (readonly [string, (result: Result) => number, number])[] = [
    ['settlements/s', ({ perSecond }) => perSecond, 0],
    ['p50 ms', ({ p50Ms }) => p50Ms, 2],
    ['p99 ms', ({ p99Ms }) => p99Ms, 1],
    ['in a transaction', ({ batch }) => batch, 0],
    ['CPU µs each: main thread', ({ mainUs }) => mainUs, 1],
    ["ledger's thread", ({ ledgerUs }) => ledgerUs, 1],
    ['GC and others', ({ otherUs }) => otherUs, 1],
    ['our process', ({ mainUs, ledgerUs, otherUs }) => mainUs + ledgerUs + otherUs, 1],
    ['server', ({ serverUs }) => serverUs, 1],
  ];
  const lines = [...results].map(([{ name }, all]) => {
    const cells = columns.map(([, of, digits]) => {
      const values = all.map(of).toSorted((a, b) => a - b);
      const text = (value: number): string =>
        value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
      if (Math.max(...values) === 0) return '–';
      const range = values.length > 1 ? ` (${text(values[0]!)}–${text(values.at(-1)!)})` : '';
      return `${text(median(values))}${range}`;
    });
    return `| ${name} | ${cells.join(' | ')} |`;
  });
  return [
    `| ${inFlight} at a time in each process | ${columns.map(([title]) => title).join(' | ')} |`,
    `|-|${columns.map(() => '-:').join('|')}|`,
    ...lines,
  ].join('\n');
}
