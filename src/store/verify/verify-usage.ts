/** Checks whether the roll-ups of usage match its rows. Reads a day, or a week of one account, at a time. */
import { sql, type Kysely, type Selectable } from 'kysely';
import type { Database } from '../database.ts';
import { firstEnd } from '../reports/account-usage.ts';
import { latenciesOfDay, sumTiersByHour } from '../reports/tier-roll-ups.ts';
import { sumTagsByHour, sumUsageByHour } from '../reports/roll-ups.ts';
import { hourMs, nextDay, startOfDay } from '../../platform/calendar/time-zone.ts';
import {
  addSums,
  closedBefore,
  dayOfAll,
  hourOfAll,
  latencyDaysBefore,
  listOf,
  quarterColumns,
  sumColumns,
  type QuarterColumn,
  type QuarterSums,
  type SumColumn,
  type Sums,
} from '../reports/usage-expressions.ts';
import { sumBuckets } from '../reports/usage-sums.ts';
import { StoreError } from '../store-error.ts';
import type { Difference } from './difference.ts';
import { pagesByKey } from './pages.ts';

type Db = Kysely<Database>;
type Report = (difference: Difference) => void;

export interface RollUpOptions {
  /** Rows lie in unexpected months: all months are searched, which is slow. */
  readonly everywhere: boolean;
  /** Rows that ended earlier may be removed. */
  readonly keptSince: number;
  /** The sums of all rows that ended earlier. */
  readonly older: OlderUsage;
}

type OlderRow = Sums &
  Readonly<Record<'account_id' | 'model_id' | 'key_id', string>> & { readonly tags: string | null };

/** Usage that ended before the retention, by account, model and key, and by label: its distribution in time is only in the roll-ups. */
export class OlderUsage {
  readonly all = new Map<string, Row>();
  readonly labelled = new Map<string, Row>();

  add({ tags, account_id, model_id, key_id, ...row }: OlderRow): void {
    const sums = Object.fromEntries(sumColumns.map((column) => [column, row[column]])) as unknown as Sums;
    const add = (to: Map<string, Row>, one: Row): void => {
      const name = nameOf(one);
      const there = to.get(name);
      to.set(name, there === undefined ? one : addSums(there, one));
    };
    add(this.all, { ...sums, account_id, model_id, key_id });
    for (const tag of listOf(tags) ?? []) add(this.labelled, { ...sums, account_id, model_id, key_id, tag });
  }
}

/** Resolves with the number of hours of usage_hour that were compared. */
export async function verifyRollUps(db: Db, options: RollUpOptions, report: Report): Promise<number> {
  const hours = await compareHours(db, options, report);
  if (options.keptSince > 0) await compareOlder(db, options, report);
  await compareDays(db, options, report);
  await compareTiers(db, options, report);
  await compareLatencies(db, options, report);
  return hours;
}

type Row = Sums &
  Partial<QuarterSums> & {
    readonly account_id: string;
    readonly hour?: bigint;
    readonly day?: bigint;
    readonly tag?: string;
    readonly model_id: string;
    readonly key_id: string;
    readonly tier?: string;
    readonly ending?: string;
  };

/** Compares closed hours of both tables, a day at a time. */
async function compareHours(db: Db, { everywhere, keptSince }: RollUpOptions, report: Report): Promise<number> {
  const closed = await closedBefore(db);
  const seen = new Set<number>();
  for (let start = Math.max(await firstHour(db), keptSince); start < closed; start += 24 * hourMs) {
    const end = Math.min(start + 24 * hourMs, closed);
    const stored = (table: 'usage_hour' | 'usage_tag_hour') =>
      db
        .selectFrom(table)
        .selectAll()
        .where(hourOfAll, '>=', BigInt(start))
        .where(hourOfAll, '<', BigInt(end))
        .execute();
    const expected = await sumUsageByHour(db, start, end, { everywhere });
    const found = await stored('usage_hour');
    for (const { hour } of [...expected, ...found]) seen.add(Number(hour));
    compare('usage_hour', expected, found, report);
    const labelled = await sumTagsByHour(db, start, end, { everywhere });
    compare('usage_tag_hour', labelled, await stored('usage_tag_hour'), report);
  }
  return seen.size;
}

/** Compares the hours of usage_tier_hour, which may end before those of usage_hour. */
async function compareTiers(db: Db, { everywhere, keptSince }: RollUpOptions, report: Report): Promise<void> {
  const closed = await closedBefore(db, 'usage_tier_hour');
  for (let start = Math.max(await firstHour(db), keptSince); start < closed; start += 24 * hourMs) {
    const end = Math.min(start + 24 * hourMs, closed);
    const hours = db.selectFrom('usage_tier_hour').selectAll();
    const found = await hours.where(hourOfAll, '>=', BigInt(start)).where(hourOfAll, '<', BigInt(end)).execute();
    compare('usage_tier_hour', await sumTiersByHour(db, start, end, { everywhere }), found, report);
  }
}

/** Compares the days of usage_latency_day whose rows are kept: how many requests took how long. */
async function compareLatencies(db: Db, { everywhere, keptSince }: RollUpOptions, report: Report): Promise<void> {
  const dayMs = 24 * hourMs;
  const closed = await latencyDaysBefore(db);
  const first = Math.floor((await firstHour(db)) / dayMs) * dayMs;
  for (let day = Math.max(first, Math.ceil(keptSince / dayMs) * dayMs); day < closed; day += dayMs) {
    const stored = await db.selectFrom('usage_latency_day').selectAll().where(dayOfAll, '=', BigInt(day)).execute();
    const expected = byRange(
      (await latenciesOfDay(db, day, { everywhere })).map((row) => ({ ...row, day: BigInt(day) })),
    );
    const found = byRange(stored);
    for (const [name, { accountId }] of new Map([...found, ...expected])) {
      const [one, other] = [expected.get(name)?.requests ?? 0, found.get(name)?.requests ?? 0];
      if (one !== other)
        report({ accountId, what: `usage_latency_day ${name}`, expected: BigInt(one), found: BigInt(other) });
    }
  }
}

function byRange(rows: readonly Selectable<Database['usage_latency_day']>[]) {
  return new Map(
    rows.flatMap(({ counts, ...row }) =>
      Object.entries(JSON.parse(counts) as Readonly<Record<string, number>>).map(
        ([range, requests]) =>
          [`${nameOf({ ...nothing, ...row })}: ${range}`, { accountId: row.account_id, requests }] as const,
      ),
    ),
  );
}

const nothing = Object.fromEntries(sumColumns.map((column) => [column, 0n])) as unknown as Sums;

/** Compares all hours before the retention together, because their rows may be removed. */
async function compareOlder(db: Db, { keptSince, older }: RollUpOptions, report: Report): Promise<void> {
  for (const [table, expected, columns] of [
    ['usage_hour', older.all, ['account_id', 'model_id', 'key_id']],
    ['usage_tier_hour', older.all, ['account_id', 'model_id', 'key_id']],
    ['usage_tag_hour', older.labelled, ['account_id', 'model_id', 'key_id', 'tag']],
  ] as const) {
    const by = sql.join(columns.map((column) => sql.ref(column)));
    const { rows } = await sql<Row>`
      select ${by}, ${sql.join(sumColumns.map((column) => sql`sum(${sql.ref(column)}) as ${sql.ref(column)}`))}
      from ${sql.table(table)} where ${hourOfAll} < ${BigInt(keptSince)} group by ${by}`.execute(db);
    compare(table, [...expected.values()], rows, report);
  }
}

/** The earliest hour in any of the tables. */
async function firstHour(db: Db): Promise<number> {
  const used = await db.selectFrom('usage').select('started_at').orderBy('request_id').limit(1).executeTakeFirst();
  const times = [used?.started_at];
  for (const table of ['usage_hour', 'usage_tag_hour'] as const)
    times.push((await db.selectFrom(table).select('hour').orderBy(hourOfAll).limit(1).executeTakeFirst())?.hour);
  const known = times.filter((time) => time !== undefined).map(Number);
  return Math.floor(Math.min(...known) / hourMs) * hourMs; // Infinity if there is no hour: nothing is compared
}

const accountsAtOnce = 500;
/** Days of an account compared at once: few queries for small accounts, and bounded memory for large ones. */
const daysAtOnce = { min: 7, max: 120, rows: 5_000 };

/** Compares the summed-up days of every account with its rows. */
async function compareDays(db: Db, options: RollUpOptions, report: Report): Promise<void> {
  const pages = pagesByKey({
    first: '',
    size: accountsAtOnce,
    read: (after) => db.selectFrom('usage_days').selectAll().where('account_id', '>', after).orderBy('account_id'),
    keyOf: ({ account_id: id }) => id,
  });
  const nextDays = keptNextDays();
  for await (const accounts of pages)
    for (const { account_id: accountId, time_zone: timeZone, until } of accounts)
      await compareDaysOf(db, { accountId, timeZone, until: Number(until) }, nextDays, options, report);
}

/** `nextDay`, once for each day and zone: it takes 10 µs, and accounts share zones. */
function keptNextDays(): typeof nextDay {
  const kept = new Map<string, number>();
  return (zone, ms) => {
    const name = `${zone} ${ms}`;
    const next = kept.get(name) ?? nextDay(zone, ms);
    if (kept.size < 100_000) kept.set(name, next);
    return next;
  };
}

async function compareDaysOf(
  db: Db,
  { accountId, timeZone, until }: { readonly accountId: string; readonly timeZone: string; readonly until: number },
  nextDays: typeof nextDay,
  options: RollUpOptions,
  report: Report,
): Promise<void> {
  for (let start = startOfDay(timeZone, await firstDay(db, accountId, until)); start < until;) {
    const enough = await dayAfterRows(db, accountId, start);
    const bounds = [start];
    const isDone = (end: number): boolean =>
      end >= until || bounds.length > daysAtOnce.max || (bounds.length > daysAtOnce.min && end >= enough);
    while (!isDone(bounds.at(-1)!)) bounds.push(nextDays(timeZone, bounds.at(-1)!));
    start = bounds.at(-1)!;
    await compareSpan(db, accountId, bounds, options, report);
  }
}

async function compareSpan(
  db: Db,
  accountId: string,
  bounds: readonly number[],
  options: RollUpOptions,
  report: Report,
): Promise<void> {
  let expected;
  try {
    expected = { usage_day: await daysOfRows('usage_day'), usage_tag_day: await daysOfRows('usage_tag_day') };
  } catch (error) {
    if (!(error instanceof StoreError && error.code === 'invalid') || bounds.length === 2) throw error;
    // Many more groups than the recorded days have: those are missing.
    const middle = Math.floor(bounds.length / 2);
    await compareSpan(db, accountId, bounds.slice(0, middle + 1), options, report);
    return await compareSpan(db, accountId, bounds.slice(middle), options, report);
  }
  for (const table of ['usage_day', 'usage_tag_day'] as const) {
    const found = await db
      .selectFrom(table)
      .selectAll()
      .where('account_id', '=', accountId)
      .where('day', '>=', BigInt(bounds[0]!))
      .where('day', '<', BigInt(bounds.at(-1)!))
      .execute();
    compare(table, expected[table], found, report);
  }

  async function daysOfRows(table: 'usage_day' | 'usage_tag_day'): Promise<readonly Row[]> {
    const { everywhere, keptSince } = options;
    // Reads only rows, and for those that may be removed the hours.
    const places = { closed: keptSince, days: undefined, keptSince };
    const by = table === 'usage_day' ? (['model', 'key'] as const) : (['model', 'key', 'tag'] as const);
    const sums = await sumBuckets(db, { accountId }, { bounds, by, places, everywhere });
    return sums.map(({ bucket, model, key, tag, tier: _tier, ending: _ending, ...rest }): Row => ({
      ...rest,
      account_id: accountId,
      day: BigInt(bounds[bucket]!),
      model_id: model!,
      key_id: key!,
      ...(tag === null ? {} : { tag }),
    }));
  }
}

/** The day on which as many recorded days as are compared at once have passed; Infinity if there are fewer. */
async function dayAfterRows(db: Db, accountId: string, start: number): Promise<number> {
  const query = db
    .selectFrom('usage_day')
    .select('day')
    .where('account_id', '=', accountId)
    .where('day', '>=', BigInt(start));
  const row = await query.orderBy('day').limit(1).offset(daysAtOnce.rows).executeTakeFirst();
  return row === undefined ? Infinity : Number(row.day);
}

/** When the account's usage, or its recorded days, begin; `until` if there are none. */
async function firstDay(db: Db, accountId: string, until: number): Promise<number> {
  const times: (number | bigint | undefined)[] = [await firstEnd(db, accountId)];
  for (const table of ['usage_day', 'usage_tag_day'] as const) {
    const query = db.selectFrom(table).select('day').where('account_id', '=', accountId);
    times.push((await query.orderBy('day').limit(1).executeTakeFirst())?.day);
  }
  return Math.min(until, ...times.filter((time) => time !== undefined).map(Number));
}

function compare(table: string, expected: readonly Row[], found: readonly Row[], report: Report): void {
  const should = new Map(expected.map((row) => [nameOf(row), row]));
  const is = new Map(found.map((row) => [nameOf(row), row]));
  for (const name of new Set([...should.keys(), ...is.keys()])) {
    const [one, other] = [should.get(name), is.get(name)];
    const differs = (column: SumColumn | QuarterColumn): boolean => (one?.[column] ?? 0n) !== (other?.[column] ?? 0n);
    const wrong = sumColumns.filter(differs);
    // A wrong hour has wrong quarters, too, so it is reported once. Days have no quarters.
    const quarters = wrong.length === 0 ? quarterColumns.filter(differs) : [];
    for (const column of [...wrong, ...quarters])
      report({
        accountId: (one ?? other)!.account_id,
        what: `${table} ${name}: ${column}`,
        expected: one?.[column] ?? 0n,
        found: other?.[column] ?? 0n,
      });
  }
}

function nameOf({ account_id: account, hour, day, model_id: model, key_id: key, tag, tier, ending }: Row): string {
  const at = hour ?? day;
  const words = [at === undefined ? 'before the retention' : new Date(Number(at)).toISOString(), account, model, key];
  return [...words, tag, tier, ending].filter((word) => word !== undefined).join(' ');
}
