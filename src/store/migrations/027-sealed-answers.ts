import { type Kysely } from 'kysely';
import { columnTypes, type SchemaDialect } from './columns.ts';

/**
 * Answers for idempotency keys are kept sealed, in a column of their own: a version that knows only `answer`, and runs beside
 * this one for a while, finds none there and says so, instead of sending what it cannot read. What is in `answer` goes with its
 * row, in a day.
 */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  await db.schema.alterTable('idempotent_request').addColumn('sealed_answer', columnTypes(dialect).bytes).execute();
}
