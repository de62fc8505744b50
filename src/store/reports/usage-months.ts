/**
 * The months that contain the keys of usage that ended in a time span. On PostgreSQL each month is a partition, and a query that specifies
 * it reads no other (money.md, "Tables"). On SQLite there is one table, whose planner already has the right index.
 */
import { PostgresAdapter, sql, type Kysely, type RawBuilder, type SqlBool } from 'kysely';
import { startOfUtcMonth } from '../../platform/calendar/months.ts';

/** Maximum time from a request's key to its recorded end: the longest answer, or a crash that was recorded late. */
export const longestRequestMs = 7 * 86_400_000;
/** Keys may run slightly ahead of the clock. */
const clockSlackMs = 3_600_000;

/** A condition on the keys of requests that ended between two times, both optional; the first is inclusive, the second exclusive. */
export function inMonthsOf(
  db: Pick<Kysely<unknown>, 'getExecutor'>,
  { from, to }: { readonly from?: number; readonly to?: number },
): RawBuilder<SqlBool> {
  if (!(db.getExecutor().adapter instanceof PostgresAdapter)) return sql<SqlBool>`1 = 1`;
  const conditions = [sql<SqlBool>`true`];
  if (from !== undefined) conditions.push(sql`usage.request_id >= ${keyBound(monthsOf(from).fromMs)}`);
  if (to !== undefined) conditions.push(sql`usage.request_id < ${keyBound(monthsOf(to).toMs)}`);
  return sql`(${sql.join(conditions, sql` and `)})`;
}

/** Whether a query by a request's end finds its key in the months it searches: false if a clock was far off. */
export function isInMonthsOf(endedAt: number, keyMs: number): boolean {
  if (keyMs <= endedAt && endedAt - keyMs <= longestRequestMs) return true; // Nearly all, without a calendar.
  const { fromMs, toMs } = monthsOf(endedAt);
  return fromMs <= keyMs && keyMs < toMs;
}

/** The month of a key's time, ms since 1970, the end exclusive. */
export const monthOfKey = (keyMs: number): { readonly fromMs: number; readonly toMs: number } => ({
  fromMs: startOfUtcMonth(keyMs),
  toMs: startOfUtcMonth(keyMs, 1),
});

/** The same as `isInMonthsOf`, as a condition on rows whose keys are of one month. */
export function endedInMonthOf(keyMs: number): RawBuilder<SqlBool> {
  const { fromMs, toMs } = monthOfKey(keyMs);
  return sql`(ended_at >= ${BigInt(fromMs - clockSlackMs)} and ended_at < ${BigInt(toMs + longestRequestMs)})`;
}

function monthsOf(endedAt: number): { readonly fromMs: number; readonly toMs: number } {
  return {
    fromMs: Math.max(0, startOfUtcMonth(endedAt - longestRequestMs)),
    toMs: startOfUtcMonth(endedAt + clockSlackMs, 1),
  };
}

/** The smallest six-byte prefix of keys from that millisecond on: the same bytes that bound a partition. */
export function keyBound(ms: number): Uint8Array {
  // The month of the last six bytes ends after them.
  if (ms >= 2 ** 48) return new Uint8Array(17).fill(0xff);
  return Uint8Array.from(Buffer.from(ms.toString(16).padStart(12, '0'), 'hex'));
}
