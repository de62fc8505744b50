/** Many rows of usage, written in bulk, and what the jobs would have added up of them. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../src/store/database.ts';
import { hourMs, quarterMs, startOfDay } from '../src/platform/calendar/time-zone.ts';
import { quarterColumns, quarters, sumColumns } from '../src/store/reports/usage-expressions.ts';
import { completeBefore } from '../src/store/reports/roll-ups.ts';
import { latencyBounds } from '../src/store/reports/latency-buckets.ts';
import { say } from './command.ts';

const dayMs = 24 * hourMs;
export const filledDays = 90;
/** The last hours are open, as they are whenever somebody looks. */
const openMs = 40 * 60_000;
export const filledFrom = Math.floor(Date.now() / hourMs) * hourMs - filledDays * dayMs;
/** Twenty minutes into an hour. */
export const filledNow = filledFrom + filledDays * dayMs - openMs;
export const filledZone = 'Asia/Kolkata';
const zoneOffsetMs = 5.5 * hourMs;
export const filledAccounts = 1000;

const rowsAtOnce = 500_000;
const rollUpDays = 10;
/** Of every request. */
const [firstTokenMs, totalMs] = [80, 900];

export interface Filling {
  readonly name: string;
  readonly dialect: 'sqlite' | 'postgres';
  /** To look at what has become of it. */
  readonly db: Kysely<Database>;
  /** Takes as long as it takes. */
  run(text: string): Promise<unknown>;
  readonly rows: number;
  /** A power of ten, of which the largest account has a tenth of the rows (default: `filledAccounts`). */
  readonly accounts?: number;
  /** Requests of one account with one key and one model, one after the other (default: 1). */
  readonly burst?: number;
  /** An account that is there already, in the place of the largest. */
  readonly largestAccount?: string;
}

/** Resolves with a line that says how much it was. */
export async function fillUsage({ name, dialect, db, run, rows, ...which }: Filling): Promise<string> {
  const { accounts = filledAccounts, burst = 1, largestAccount } = which;
  const from = filledFrom;
  const to = from + filledDays * dayMs;
  const isSqlite = dialect === 'sqlite';
  const accountOf = (number: string): string =>
    largestAccount === undefined
      ? `'acct_' || ${number}`
      : `case ${number} when 0 then '${largestAccount}' else 'acct_' || ${number} end`;
  const begun = performance.now();
  const numbers = (first: number, last: number) =>
    isSqlite
      ? `with recursive numbers(n) as (select ${first} union all select n + 1 from numbers where n < ${last})`
      : `with numbers as (select n from generate_series(${first}::bigint, ${last}::bigint) as n)`;
  const insert = (into: string, first: number, last: number) =>
    isSqlite ? `insert into ${into} ${numbers(first, last)}` : `${numbers(first, last)} insert into ${into}`;
  await run(
    `${insert('account (id, kind, name, status, available, credit_limit, version, created_at, time_zone)', largestAccount === undefined ? 0 : 1, accounts - 1)}
     select 'acct_' || n, 0, '', 'active', 0, 0, 1, 0, '${filledZone}' from numbers`,
  );

  const indexes = await indexesOfUsage(db, dialect);
  for (const index of indexes) await run(`drop index ${index.name}`);
  const stepMs = (to - from) / rows;
  for (let at = 0; at < rows; at += rowsAtOnce) {
    say(`${name}: ${at.toLocaleString('en')} rows`);
    const last = Math.min(at + rowsAtOnce, rows) - 1;
    // A number of 31 bits from the row's own: the same on both, and spread well enough.
    const hash = (salt: number, of = 'n') => `((${of} * 1103515245 + ${salt}) % 2147483647)`;
    const ofBurst = (salt: number) => hash(salt, burst === 1 ? 'n' : `(n / ${burst})`);
    const u = `(${ofBurst(12345)} / 2147483647.0)`;
    const whole = (text: string) => (isSqlite ? `cast(${text} as integer)` : `floor(${text})::bigint`);
    const time = `(${from} + ${whole(`n * ${stepMs}`)})`;
    const id = isSqlite
      ? `unhex(printf('%012x', ${time}) || '7' || printf('%019x', n))`
      : `decode(lpad(to_hex(${time}), 12, '0') || '7' || lpad(to_hex(n), 19, '0'), 'hex')`;
    await run(`
      ${insert(`usage ${columns}`, at, last)}
      select ${id}, 'req_0', ${accountOf(whole([...Array.from({ length: Math.log10(accounts) }, () => u), accounts].join(' * ')))}, 'key_' || (${ofBurst(7)} % 5),
        'model-' || (${ofBurst(99)} % 8), 'chat', 1, ${time}, ${time}, 1800, 600, 200, 50, 11500, 0, 12000, 'finished', 'stop', 0,
        5000000, 20000000, 2500000, 'bench', ${firstTokenMs}, ${totalMs}, case when ${ofBurst(3)} % 4 = 0 then '["tag-' || (${ofBurst(31)} % 20) || '"]' end
      from numbers`);
  }
  say(`${name}: indexes`);
  for (const index of indexes) await run(index.definition);
  if (!isSqlite) await run('vacuum analyze usage');

  const transferId = isSqlite ? `unhex(printf('%032x', n))` : `decode(lpad(to_hex(n), 32, '0'), 'hex')`;
  const credit = (first: number, last: number, time: string) =>
    run(
      `${insert('transfer (id, debit_account, credit_account, amount, kind, idempotency_key, "by", at)', first, last)}
     select ${transferId}, 'house_cash', ${accountOf(`(n % ${accounts})`)}, 10000000000, 'topup', 'fill:' || n, 'bench', ${time} from numbers`,
    );
  await credit(0, accounts - 1, String(from));
  // The busiest accounts have one a day.
  const halfHourMs = hourMs / 2;
  for (let day = 1; day < filledDays; day++)
    await credit(
      day * accounts,
      day * accounts + Math.min(accounts, filledAccounts) - 1,
      `${from + day * dayMs} + (n % 24) * ${hourMs} + ${halfHourMs} + n % 60000`,
    );

  const until = startOfDay(filledZone, to - openMs);
  for (let begin = startOfDay(filledZone, from); begin < to + dayMs; begin += rollUpDays * dayMs) {
    say(`${name}: sums since ${new Date(begin).toISOString()}`);
    const end = begin + rollUpDays * dayMs;
    // The zone is at half past.
    await run(rollUp('usage_hour', begin - hourMs / 2, end - hourMs / 2, isSqlite));
    await run(rollUp('usage_tag_hour', begin - hourMs / 2, end - hourMs / 2, isSqlite));
    await run(rollUp('usage_day', begin, Math.min(end, until), isSqlite));
    await run(rollUp('usage_tag_day', begin, Math.min(end, until), isSqlite));
  }
  await run(
    `insert into usage_days (account_id, time_zone, until) select id, time_zone, ${until} from account where kind = 0`,
  );
  say(`${name}: sums by tier`);
  const complete = completeBefore(to - openMs);
  const sums = sumColumns.join(', ');
  await run(`insert into usage_tier_hour (account_id, hour, model_id, key_id, tier, ending, ${sums})
    select account_id, hour, model_id, key_id, '', 'finished', ${sums} from usage_hour where hour < ${complete} order by 2, 1`);
  const range = (ms: number) => latencyBounds.findIndex((bound) => ms < bound);
  await run(`insert into usage_latency_day (account_id, day, model_id, key_id, tier, ending, counts)
    select account_id, hour - hour % ${dayMs}, model_id, key_id, '', 'finished',
      '{"f${range(firstTokenMs)}":' || sum(requests) || ',"t${range(totalMs)}":' || sum(requests) || '}'
    from usage_hour where hour < ${Math.floor(complete / dayMs) * dayMs}
    group by 1, 2, 3, 4 order by 2, 1`);
  say(`${name}: balances`);
  await run(`update account set available = movements.amount from (
    select id, sum(amount) as amount from (
      select credit_account as id, amount from transfer
      union all select debit_account, -amount from transfer
      union all select account_id, -cost from usage_hour
    ) as all_of_them group by id
  ) as movements where movements.id = account.id`);
  await run(isSqlite ? 'analyze' : 'vacuum analyze');
  const counts = [];
  for (const table of [
    'usage_hour',
    'usage_tag_hour',
    'usage_day',
    'usage_tag_day',
    'usage_tier_hour',
    'usage_latency_day',
  ] as const) {
    const { rows: counted } = await sql<{ n: bigint }>`select count(*) as n from ${sql.table(table)}`.execute(db);
    counts.push(`${table} ${Number(counted[0]!.n).toLocaleString('en')}`);
  }
  return `${name}: ${counts.join(', ')} rows; filled in ${Math.round((performance.now() - begun) / 1000)} s`;
}

/** The statement that adds up a span, one hour or day after the other as the job does; the keys of the rows begin with their times. */
function rollUp(
  table: 'usage_hour' | 'usage_tag_hour' | 'usage_day' | 'usage_tag_day',
  from: number,
  to: number,
  isSqlite: boolean,
): string {
  const isHour = table.endsWith('hour');
  const hasTag = table.includes('tag');
  const time = isHour ? `ended_at - ended_at % ${hourMs}` : `ended_at - (ended_at + ${zoneOffsetMs}) % ${dayMs}`;
  const groups = [
    ['account_id', 'account_id'],
    [isHour ? 'hour' : 'day', time],
    ...(hasTag ? [['tag', 'substr(tags, 3, length(tags) - 4)']] : []),
    ['model_id', 'model_id'],
    ['key_id', 'key_id'],
  ];
  const ofQuarters = quarters.flatMap((quarter) =>
    sumColumns.map((column) => {
      const when = `case when ended_at % ${hourMs} / ${quarterMs} = ${quarter - 1} then ${column === 'requests' ? '1' : column} else 0 end`;
      return column === 'requests' && quarter === 1 ? `sum(${when})` : `nullif(sum(${when}), 0)`;
    }),
  );
  const sums = [
    ...sumColumns.map((column) => (column === 'requests' ? 'count(*)' : `sum(${column})`)),
    ...(isHour ? ofQuarters : []),
  ];
  const names = [...groups.map(([column]) => column), ...sumColumns, ...(isHour ? quarterColumns : [])];
  const hex = (ms: number) => ms.toString(16).padStart(12, '0');
  const key = (ms: number) => (isSqlite ? `x'${hex(ms)}'` : `'\\x${hex(ms)}'::bytea`);
  return `insert into ${table} (${names.join(', ')})
    select ${[...groups.map(([, expression]) => expression), ...sums].join(', ')} from usage
    where request_id >= ${key(from)} and request_id < ${key(Math.max(from, to))} ${hasTag ? 'and tags is not null' : ''}
    group by ${groups.map((_, index) => index + 1).join(', ')}
    order by 2, 1`;
}

/** But for that of its key: an index is made faster of all rows at once. */
async function indexesOfUsage(db: Kysely<Database>, dialect: 'sqlite' | 'postgres') {
  const { rows } = await (
    dialect === 'sqlite'
      ? sql<{ name: string; definition: string }>`
          select name, sql as definition from sqlite_schema where type = 'index' and tbl_name = 'usage' and sql is not null`
      : sql<{ name: string; definition: string }>`
          select relname as name, replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') as definition
          from pg_index join pg_class on pg_class.oid = indexrelid where indrelid = 'usage'::regclass and not indisprimary`
  ).execute(db);
  return rows;
}

const columns = `(request_id, public_id, account_id, key_id, model_id, api, streamed, started_at, ended_at, prompt_tokens, cached_tokens,
  completion_tokens, reasoning_tokens, cost, uncharged, hold, ending, finish, counted, input_price, output_price, cache_read_price,
  backend, first_token_ms, total_ms, tags)`;
