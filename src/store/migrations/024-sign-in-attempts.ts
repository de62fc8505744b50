import type { Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Failed sign-in attempts, counted by all replicas together: by user, by network, and by both. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, time, count } = columnTypes(dialect);
  const attempt = db.schema
    .createTable('sign_in_attempt')
    // A keyed hash of the subject: no names and no addresses.
    .addColumn('who', text, (column) => column.primaryKey().notNull())
    .addColumn('failures', count, (column) => column.notNull())
    // No attempt is allowed before then.
    .addColumn('open_at', time, (column) => column.notNull())
    .addColumn('last_at', time, (column) => column.notNull());
  await strict(attempt, dialect).execute();
  await db.schema.createIndex('sign_in_attempt_last').on('sign_in_attempt').column('last_at').execute();
}
