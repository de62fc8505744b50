import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

const sums = [
  'requests',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'cost',
  'uncharged',
] as const;

/**
 * The part of an hour's sums that fell into each of its first three quarters, so that hours and days of zones at :30 and :45 are
 * read from roll-ups too. Adding the columns touches no row; a job fills them in backwards.
 */
export async function up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  const { count, time } = columnTypes(dialect);
  for (const table of ['usage_hour', 'usage_tag_hour'])
    for (const quarter of [1, 2, 3])
      for (const column of sums) await db.schema.alterTable(table).addColumn(`${column}_q${quarter}`, count).execute();

  const quarters = db.schema
    .createTable('usage_quarters')
    // One row: hours before it may predate quarters and labels; 0: none do.
    .addColumn('since', time, (column) => column.primaryKey().notNull());
  await strict(quarters, dialect).execute();
  const newest = await db
    .selectFrom('usage_hour')
    .select((of) => of.fn.max('hour').as('hour'))
    .executeTakeFirst();
  const last: bigint | null = newest?.hour ?? null;
  await db
    .insertInto('usage_quarters')
    .values({ since: last ?? 0 })
    .execute();
}
