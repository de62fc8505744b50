import { type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** The plan of an account and its own limits, and what was used in the windows of all limits. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, count, time } = columnTypes(dialect);
  // The name of a plan of the configuration; null: none.
  await db.schema.alterTable('account').addColumn('plan', text).execute();
  // A JSON object; null when the account has no limits of its own.
  await db.schema.alterTable('account').addColumn('limits', text).execute();
  // The plan that covered the request, whose list cost is then in `uncharged`; null: paid from credit.
  await db.schema.alterTable('usage').addColumn('plan', text).execute();

  const limitWindow = db.schema
    .createTable('limit_window')
    // An account or a key, without a foreign key: counting must not lock either.
    .addColumn('subject', text, (column) => column.notNull())
    .addColumn('kind', text, (column) => column.notNull())
    // In milliseconds.
    .addColumn('length', time, (column) => column.notNull())
    .addColumn('starts_at', time, (column) => column.notNull())
    .addColumn('used', count, (column) => column.notNull())
    .addPrimaryKeyConstraint('limit_window_key', ['subject', 'kind', 'length']);
  await strict(limitWindow, dialect).execute();
}
