/**
 * Sums of usage by service tier and ending (`usage_tier_hour`), and how long requests took (`usage_latency_day`). Both are recomputed from
 * usage as the hours of roll-ups.ts, and each has its own end, so that a database of an earlier version is added up from its first row.
 */
import { sql, type Kysely, type RawBuilder } from 'kysely';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import type { Database } from '../database.ts';
import { inOrderOfTime } from '../one-moment.ts';
import { keptSinceOf } from '../retention/retention.ts';
import { latencyRange } from './latency-buckets.ts';
import {
  closedBefore,
  dayOfAll,
  endedSince,
  hourOfAll,
  latencyDaysBefore,
  sumsOf,
  tierOfRow,
} from './usage-expressions.ts';
import { inMonthsOf } from './usage-months.ts';

type Db = Kysely<Database>;

const dayMs = 24 * hourMs;
const groups = ['account_id', 'model_id', 'key_id', 'tier', 'ending'] as const;

/** Adds up complete hours and days before `until` that are not added up yet, a day at a time. */
export async function recomputeTiers(
  db: Db,
  { since, until }: { readonly since: number; readonly until: number },
): Promise<void> {
  const hours = (await closedBefore(db, 'usage_tier_hour')) || (await firstTime(db, hourMs));
  for (let from = Math.max(since, hours); from < until; from += dayMs)
    await writeHours(db, from, Math.min(from + dayMs, until));
  const days = (await latencyDaysBefore(db)) || (await firstTime(db, dayMs));
  for (let from = Math.max(dayOf(since), days); from + dayMs <= until; from += dayMs) await writeDay(db, from);
}

const dayOf = (at: number): number => at - (at % dayMs);

/** When the first request with a row that stays may have ended, at a full hour or day. */
async function firstTime(db: Db, unit: number): Promise<number> {
  const since = await endedSince(db);
  if (since === undefined) return Number.MAX_SAFE_INTEGER;
  return Math.floor(Math.max(since, await keptSinceOf(db)) / unit) * unit;
}

const rowsAtOnce = 500;

async function writeHours(db: Db, from: number, to: number): Promise<void> {
  const sums = await inOrderOfTime(db, (moment) => sumTiersByHour(moment, from, to).execute());
  // In order, because all hours up to the last one written count as complete.
  const hours = [...new Set(sums.map(({ hour }) => hour))].sort((one, other) => Number(one - other));
  for (const hour of hours) {
    const rows = sums.filter((sum) => sum.hour === hour);
    await db.transaction().execute(async (transaction) => {
      await transaction.deleteFrom('usage_tier_hour').where(hourOfAll, '=', hour).execute();
      for (let at = 0; at < rows.length; at += rowsAtOnce)
        await transaction
          .insertInto('usage_tier_hour')
          .values(rows.slice(at, at + rowsAtOnce))
          .execute();
    });
  }
}

async function writeDay(db: Db, day: number): Promise<void> {
  const rows = await inOrderOfTime(db, (moment) => latenciesOfDay(moment, day));
  if (rows.length === 0) return;
  await db.transaction().execute(async (transaction) => {
    await transaction.deleteFrom('usage_latency_day').where(dayOfAll, '=', BigInt(day)).execute();
    for (let at = 0; at < rows.length; at += rowsAtOnce)
      await transaction
        .insertInto('usage_latency_day')
        .values(rows.slice(at, at + rowsAtOnce))
        .execute();
  });
}

interface Searched {
  /** Includes rows whose key lies in an unexpected month. */
  readonly everywhere?: boolean;
}

function rowsBetween(db: Db, from: number, to: number, { everywhere = false }: Searched) {
  return db
    .selectFrom('account')
    .crossJoin('usage') // by account, as in sumUsageByHour
    .whereRef('usage.account_id', '=', 'account.id')
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where(inMonthsOf(db, everywhere ? {} : { from, to }))
    .select(['account_id', 'model_id', 'key_id', 'ending', tierOfRow.as('tier')]);
}

/** A query, as `sumUsageByHour`. */
export function sumTiersByHour(db: Db, from: number, to: number, searched: Searched = {}) {
  const hour = sql<bigint>`ended_at - ended_at % ${sql.lit(hourMs)}`;
  return rowsBetween(db, from, to, searched)
    .select(hour.as('hour'))
    .select(sumsOf(sql`count(*)`))
    .groupBy(['account_id', hour, 'model_id', 'key_id', tierOfRow, 'ending'])
    .orderBy('account_id');
}

/** The two times that are counted, by the letter of their ranges in `counts`. */
export const latencyColumns = { f: 'first_token_ms', t: 'total_ms' } as const;

/** The rows of usage_latency_day for a day, an account's together. */
export async function latenciesOfDay(db: Db, day: number, searched: Searched = {}) {
  const found = new Map<string, { row: Record<(typeof groups)[number], string>; counts: Record<string, number> }>();
  for (const [letter, column] of Object.entries(latencyColumns)) {
    const range: RawBuilder<number> = latencyRange(column);
    const rows = await rowsBetween(db, day, day + dayMs, searched)
      .where(column, 'is not', null)
      .select(range.as('range'))
      .select((is) => is.fn.countAll<bigint>().as('requests'))
      .groupBy(['account_id', 'model_id', 'key_id', tierOfRow, 'ending', range])
      .orderBy('account_id')
      .orderBy(range)
      .execute();
    for (const { range: number, requests, ...row } of rows) {
      const name = JSON.stringify(groups.map((group) => row[group]));
      const there = found.get(name) ?? { row, counts: {} };
      found.set(name, there);
      there.counts[`${letter}${Number(number)}`] = Number(requests);
    }
  }
  return [...found.values()].map(({ row, counts }) => ({ ...row, day, counts: JSON.stringify(counts) }));
}
