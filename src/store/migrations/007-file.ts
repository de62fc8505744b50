import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/**
 * The metadata of each file; its bytes are elsewhere. A row exists from before the first byte until after the last one, so that
 * whatever a crash leaves behind has a name: only `ready` rows are files.
 */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, time, count } = columnTypes(dialect);
  const file = db.schema
    .createTable('file')
    // 128 random bits as hex digits, also the name of the bytes.
    .addColumn('id', text, (column) =>
      column
        .primaryKey()
        .notNull()
        .check(sql`length(id) = 32`),
    )
    .addColumn('account_id', text, (column) => column.notNull().references('account.id'))
    .addColumn('state', text, (column) => column.notNull().check(sql`state in ('arriving', 'ready', 'leaving')`))
    .addColumn('name', text, (column) => column.notNull())
    .addColumn('media_type', text, (column) => column.notNull())
    .addColumn('purpose', text)
    // While it arrives, its maximum size.
    .addColumn('bytes', count, (column) => column.notNull().check(sql`bytes >= 0`))
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('expires_at', time);
  await strict(file, dialect).execute();
  await db.schema.createIndex('file_account').on('file').columns(['account_id', 'created_at', 'id']).execute();
  await db.schema
    .createIndex('file_expiry')
    .on('file')
    .column('expires_at')
    .where(sql.ref('expires_at'), 'is not', null)
    .execute();
  await db.schema
    .createIndex('file_unready')
    .on('file')
    .column('id')
    .where(sql.ref('state'), '<>', sql`'ready'`)
    .execute();
}
