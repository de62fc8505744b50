import type { Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Sums by the hour, for every report that looks further back than the open hour. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, count } = columnTypes(dialect);
  const usageHour = db.schema
    .createTable('usage_hour')
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('hour', time, (column) => column.notNull())
    .addColumn('model_id', text, (column) => column.notNull())
    .addColumn('key_id', text, (column) => column.notNull())
    .addColumn('requests', count, (column) => column.notNull())
    .addColumn('prompt_tokens', count, (column) => column.notNull())
    .addColumn('cached_tokens', count, (column) => column.notNull())
    .addColumn('completion_tokens', count, (column) => column.notNull())
    .addColumn('reasoning_tokens', count, (column) => column.notNull())
    .addColumn('cost', money, (column) => column.notNull())
    .addColumn('uncharged', money, (column) => column.notNull())
    .addPrimaryKeyConstraint('usage_hour_key', ['account_id', 'hour', 'model_id', 'key_id']);
  await strict(usageHour, dialect).execute();
  // The job that rewrites the newest hours looks for the last one of all accounts.
  await db.schema.createIndex('usage_hour_hour').on('usage_hour').column('hour').execute();
}
