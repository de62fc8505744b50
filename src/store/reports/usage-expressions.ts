/** Expressions shared by queries of usage and of its roll-ups. */
import { sql, type Kysely, type RawBuilder } from 'kysely';
import type { Database } from '../database.ts';
import { hourMs, quarterMs } from '../../platform/calendar/time-zone.ts';

export type TokenColumn = 'prompt_tokens' | 'cached_tokens' | 'completion_tokens' | 'reasoning_tokens';

export const sumColumns = [
  'requests',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'cost',
  'uncharged',
] as const;
export type SumColumn = (typeof sumColumns)[number];
export type Sums = Readonly<Record<SumColumn, bigint>>;

export const quarters = [1, 2, 3] as const;
export type QuarterColumn = `${SumColumn}_q${(typeof quarters)[number]}`;
/** Columns for the parts in each of an hour's first three quarters (schema/tables.ts). */
export const quarterColumns: readonly QuarterColumn[] = quarters.flatMap((quarter) =>
  sumColumns.map((column): QuarterColumn => `${column}_q${quarter}`),
);
export type QuarterSums = Readonly<Record<QuarterColumn, bigint | null>>;

export function addSums<Sum extends Sums>(to: Sum, other: Sums): Sum {
  return { ...to, ...Object.fromEntries(sumColumns.map((column) => [column, to[column] + other[column]])) };
}

/** The sums that a query computes; `requests` is its expression for counting them. */
export function sumsOf(requests: RawBuilder<bigint>) {
  const sum = <Column extends TokenColumn | 'cost' | 'uncharged'>(column: Column) =>
    sql<bigint>`sum(${sql.ref(column)})`.as(column);
  return [
    requests.as('requests'),
    sum('prompt_tokens'),
    sum('cached_tokens'),
    sum('completion_tokens'),
    sum('reasoning_tokens'),
    sum('cost'),
    sum('uncharged'),
  ] as const;
}

/** The quarters of usage rows grouped by hour. Null instead of 0, because it takes no space. */
export const quarterSumsOfUsage = quarters.flatMap((quarter) => {
  const isThen = sql`ended_at % ${sql.lit(hourMs)} / ${sql.lit(quarterMs)} = ${sql.lit(quarter - 1)}`;
  return sumColumns.map((column) => {
    const name: QuarterColumn = `${column}_q${quarter}`;
    const value = column === 'requests' ? sql`1` : sql.ref(column);
    return sql<bigint | null>`nullif(sum(case when ${isThen} then ${value} else 0 end), 0)`.as(name);
  });
});

/** A LIKE pattern for a label; labels are stored as a JSON list. */
export const tagPattern = (tag: string): string => `%${JSON.stringify(tag).replace(/[%_!]/g, '!$&')}%`;

export const listOf = (text: string | null): readonly string[] | null =>
  text === null ? null : (JSON.parse(text) as readonly string[]);

/** The hour of a roll-up, by the index over the hours of all accounts; one account's hours are found by the key. */
export const hourOfAll = sql<bigint>`hour + 0`;

/** Hours before this one are summed up; rows of later ones are read. */
export async function closedBefore(
  db: Kysely<Database>,
  table: 'usage_hour' | 'usage_tier_hour' = 'usage_hour',
): Promise<number> {
  const row = await db.selectFrom(table).select('hour').orderBy(hourOfAll, 'desc').limit(1).executeTakeFirst();
  return row === undefined ? 0 : Number(row.hour) + hourMs;
}

/**
 * A full hour before which no request has ended; undefined: there is none. It is a day before the first one began, because a clock may be set back
 * while no hour is summed yet, and requests then end before that.
 */
export async function endedSince(db: Kysely<Database>): Promise<number | undefined> {
  const first = await db.selectFrom('usage').select('started_at').orderBy('request_id').limit(1).executeTakeFirst();
  return first === undefined ? undefined : Math.floor(Number(first.started_at) / hourMs) * hourMs - 24 * hourMs;
}

/** The day of usage_latency_day, by the index over the days of all accounts. */
export const dayOfAll = sql<bigint>`day + 0`;

/** Days before this one are in usage_latency_day; rows of later ones are read. */
export async function latencyDaysBefore(db: Kysely<Database>): Promise<number> {
  const days = db.selectFrom('usage_latency_day').select('day');
  const row = await days.orderBy(dayOfAll, 'desc').limit(1).executeTakeFirst();
  return row === undefined ? 0 : Number(row.day) + 24 * hourMs;
}

/** The tier of a row as roll-ups have it. Empty: from before there were tiers. */
export const tierOfRow = sql<string>`coalesce(tier, '')`;
