import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/**
 * Who has how much of a limit, among several processes on one database; `limit_window` has the sums, and rows of the kind
 * `running` for requests at the same time. On SQLite the table stays empty, because one process has every limit whole.
 */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, count, time, bytes } = columnTypes(dialect);
  // Grows with every connection that limits are exchanged on, so that what was sent on an earlier one is not carried out late.
  await db.schema
    .alterTable('replica')
    .addColumn('limits_epoch', count, (column) => column.notNull().defaultTo(0))
    .execute();

  const share = db.schema
    .createTable('limit_share')
    .addColumn('replica_id', bytes, (column) => column.notNull())
    // As in `limit_window`.
    .addColumn('subject', text, (column) => column.notNull())
    .addColumn('kind', text, (column) => column.notNull())
    .addColumn('length', time, (column) => column.notNull())
    .addColumn('starts_at', time, (column) => column.notNull())
    .addColumn('held', count, (column) => column.notNull().check(sql`held >= 0`))
    // When it had less than it needed, by the clock of the database; 0: it has enough.
    .addColumn('wanted_at', time, (column) => column.notNull().defaultTo(0))
    .addPrimaryKeyConstraint('limit_share_key', ['replica_id', 'subject', 'kind', 'length']);
  await (dialect === 'postgres' ? share.modifyEnd(sql`with (fillfactor = 50)`) : strict(share, dialect)).execute();
  await db.schema.createIndex('limit_share_limit').on('limit_share').columns(['subject', 'kind', 'length']).execute();
  await db.schema
    .createIndex('limit_share_wanted')
    .on('limit_share')
    .column('wanted_at')
    .where(sql.ref('wanted_at'), '>', sql.lit(0))
    .execute();
}
