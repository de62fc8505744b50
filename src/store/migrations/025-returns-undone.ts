import { sql, type Kysely } from 'kysely';
import { columnTypes, type SchemaDialect } from './columns.ts';

/** When a refund failed or a dispute was won: it has taken nothing in the end. Disputes won earlier were given back already. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  await db.schema.alterTable('payment_return').addColumn('undone_at', columnTypes(dialect).time).execute();
  await sql
    .raw(
      `update payment_return set undone_at = (
         select min(transfer.at) from transfer where transfer.idempotency_key in (
           'dispute_won:' || payment_return.provider || ':' || payment_return.id,
           'dispute_won:' || payment_return.provider || ':' || payment_return.id || ':rest'))
       where kind = 'dispute'`,
    )
    .execute(db);
}
