import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { sql, type Kysely } from 'kysely';
import type { Database } from '../src/store/database.ts';
import { listGenerations } from '../src/store/generation-queries.ts';
import { readBooks } from '../src/store/invoice-queries.ts';
import { migrate } from '../src/store/migrations/migrate.ts';
import { kyselyOnPostgres } from '../src/store/postgres/dialect.ts';
import { makePartitions } from '../src/store/postgres/partitions.ts';
import { reportUsage, spendSince, type ReportDimension } from '../src/store/report-queries.ts';
import { openConnection } from '../src/store/sqlite/connection.ts';
import { kyselyOn } from '../src/store/sqlite/dialect.ts';
import { bucketBounds, hourMs, startOfDay, type BucketWidth } from '../src/store/time-zone.ts';
import { PostgresServer } from '../tests/suites/postgres/server.ts';
import { say } from './command.ts';
import { Problem } from './problem.ts';

const dayMs = 24 * hourMs;
const days = 90;
/** The first of July, so that three months of partitions have rows. */
const from = Date.UTC(2026, 6, 1);
const to = from + days * dayMs;
/** Twenty minutes into an hour: the last hours are open, as they are whenever somebody looks. */
const now = to - 40 * 60_000;
const zone = 'Asia/Kolkata';
const zoneOffsetMs = 5.5 * hourMs;
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

const cases: readonly Case[] = [
  { name: '30 days by day and model', run: report('1d', 30 * dayMs, ['model']) },
  { name: '30 days by day, model and key', run: report('1d', 30 * dayMs, ['model', 'key']) },
  { name: '30 days by day and label', run: report('1d', 30 * dayMs, ['tag']) },
  { name: '30 days by day, one label', run: report('1d', 30 * dayMs, [], zone, { tag: 'tag-3' }) },
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
    run: (db, accountId) => readBooks(db, { accountId, from: Date.UTC(2026, 7), to: Date.UTC(2026, 8) }),
  },
  {
    name: 'spend of a key since 30 days',
    run: (db, accountId) => spendSince(db, { accountId, from: now - 30 * dayMs, to: now, by: 'key', id: 'key_2' }),
  },
  {
    name: 'spend of a label since 30 days',
    run: (db, accountId) => spendSince(db, { accountId, from: now - 30 * dayMs, to: now, by: 'tag', id: 'tag-3' }),
  },
  { name: '50 newest requests', run: (db, accountId) => listGenerations(db, { accountId, limit: 50 }) },
  {
    name: 'requests with a filter that fits none, one page',
    run: (db, accountId) => listGenerations(db, { accountId, errorCode: 'none', limit: 50 }),
  },
];

/** How long the reports of the console take on many rows: 1000 accounts, of which the largest has a tenth. Resolves with a table. */
export async function measureReports(options: {
  readonly root: string;
  readonly rows: number;
  readonly folder: string | undefined;
}): Promise<string> {
  const { root, rows } = options;
  const folder = mkdtempSync(join(options.folder ?? os.tmpdir(), 'tokenhouse-bench-'));
  const results = new Map<string, readonly (readonly number[])[]>();
  let sizes = '';
  try {
    const file = kyselyOn(openConnection(join(folder, 'reports.db')));
    await sql`pragma synchronous = off`.execute(file); // for the filling alone: nothing is written after it
    await migrate(file, 'sqlite');
    sizes += await filled('SQLite', file, 'sqlite', rows);
    results.set('SQLite', await measured(file));
    say(tableOf(results));
    await file.destroy();
    rmSync(join(folder, 'reports.db'), { force: true });

    const server = await startServer(root);
    try {
      const db = kyselyOnPostgres({ url: await server.createDatabase() }, 1);
      await migrate(db, 'postgres');
      for (const month of [0, 1, 2, 3]) await makePartitions(db, from + month * 30 * dayMs);
      sizes += await filled('PostgreSQL', db, 'postgres', rows);
      results.set('PostgreSQL', await measured(db));
      await db.destroy();
    } finally {
      await server.dispose();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return `${tableOf(results)}\n\n${sizes}- ${rows.toLocaleString('en')} rows of usage over ${days} days, ${accounts} accounts, 5 keys, 8 models, a label on every fourth; the largest account has a tenth; its day is that of ${zone}\n- milliseconds p50 / p95 of ${times}, the first left out; the largest account, and one of the middle`;
}

async function startServer(root: string): Promise<PostgresServer> {
  const module = pathToFileURL(join(root, 'scripts', 'postgres.mjs')).href;
  const { postgresBinaries } = (await import(module)) as { postgresBinaries(): string };
  try {
    process.env['TOKENHOUSE_TEST_POSTGRES'] = postgresBinaries();
  } catch (error) {
    throw new Problem('There are no programs of a PostgreSQL server.', (error as Error).message);
  }
  return await PostgresServer.start();
}

const accounts = 1000;
const rowsAtOnce = 500_000;
const rollUpDays = 10;

/** Rows in bulk, in the order of their keys, then what the jobs would have added up of them. */
async function filled(
  name: string,
  db: Kysely<Database>,
  dialect: 'sqlite' | 'postgres',
  rows: number,
): Promise<string> {
  const isSqlite = dialect === 'sqlite';
  const begun = performance.now();
  const run = (text: string) => sql.raw(text).execute(db);
  for (let id = 0; id < accounts; id++)
    await run(
      `insert into account (id, kind, name, status, available, credit_limit, version, created_at, time_zone) values ('acct_${id}', 0, '', 'active', 0, 0, 1, 0, '${zone}')`,
    );
  if (isSqlite) for (const index of ['account', 'client_id']) await run(`drop index usage_${index}`);
  const stepMs = (to - from) / rows;
  for (let at = 0; at < rows; at += rowsAtOnce) {
    say(`${name}: ${at.toLocaleString('en')} rows`);
    const last = Math.min(at + rowsAtOnce, rows) - 1;
    // A number of 31 bits from the row's own: the same on both, and spread well enough.
    const hash = (salt: number) => `((n * 1103515245 + ${salt}) % 2147483647)`;
    const u = `(${hash(12345)} / 2147483647.0)`;
    const whole = (text: string) => (isSqlite ? `cast(${text} as integer)` : `floor(${text})::bigint`);
    const time = `(${from} + ${whole(`n * ${stepMs}`)})`;
    const id = isSqlite
      ? `unhex(printf('%012x', ${time}) || '7' || printf('%019x', n))`
      : `decode(lpad(to_hex(${time}), 12, '0') || '7' || lpad(to_hex(n), 19, '0'), 'hex')`;
    const numbers = isSqlite
      ? `with recursive numbers(n) as (select ${at} union all select n + 1 from numbers where n < ${last})`
      : `with numbers as (select n from generate_series(${at}::bigint, ${last}::bigint) as n)`;
    await run(`
      ${isSqlite ? `insert into usage ${columns} ${numbers}` : `${numbers} insert into usage ${columns}`}
      select ${id}, 'req_0', 'acct_' || ${whole(`${u} * ${u} * ${u} * ${accounts}`)}, 'key_' || (${hash(7)} % 5),
        'model-' || (${hash(99)} % 8), 'chat', 1, ${time}, ${time}, 1800, 600, 200, 50, 1000, 0, 2000, 'finished', 'stop', 0,
        5000000, 20000000, 2500000, 'bench', 80, 900, case when ${hash(3)} % 4 = 0 then '["tag-' || (${hash(31)} % 20) || '"]' end
      from numbers`);
  }
  if (isSqlite) {
    await run('create index usage_account on usage (account_id, ended_at)');
    await run('create index usage_client_id on usage (account_id, client_id) where client_id is not null');
  } else await run('vacuum analyze usage');
  say(`${name}: roll-ups`);
  const sums =
    'count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), sum(reasoning_tokens), sum(cost), sum(uncharged)';
  const hour = `ended_at - ended_at % ${hourMs}`;
  const tag = 'substr(tags, 3, length(tags) - 4)';
  const day = (time: string) => `${time} - (${time} + ${zoneOffsetMs}) % ${dayMs}`;
  const until = startOfDay(zone, now);
  const sumNames = 'requests, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, cost, uncharged';
  // The zone is at half past: its days are cut out of the rows themselves. Some days at a time, because a statement has an end.
  for (let begin = startOfDay(zone, from); begin < to + dayMs; begin += rollUpDays * dayMs) {
    const spanOf = (at: number) => `ended_at >= ${at} and ended_at < ${at + rollUpDays * dayMs}`;
    for (const [time, at, where] of [
      ['hour', hour, spanOf(begin - hourMs / 2)],
      ['day', day('ended_at'), `${spanOf(begin)} and ended_at < ${until}`],
    ] as const) {
      await run(
        `insert into usage_${time} (account_id, ${time}, model_id, key_id, ${sumNames})
         select account_id, ${at}, model_id, key_id, ${sums} from usage where ${where} group by 1, 2, 3, 4`,
      );
      await run(
        `insert into usage_tag_${time} (account_id, ${time}, tag, model_id, key_id, ${sumNames})
         select account_id, ${at}, ${tag}, model_id, key_id, ${sums} from usage where tags is not null and ${where} group by 1, 2, 3, 4, 5`,
      );
    }
  }
  await run(
    `insert into usage_days (account_id, time_zone, until) select id, time_zone, ${until} from account where kind = 0`,
  );
  await run(isSqlite ? 'analyze' : 'vacuum analyze');
  const counts = [];
  for (const table of ['usage_hour', 'usage_tag_hour', 'usage_day', 'usage_tag_day'] as const) {
    const { rows: counted } = await sql<{ n: bigint }>`select count(*) as n from ${sql.table(table)}`.execute(db);
    counts.push(`${table} ${Number(counted[0]!.n).toLocaleString('en')}`);
  }
  return `- ${name}: ${counts.join(', ')} rows; filled in ${Math.round((performance.now() - begun) / 1000)} s\n`;
}

const columns = `(request_id, public_id, account_id, key_id, model_id, api, streamed, started_at, ended_at, prompt_tokens, cached_tokens,
  completion_tokens, reasoning_tokens, cost, uncharged, hold, ending, finish, counted, input_price, output_price, cache_read_price,
  backend, first_token_ms, total_ms, tags)`;

const measuredAccounts = ['acct_0', 'acct_500'] as const;

/** Milliseconds of each case, for each account. */
async function measured(db: Kysely<Database>): Promise<readonly (readonly number[])[]> {
  const results: number[][] = [];
  for (const { name, run } of cases) {
    say(name);
    const ofCase: number[] = [];
    for (const accountId of measuredAccounts) {
      const took: number[] = [];
      for (let time = 0; time <= times; time++) {
        const begun = performance.now();
        await run(db, accountId);
        took.push(performance.now() - begun);
      }
      const sorted = took.slice(1).sort((a, b) => a - b);
      ofCase.push(sorted[Math.floor(sorted.length / 2)]!, sorted[Math.floor(sorted.length * 0.95)]!);
    }
    results.push(ofCase);
  }
  return results;
}

function tableOf(results: ReadonlyMap<string, readonly (readonly number[])[]>): string {
  const stores = [...results.keys()];
  const cell = (p50: number, p95: number): string => `${p50.toFixed(1)} / ${p95.toFixed(1)}`;
  return [
    `| | ${stores.flatMap((store) => [`${store}, largest`, `${store}, middle`]).join(' | ')} |`,
    `|-|${'-:|'.repeat(stores.length * 2)}`,
    ...cases.map(({ name }, index) => {
      const cells = stores.flatMap((store) => {
        const [a, b, c, d] = results.get(store)![index]!;
        return [cell(a!, b!), cell(c!, d!)];
      });
      return `| ${name} | ${cells.join(' | ')} |`;
    }),
  ].join('\n');
}
