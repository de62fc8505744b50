/**
 * Usage sums that reports read instead of usage rows (money.md, "Ten million usage rows"): by hour (`usage_hour`), by label
 * (`usage_tag_hour`), and by day of an account's time zone (`usage_day`, `usage_tag_day`). Those by service tier are in tier-roll-ups.ts. All are recomputed from usage, never
 * incremented, so the job may run at any time and any number of times.
 */
import { sql, type Insertable, type Kysely, type Selectable } from 'kysely';
import type { Database } from '../database.ts';
import { hourMs, nextDay, startOfDay } from '../../platform/calendar/time-zone.ts';
import { inOrderOfTime } from '../one-moment.ts';
import { keptSinceOf } from '../retention/retention.ts';
import {
  addSums,
  closedBefore,
  endedSince,
  hourOfAll,
  listOf,
  quarterColumns,
  quarterSumsOfUsage,
  sumsOf,
  type QuarterSums,
  type Sums,
} from './usage-expressions.ts';
import { recomputeTiers } from './tier-roll-ups.ts';
import { inMonthsOf } from './usage-months.ts';
import { sumBuckets } from './usage-sums.ts';

type Db = Kysely<Database>;

/** Hours that begin before this time are complete: a charge may be recorded an hour after its request ended, not later. */
export const completeBefore = (now: number): number => Math.floor(now / hourMs) * hourMs - hourMs;

/**
 * Writes usage_hour and usage_tag_hour: all complete hours since the last one written. Reports read rows of later hours, so an hour is
 * summed once. What is summed by tier follows them. `since`: the `until` of an earlier call, before which nothing is missing; the rows alone
 * do not say so where no request has come for a while, and all of that time would be read again.
 */
export async function recomputeUsageHours(
  db: Db,
  { now, since = 0 }: { readonly now: number; readonly since?: number | undefined },
): Promise<{ readonly written: number; readonly until: number | undefined }> {
  const until = completeBefore(now);
  // After a clock that was ahead.
  const seen = since > until ? 0 : since;
  let written = 0;
  // One day at a time: the sums are read first, and each hour is a short separate write, so settlements do not wait.
  for (let start = Math.max(seen, await missedSince(db)); start < until; start += 24 * hourMs)
    written += await writeHours(db, start, Math.min(start + 24 * hourMs, until));
  await recomputeTiers(db, { since: seen, until });
  return { written, until };
}

async function writeHours(db: Db, from: number, to: number): Promise<number> {
  const { sums, labelled } = await inOrderOfTime(db, async (moment) => ({
    sums: await sumUsageByHour(moment, from, to).execute(),
    labelled: await sumTagsByHour(moment, from, to),
  }));
  const hours = [...new Set([...sums.map((sum) => sum.hour), ...(await storedHours(db, from, to))])];
  // In order, since all hours up to the last one written count as complete.
  hours.sort((one, other) => Number(one) - Number(other));
  for (const hour of hours) {
    await db.transaction().execute(async (transaction) => {
      const ofHour = <Sum extends { readonly hour: unknown }>(all: readonly Sum[]) =>
        all.filter((sum) => sum.hour === hour);
      await transaction.deleteFrom('usage_hour').where(hourOfAll, '=', hour).execute();
      await transaction.deleteFrom('usage_tag_hour').where(hourOfAll, '=', hour).execute();
      await insertAll(transaction, 'usage_hour', ofHour(sums));
      await insertAll(transaction, 'usage_tag_hour', ofHour(labelled));
    });
  }
  return hours.length;
}

/** The summed-up days of an account, if they are in this time zone. */
export async function daysOf(
  db: Db,
  accountId: string,
  timeZone: string,
): Promise<{ readonly timeZone: string; readonly until: number } | undefined> {
  const row = await db
    .selectFrom('usage_days')
    .select('until')
    .where('account_id', '=', accountId)
    .where('time_zone', '=', timeZone)
    .executeTakeFirst();
  return row === undefined ? undefined : { timeZone, until: Number(row.until) };
}

const accountsAtOnceMax = 20;
const daysAtOnceMax = 31;
/** Longer than any day, so a selected account has a whole one to add. */
const dayMaxMs = 26 * hourMs;

/**
 * Sums up days that are over, at most a month of days for a few accounts, each in a short separate write. `isMore`: call it again. Days not
 * yet summed up are read from their source, so a delay causes no errors.
 */
export async function recomputeUsageDays(db: Db): Promise<{ readonly isMore: boolean }> {
  const closed = await closedBefore(db);
  const accounts = await db
    .selectFrom('account')
    .leftJoin('usage_days', 'usage_days.account_id', 'account.id')
    .select(['account.id', 'account.time_zone', 'usage_days.time_zone as added_zone', 'until'])
    .where('kind', '=', 0n)
    .where((is) =>
      is.or([
        is('until', 'is', null),
        is('until', '<=', BigInt(closed - dayMaxMs)),
        is('usage_days.time_zone', '!=', is.ref('account.time_zone')),
      ]),
    )
    .limit(accountsAtOnceMax)
    .execute();
  for (const { id, time_zone: timeZone, added_zone: addedZone, until } of accounts)
    await addDays(db, { id, timeZone, until: addedZone === timeZone ? Number(until) : undefined }, closed);
  return { isMore: accounts.length > 0 };
}

async function addDays(
  db: Db,
  { id, timeZone, until }: { readonly id: string; readonly timeZone: string; readonly until: number | undefined },
  closed: number,
): Promise<void> {
  const first = await db
    .selectFrom('usage_hour')
    .select('hour')
    .where('account_id', '=', id)
    .where('hour', '>=', BigInt(until ?? 0))
    .orderBy('hour')
    .limit(1)
    .executeTakeFirst();
  // Days before the first hour with usage have no rows, which correctly sums to zero.
  const from = startOfDay(timeZone, Math.min(first === undefined ? closed : Number(first.hour), closed));
  const bounds = [Math.max(from, until ?? from)];
  while (bounds.length <= daysAtOnceMax && nextDay(timeZone, bounds.at(-1)!) <= closed)
    bounds.push(nextDay(timeZone, bounds.at(-1)!));
  const places = { closed, days: undefined, keptSince: await keptSinceOf(db) };
  const ofDays = async (by: readonly ('model' | 'key' | 'tag')[]) =>
    bounds.length === 1 ? [] : await sumBuckets(db, { accountId: id }, { bounds, by, places });
  const days = (await ofDays(['model', 'key'])).map(
    ({ bucket, model, key, tag: _, tier: _tier, ending: _ending, ...sums }) => ({
      ...sums,
      account_id: id,
      day: bounds[bucket]!,
      model_id: model!,
      key_id: key!,
    }),
  );
  const labelled = (await ofDays(['model', 'key', 'tag'])).map(
    ({ bucket, model, key, tag, tier: _tier, ending: _ending, ...sums }) => ({
      ...sums,
      account_id: id,
      day: bounds[bucket]!,
      tag: tag!,
      model_id: model!,
      key_id: key!,
    }),
  );
  await db.transaction().execute(async (transaction) => {
    // All days if the time zone has changed.
    const stale = until ?? 0;
    for (const table of ['usage_day', 'usage_tag_day'] as const)
      await transaction.deleteFrom(table).where('account_id', '=', id).where('day', '>=', BigInt(stale)).execute();
    await insertAll(transaction, 'usage_day', days);
    await insertAll(transaction, 'usage_tag_day', labelled);
    const added = { time_zone: timeZone, until: bounds.at(-1)! };
    await transaction
      .insertInto('usage_days')
      .values({ account_id: id, ...added })
      .onConflict((conflict) => conflict.column('account_id').doUpdateSet(added))
      .execute();
  });
}

const rowsAtOnce = 500;

interface Inserted {
  readonly usage_hour: Database['usage_hour'];
  readonly usage_tag_hour: Database['usage_tag_hour'];
  readonly usage_day: Database['usage_day'];
  readonly usage_tag_day: Database['usage_tag_day'];
}

async function insertAll<Table extends keyof Inserted>(
  db: Db,
  table: Table,
  rows: readonly Insertable<Inserted[Table]>[],
): Promise<void> {
  for (let at = 0; at < rows.length; at += rowsAtOnce)
    await db
      .insertInto(table)
      .values(rows.slice(at, at + rowsAtOnce) as never)
      .execute();
}

/** Like `sumUsageByHour`, once for each label, also with an account's rows together. */
export async function sumTagsByHour(
  db: Db,
  from: number,
  to: number,
  { everywhere = false } = {},
): Promise<
  readonly (Sums &
    QuarterSums &
    Pick<Selectable<Database['usage_tag_hour']>, 'account_id' | 'hour' | 'tag' | 'model_id' | 'key_id'>)[]
> {
  const hour = sql<bigint>`ended_at - ended_at % ${sql.lit(hourMs)}`;
  const rows = await db
    .selectFrom('account')
    .crossJoin('usage') // as in sumUsageByHour
    .whereRef('usage.account_id', '=', 'account.id')
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where('tags', 'is not', null)
    .where(inMonthsOf(db, everywhere ? {} : { from, to }))
    .select(['account_id', hour.as('hour'), 'model_id', 'key_id', 'tags'])
    .select(sumsOf(sql`count(*)`))
    .select(quarterSumsOfUsage)
    .groupBy(['account_id', hour, 'model_id', 'key_id', 'tags'])
    .orderBy('account_id')
    .execute();
  const sums = new Map<string, Omit<(typeof rows)[number], 'tags'> & { readonly tag: string }>();
  for (const { tags, ...row } of rows)
    for (const tag of listOf(tags)!) {
      const name = JSON.stringify([row.account_id, Number(row.hour), tag, row.model_id, row.key_id]);
      const sum = sums.get(name);
      sums.set(name, sum === undefined ? { ...row, tag } : { ...addSums(sum, row), ...addQuarters(sum, row) });
    }
  return [...sums.values()];
}

const addQuarters = (one: QuarterSums, other: QuarterSums): QuarterSums =>
  Object.fromEntries(
    quarterColumns.map((column) => {
      const [a, b] = [one[column], other[column]];
      return [column, a === null ? b : a + (b ?? 0n)];
    }),
  ) as QuarterSums;

/**
 * The query that sums usage rows by the hours of a span: one row for each account, hour, model and key. An account's rows are together, so that they share
 * a PostgreSQL page, and a report of a week reads 168 pages instead of one for each row. `everywhere`: includes rows whose key lies in an
 * unexpected month.
 */
export function sumUsageByHour(db: Db, from: number, to: number, { everywhere = false } = {}) {
  const hour = sql<bigint>`ended_at - ended_at % ${sql.lit(hourMs)}`;
  return (
    db
      .selectFrom('account')
      // By account, because of the existing index; an account without usage costs one lookup. SQLite processes the tables of a cross join
      // in the given order, and would otherwise scan all usage ever recorded.
      .crossJoin('usage')
      .whereRef('usage.account_id', '=', 'account.id')
      .where('ended_at', '>=', BigInt(from))
      .where('ended_at', '<', BigInt(to))
      .where(inMonthsOf(db, everywhere ? {} : { from, to }))
      .select(['account_id', hour.as('hour'), 'model_id', 'key_id'])
      .select(sumsOf(sql`count(*)`))
      .select(quarterSumsOfUsage)
      .groupBy(['account_id', hour, 'model_id', 'key_id'])
      .orderBy('account_id')
  );
}

async function missedSince(db: Db): Promise<number> {
  const closed = await closedBefore(db);
  return closed > 0 ? closed : ((await endedSince(db)) ?? Number.MAX_SAFE_INTEGER);
}

async function storedHours(db: Db, from: number, to: number): Promise<readonly bigint[]> {
  const rows = await db
    .selectFrom('usage_hour')
    .select('hour')
    .distinct()
    .where(hourOfAll, '>=', BigInt(from))
    .where(hourOfAll, '<', BigInt(to))
    .execute();
  return rows.map((row) => row.hour);
}
