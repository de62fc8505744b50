import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/**
 * Several processes on one database: who is alive, and what each has leased of a balance. On SQLite both tables stay
 * empty, because one process owns every balance whole; they are there so that every sum is one query on both.
 */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, bytes } = columnTypes(dialect);
  const replica = db.schema
    .createTable('replica')
    // Made at each start, so that it is the fence: what an earlier life of the process held does not belong to this one.
    .addColumn('id', bytes, (column) => column.primaryKey().notNull())
    .addColumn('beat', time, (column) => column.notNull());
  await strict(replica, dialect).execute();

  const slice = db.schema
    .createTable('slice')
    // No foreign keys: they would lock the rows of replicas and accounts with every settlement.
    .addColumn('replica_id', bytes, (column) => column.notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('remaining', money, (column) => column.notNull().check(sql`remaining >= 0`)) // M2
    .addPrimaryKeyConstraint('slice_key', ['replica_id', 'account_id']);
  // Rewritten with every batch: room on the page keeps the new version beside the old one, and the index as it is.
  await (dialect === 'postgres' ? slice.modifyEnd(sql`with (fillfactor = 50)`) : strict(slice, dialect)).execute();
  await db.schema.createIndex('slice_account').on('slice').column('account_id').execute();

  if (dialect === 'postgres') {
    // M7: statements that row triggers do not see.
    for (const table of ['transfer', 'usage'])
      await sql
        .raw(
          `create trigger ${table}_no_truncate before truncate on ${table} for each statement execute function ${table}_is_immutable()`,
        )
        .execute(db);
  }
}
