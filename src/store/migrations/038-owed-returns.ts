/** What refunds and disputes take of an account is owed for as long as running requests hold it. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export async function up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  const type = sql.raw(dialect === 'sqlite' ? 'integer' : 'bigint');
  for (const [table, column] of [
    ['account', 'owed'],
    ['payment_return', 'owed'],
    ['payment_return', 'beyond'],
  ] as const)
    await sql`alter table ${sql.table(table)} add column ${sql.ref(column)} ${type} default 0 not null
      check (${sql.ref(column)} >= 0)`.execute(db);
  await sql`create index payment_return_owed on payment_return (account_id) where owed > 0`.execute(db);
}
