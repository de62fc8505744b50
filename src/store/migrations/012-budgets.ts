import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Budgets of keys and accounts, what each has left for a period, and which of them a request was charged to. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, bytes } = columnTypes(dialect);
  const budget = db.schema
    .createTable('budget')
    // A key or an account.
    .addColumn('subject', text, (column) => column.primaryKey().notNull())
    .addColumn('amount', money, (column) => column.notNull().check(sql`amount >= 0`))
    .addColumn('per', text, (column) => column.notNull().check(sql`per in ('day', 'week', 'month', 'total')`))
    .addColumn('set_at', time, (column) => column.notNull());
  await strict(budget, dialect).execute();

  const balance = db.schema
    .createTable('purse')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('subject', text, (column) => column.notNull())
    .addColumn('per', text, (column) => column.notNull())
    .addColumn('starts_at', time, (column) => column.notNull())
    .addColumn('ends_at', time)
    // The budget's amount, as of its last change in the period.
    .addColumn('amount', money, (column) => column.notNull())
    // Charged in the period before the budget was set.
    .addColumn('spent_before', money, (column) => column.notNull().check(sql`spent_before >= 0`))
    // Neither spent nor leased; below zero when the budget was lowered below that.
    .addColumn('available', money, (column) => column.notNull());
  await strict(balance, dialect).execute();
  await db.schema.createIndex('purse_subject').on('purse').columns(['subject', 'per']).execute();

  // A table of its own, not `slice`: an older version that runs beside this one would give its rows back to accounts.
  const slice = db.schema
    .createTable('purse_slice')
    .addColumn('replica_id', bytes, (column) => column.notNull())
    .addColumn('purse_id', text, (column) => column.notNull())
    .addColumn('remaining', money, (column) => column.notNull().check(sql`remaining >= 0`))
    .addPrimaryKeyConstraint('purse_slice_key', ['replica_id', 'purse_id']);
  await (dialect === 'postgres' ? slice.modifyEnd(sql`with (fillfactor = 50)`) : strict(slice, dialect)).execute();
  await db.schema.createIndex('purse_slice_purse').on('purse_slice').column('purse_id').execute();

  // The period of the budget that the request was charged to; null: there was none.
  await db.schema.alterTable('usage').addColumn('key_budget', text).execute();
  await db.schema.alterTable('usage').addColumn('account_budget', text).execute();
}
