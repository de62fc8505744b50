/**
 * In which months the keys of usage lie that ended in a span of time. On PostgreSQL each month is a partition, and a query that
 * names it reads no other (money.md, "Tables"). On SQLite there is one table, whose planner has the right index already.
 */
import { PostgresAdapter, sql, type Kysely, type RawBuilder, type SqlBool } from 'kysely';
import type { Database } from '../database.ts';

/** From the key of a request to its recorded end: the longest answer, and a crash that nobody was there to record. */
export const longestRequestMs = 7 * 86_400_000;
/** Keys may run ahead of the clock a little. */
const clockSlackMs = 3_600_000;

/** Keys of requests that ended between two times, both optional; the first is in, the second out. */
export function inMonthsOf(
  db: Kysely<Database>,
  { from, to }: { readonly from?: number; readonly to?: number },
): RawBuilder<SqlBool> {
  if (!(db.getExecutor().adapter instanceof PostgresAdapter)) return sql<SqlBool>`1 = 1`;
  const conditions = [sql<SqlBool>`true`];
  if (from !== undefined) conditions.push(sql`usage.request_id >= ${keyBound(monthsOf(from).fromMs)}`);
  if (to !== undefined) conditions.push(sql`usage.request_id < ${keyBound(monthsOf(to).toMs)}`);
  return sql`(${sql.join(conditions, sql` and `)})`;
}

/** Whether whoever looks for the end of a request in its months finds its key there: not when a clock was far off. */
export function isInMonthsOf(endedAt: number, keyMs: number): boolean {
  const { fromMs, toMs } = monthsOf(endedAt);
  return fromMs <= keyMs && keyMs < toMs;
}

function monthsOf(endedAt: number): { readonly fromMs: number; readonly toMs: number } {
  return {
    fromMs: Math.max(0, startOfMonth(endedAt - longestRequestMs)),
    toMs: startOfMonth(endedAt + clockSlackMs, 1),
  };
}

/** The six bytes that no key of that millisecond or later comes before: a bound of a partition is the same bytes. */
export function keyBound(ms: number): Uint8Array {
  return Uint8Array.from(Buffer.from(ms.toString(16).padStart(12, '0'), 'hex'));
}

/** Of the month `later` months after the one of a time, in UTC. */
export function startOfMonth(ms: number, later = 0): number {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later);
}
