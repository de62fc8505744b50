import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Keys that manage accounts, secrets that keep working for a while after a rotation, and the log of who changed what. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, time, count, bytes } = columnTypes(dialect);
  // null: an inference key.
  await db.schema.alterTable('api_key').addColumn('role', text).execute();
  await db.schema
    .alterTable('api_key')
    .addColumn('is_operator', count, (column) => column.notNull().defaultTo(0))
    .execute();
  await db.schema.alterTable('api_key').addColumn('previous_hash', bytes).execute();
  await db.schema.alterTable('api_key').addColumn('previous_hash_until', time).execute();
  await db.schema
    .createIndex('api_key_previous_hash')
    .on('api_key')
    .column('previous_hash')
    .unique()
    .where(sql.ref('previous_hash'), 'is not', null)
    .execute();

  const audit = db.schema
    .createTable('audit_log')
    // UUIDv7, so it sorts by time.
    .addColumn('id', bytes, (column) => column.primaryKey().notNull())
    .addColumn('at', time, (column) => column.notNull())
    // null: of the server, not of one account.
    .addColumn('account_id', text)
    .addColumn('actor_kind', text, (column) =>
      column.notNull().check(sql`actor_kind in ('user', 'key', 'cli', 'system')`),
    )
    .addColumn('actor_id', text)
    .addColumn('actor_name', text)
    .addColumn('action', text, (column) => column.notNull())
    .addColumn('target', text)
    .addColumn('before', text)
    .addColumn('after', text)
    .addColumn('request_id', text)
    .addColumn('address', text);
  await strict(audit, dialect).execute();
  await db.schema.createIndex('audit_log_account').on('audit_log').columns(['account_id', 'id']).execute();
}
