/**
 * Usage is partitioned by month, by the time in its key (money.md, "Tables"): the key stays unique across all partitions, and a query with
 * a time reads only the months that can match.
 */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { startOfUtcMonth } from '../../platform/calendar/months.ts';
import { keyBound } from '../reports/usage-months.ts';
import { isWorthAnotherTry, sqlState } from './postgres-error.ts';

/** Includes the current month: a running service creates each one long before it begins. */
const monthsAhead = 3;
/** Readers of all usage lock the default partition while they read; new partitions are needed only weeks later. */
const lockTimeoutMs = 2_000;

/** A table of usage, by the times in its keys. */
export interface Partition {
  readonly name: string;
  /** Milliseconds since 1970; -Infinity: unbounded. */
  readonly fromMs: number;
  /** Exclusive. */
  readonly toMs: number;
}

/** Lists all except the default one, which takes rows that fit no other: a row is never refused because of its time. */
export async function listPartitions(db: Kysely<Database>): Promise<readonly Partition[]> {
  const { rows } = await sql<{ readonly name: string; readonly bounds: string }>`
    select relname as name, pg_get_expr(relpartbound, pg_class.oid) as bounds
    from pg_inherits join pg_class on pg_class.oid = inhrelid
    where inhparent = 'usage'::regclass order by relname`.execute(db);
  return rows.flatMap(({ name, bounds }) => {
    const [, from, to] = /FROM \((?:MINVALUE|'\\x([0-9a-f]{12})')\) TO \('\\x([0-9a-f]{12})'\)/.exec(bounds) ?? [];
    if (to === undefined) return [];
    return [
      { name, fromMs: from === undefined ? -Infinity : Number.parseInt(from, 16), toMs: Number.parseInt(to, 16) },
    ];
  });
}

/**
 * Creates the missing partitions of this month and the coming ones, and returns their names. What cannot be created now is left to a later
 * call; until then the default partition takes its rows.
 */
export async function makePartitions(db: Kysely<Database>, nowMs: number): Promise<readonly string[]> {
  const there = await listPartitions(db);
  const made: string[] = [];
  for (let month = 0; month <= monthsAhead; month++) {
    const [fromMs, toMs] = [startOfUtcMonth(nowMs, month), startOfUtcMonth(nowMs, month + 1)];
    if (there.some((other) => other.fromMs < toMs && fromMs < other.toMs)) continue;
    const name = `usage_${new Date(fromMs).toISOString().slice(0, 7).replace('-', '_')}`;
    try {
      await db.transaction().execute(async (transaction) => {
        await sql`select set_config('lock_timeout', ${String(lockTimeoutMs)}, true)`.execute(transaction);
        await sql`select make_usage_partition(${name}, ${keyBound(fromMs)}::bytea, ${keyBound(toMs)}::bytea)`.execute(
          transaction,
        );
      });
      made.push(name);
    } catch (error) {
      if (!isLeftToDefault(error) && !isWorthAnotherTry(error)) throw error;
    }
  }
  return made;
}

/** The default partition has rows of that month: they stay there, and are found there. */
const isLeftToDefault = (error: unknown): boolean => sqlState(error) === '23514';
