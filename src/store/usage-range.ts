/**
 * The rows of a roll-up that are one account's and of a span of time. On PostgreSQL the plain conditions are not enough: hours lie
 * in the table in the order of time, so that its planner takes the index by the hour alone for cheaper than the key, and reads the
 * hours of all accounts. A comparison of rows that begins with the account is none that this index could serve.
 */
import { PostgresAdapter, sql, type Kysely, type RawBuilder, type SqlBool } from 'kysely';
import type { Database } from './database.ts';

export interface RollUpRange {
  readonly accountId: string;
  /** Of a roll-up by labels; undefined: all. */
  readonly tag: string | undefined;
  readonly time: 'hour' | 'day';
  /** In. */
  readonly from: number;
  /** Out. */
  readonly to: number;
  /** These times of them only. */
  readonly among?: readonly number[];
}

export function rollUpRange(
  db: Kysely<Database>,
  { accountId, tag, time: name, from, to, among }: RollUpRange,
): RawBuilder<SqlBool> {
  const isPostgres = db.getExecutor().adapter instanceof PostgresAdapter;
  const time = sql.ref(name);
  const conditions: RawBuilder<unknown>[] = tag === undefined ? [] : [sql`tag = ${tag}`];
  if (isPostgres) {
    // A pair of bounds instead of an equation: the scan begins and ends at the comparisons of rows, and not with the account.
    conditions.push(sql`account_id >= ${accountId}`, sql`account_id <= ${accountId}`);
    const place = tag === undefined ? sql`(account_id, ${time})` : sql`(account_id, tag, ${time})`;
    const at = (ms: number) =>
      tag === undefined ? sql`(${accountId}, ${sql.lit(ms)})` : sql`(${accountId}, ${tag}, ${sql.lit(ms)})`;
    conditions.push(sql`${place} >= ${at(from)}`, sql`${place} < ${at(to)}`);
  } else conditions.push(sql`account_id = ${accountId}`, sql`${time} >= ${sql.lit(from)}`);
  conditions.push(sql`${time} < ${sql.lit(to)}`);
  if (among !== undefined) {
    const times = sql.join(among.map((one) => sql.lit(one)));
    conditions.push(isPostgres ? sql`${time} + 0 in (${times})` : sql`${time} in (${times})`);
  }
  return sql<SqlBool>`(${sql.join(conditions, sql` and `)})`;
}
