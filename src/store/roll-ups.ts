/**
 * Sums of usage that reports read instead of its rows (money.md, "Ten million usage rows"): by the hour (`usage_hour`), by
 * label (`usage_tag_hour`), and by the day of an account's time zone (`usage_day`, `usage_tag_day`). All are recomputed from
 * usage, never incremented, so that the job may run at any time and as often as one likes.
 */
import { sql, type Insertable, type Kysely } from 'kysely';
import type { Database, UsageDayTable, UsageHourTable, UsageTagDayTable, UsageTagHourTable } from './database.ts';
import { hourMs, nextDay, startOfDay } from './time-zone.ts';
import { closedBefore, listOf, sumsOf } from './usage-expressions.ts';
import { inMonthsOf } from './usage-months.ts';
import { addSums, sumBuckets } from './usage-sums.ts';

type Db = Kysely<Database>;

/**
 * Writes usage_hour and usage_tag_hour anew: the open hour, the one before it, and whatever a stopped service has missed
 * since its last run; and a day of labels from before they were added up. Returns the number of hours written.
 */
export async function recomputeUsageHours(db: Db, request: { readonly now: number }): Promise<number> {
  const openHour = Math.floor(request.now / hourMs) * hourMs;
  const from = Math.min(openHour - hourMs, await missedSince(db));
  let written = 0;
  // A day at a time: the sums are read first, and each hour is a short write of its own, so settlements do not wait.
  for (let start = from; start <= openHour; start += 24 * hourMs) {
    const end = Math.min(start + 24 * hourMs, openHour + hourMs);
    const sums = await sumUsageByHour(db, start, end);
    const labelled = await sumTagsByHour(db, start, end);
    const hours = new Set([...sums.map((sum) => sum.hour), ...(await storedHours(db, start, end))]);
    for (const hour of hours) {
      await db.transaction().execute(async (transaction) => {
        const ofHour = <Sum extends { readonly hour: unknown }>(all: readonly Sum[]) =>
          all.filter((sum) => sum.hour === hour);
        await transaction.deleteFrom('usage_hour').where('hour', '=', hour).execute();
        await transaction.deleteFrom('usage_tag_hour').where('hour', '=', hour).execute();
        await insertAll(transaction, 'usage_hour', ofHour(sums));
        await insertAll(transaction, 'usage_tag_hour', ofHour(labelled));
      });
      written += 1;
    }
  }
  await addOlderTags(db);
  return written;
}

/** Labels of the day before the first hour whose labels are added up, until there is no older usage. */
async function addOlderTags(db: Db): Promise<void> {
  const since = await tagsSince(db);
  if (since === 0) return;
  const oldest = await db.selectFrom('usage_hour').select('hour').orderBy('hour').limit(1).executeTakeFirst();
  const from = since - 24 * hourMs;
  const sums = await sumTagsByHour(db, from, since);
  await db.transaction().execute(async (transaction) => {
    await transaction
      .deleteFrom('usage_tag_hour')
      .where('hour', '>=', BigInt(from))
      .where('hour', '<', BigInt(since))
      .execute();
    await insertAll(transaction, 'usage_tag_hour', sums);
    const isLast = oldest === undefined || Number(oldest.hour) >= from;
    await transaction
      .updateTable('usage_tags')
      .set({ since: isLast ? 0 : from })
      .execute();
  });
}

/** From which hour on labels have been added up; 0: all. */
export async function tagsSince(db: Db): Promise<number> {
  return Number((await db.selectFrom('usage_tags').select('since').executeTakeFirstOrThrow()).since);
}

/** The days of an account that are added up, if they are those of this time zone. */
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
/** Longer than any day: an account that is looked for has a whole one to add. */
const dayMaxMs = 26 * hourMs;

/**
 * Adds up days that are over, a month of days at most for a few accounts, each in a short write of its own. `isMore`: call it
 * again. What is not added up yet is read by the hour, so it may be late without anything being wrong.
 */
export async function recomputeUsageDays(db: Db): Promise<{ readonly isMore: boolean }> {
  if ((await tagsSince(db)) !== 0) return { isMore: false };
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
  // Days before the first hour with usage have no rows, which is what they come to.
  const from = startOfDay(timeZone, Math.min(first === undefined ? closed : Number(first.hour), closed));
  const bounds = [Math.max(from, until ?? from)];
  while (bounds.length <= daysAtOnceMax && nextDay(timeZone, bounds.at(-1)!) <= closed)
    bounds.push(nextDay(timeZone, bounds.at(-1)!));
  const places = { closed, tagsSince: 0, days: undefined };
  const ofDays = async (by: readonly ('model' | 'key' | 'tag')[]) =>
    bounds.length === 1 ? [] : await sumBuckets(db, { accountId: id }, { bounds, by, places });
  const days = (await ofDays(['model', 'key'])).map(({ bucket, model, key, tag: _, ...sums }) => ({
    ...sums,
    account_id: id,
    day: bounds[bucket]!,
    model_id: model!,
    key_id: key!,
  }));
  const labelled = (await ofDays(['model', 'key', 'tag'])).map(({ bucket, model, key, tag, ...sums }) => ({
    ...sums,
    account_id: id,
    day: bounds[bucket]!,
    tag: tag!,
    model_id: model!,
    key_id: key!,
  }));
  await db.transaction().execute(async (transaction) => {
    // All of them where the zone is another one.
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
  readonly usage_hour: UsageHourTable;
  readonly usage_tag_hour: UsageTagHourTable;
  readonly usage_day: UsageDayTable;
  readonly usage_tag_day: UsageTagDayTable;
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

/** As `sumUsageByHour`, once for each label. */
async function sumTagsByHour(db: Db, from: number, to: number): Promise<readonly Insertable<UsageTagHourTable>[]> {
  const hour = sql<bigint>`ended_at - ended_at % ${sql.lit(hourMs)}`;
  const rows = await db
    .selectFrom('account')
    .crossJoin('usage') // as in sumUsageByHour
    .whereRef('usage.account_id', '=', 'account.id')
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where('tags', 'is not', null)
    .where(inMonthsOf(db, { from, to }))
    .select(['account_id', hour.as('hour'), 'model_id', 'key_id', 'tags'])
    .select(sumsOf(sql`count(*)`))
    .groupBy(['account_id', hour, 'model_id', 'key_id', 'tags'])
    .execute();
  const sums = new Map<string, Insertable<UsageTagHourTable>>();
  for (const { tags, ...row } of rows)
    for (const tag of listOf(tags)!) {
      const name = JSON.stringify([row.account_id, Number(row.hour), tag, row.model_id, row.key_id]);
      const sum = sums.get(name);
      sums.set(name, sum === undefined ? { ...row, tag } : addSums(sum as typeof row & { tag: string }, row));
    }
  return [...sums.values()];
}

/**
 * What usage says about the hours of a span: one row for each account, hour, model and key. `everywhere`: also where a key
 * lies in a month that it should not.
 */
export function sumUsageByHour(db: Db, from: number, to: number, { everywhere = false } = {}) {
  const hour = sql<bigint>`ended_at - ended_at % ${sql.lit(hourMs)}`;
  return (
    db
      .selectFrom('account')
      // By account, because that is the index there is; an account without usage costs one look. SQLite takes the tables of
      // a cross join in the order given, and would else walk all usage there ever was.
      .crossJoin('usage')
      .whereRef('usage.account_id', '=', 'account.id')
      .where('ended_at', '>=', BigInt(from))
      .where('ended_at', '<', BigInt(to))
      .where(inMonthsOf(db, everywhere ? {} : { from, to }))
      .select(['account_id', hour.as('hour'), 'model_id', 'key_id'])
      .select(sumsOf(sql`count(*)`))
      .groupBy(['account_id', hour, 'model_id', 'key_id'])
      .execute()
  );
}

async function missedSince(db: Db): Promise<number> {
  const closed = await closedBefore(db);
  if (closed > 0) return closed;
  const first = await db.selectFrom('usage').select('started_at').orderBy('request_id').limit(1).executeTakeFirst();
  return first === undefined ? Number.MAX_SAFE_INTEGER : Math.floor(Number(first.started_at) / hourMs) * hourMs;
}

async function storedHours(db: Db, from: number, to: number): Promise<readonly bigint[]> {
  const rows = await db
    .selectFrom('usage_hour')
    .select('hour')
    .distinct()
    .where('hour', '>=', BigInt(from))
    .where('hour', '<', BigInt(to))
    .execute();
  return rows.map((row) => row.hour);
}
