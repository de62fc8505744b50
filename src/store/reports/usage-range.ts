/** The rows of a roll-up for one account and time span, found by the key, which begins with both. */
import { sql, type RawBuilder, type SqlBool } from 'kysely';

export interface RollUpRange {
  readonly accountId: string;
  /** For a roll-up by label; undefined: all labels. */
  readonly tag: string | undefined;
  readonly time: 'hour' | 'day';
  /** Inclusive. */
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
  /** Only these times of the span. */
  readonly among?: readonly number[];
}

export function rollUpRange({ accountId, tag, time: name, from, to, among }: RollUpRange): RawBuilder<SqlBool> {
  const time = sql.ref(name);
  const conditions = [sql`account_id = ${accountId}`, sql`${time} >= ${sql.lit(from)}`, sql`${time} < ${sql.lit(to)}`];
  if (tag !== undefined) conditions.push(sql`tag = ${tag}`);
  if (among !== undefined) conditions.push(sql`${time} in (${sql.join(among.map((one) => sql.lit(one)))})`);
  return sql<SqlBool>`(${sql.join(conditions, sql` and `)})`;
}
