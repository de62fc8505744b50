import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Rates that an account has instead of the list prices, in microcents per million tokens. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time } = columnTypes(dialect);
  const accountPrice = db.schema
    .createTable('account_price')
    .addColumn('account_id', text, (column) => column.notNull().references('account.id'))
    // In lower case: ids match in any case.
    .addColumn('model_id', text, (column) => column.notNull())
    .addColumn('valid_from', time, (column) => column.notNull())
    .addColumn('valid_to', time)
    .addColumn('input_price', money, (column) => column.notNull().check(sql`input_price >= 0`))
    .addColumn('output_price', money, (column) => column.notNull().check(sql`output_price >= 0`))
    .addColumn('cache_read_price', money, (column) => column.notNull().check(sql`cache_read_price >= 0`))
    .addPrimaryKeyConstraint('account_price_key', ['account_id', 'model_id', 'valid_from'])
    .addCheckConstraint('account_price_span', sql`valid_to is null or valid_to > valid_from`)
    // A hold is taken at the input price, and a charge never exceeds its hold (I2).
    .addCheckConstraint('account_price_cached', sql`cache_read_price <= input_price`);
  await strict(accountPrice, dialect).execute();
}
