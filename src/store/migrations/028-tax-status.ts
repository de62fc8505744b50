import { sql, type Kysely } from 'kysely';
import { columnTypes, type SchemaDialect } from './columns.ts';

/** How a customer is taxed; until now all were taxed alike. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  await db.schema
    .alterTable('account')
    .addColumn('tax_status', columnTypes(dialect).text, (column) =>
      column
        .notNull()
        .defaultTo('standard')
        .check(sql`tax_status in ('standard', 'exempt', 'reverse_charge')`),
    )
    .execute();
}
