import { type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Items of answers that later requests may name by their id instead of sending them again. The one table with content. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, time, count } = columnTypes(dialect);
  const keptItem = db.schema
    .createTable('kept_item')
    .addColumn('account_id', text, (column) => column.notNull().references('account.id'))
    .addColumn('id', text, (column) => column.notNull())
    .addColumn('kept_at', time, (column) => column.notNull())
    // Size of `body`.
    .addColumn('bytes', count, (column) => column.notNull())
    // JSON.
    .addColumn('body', text, (column) => column.notNull())
    .addPrimaryKeyConstraint('kept_item_key', ['account_id', 'id']);
  await strict(keptItem, dialect).execute();
  // For expiry, and for an account's sum, which must not read the bodies.
  await db.schema.createIndex('kept_item_at').on('kept_item').column('kept_at').execute();
  await db.schema.createIndex('kept_item_size').on('kept_item').columns(['account_id', 'kept_at', 'bytes']).execute();
}
