import type { Kysely } from 'kysely';
import { columnTypes, type SchemaDialect } from './columns.ts';

/** Which models an account, and each of its keys, may use: a JSON list of ids in lower case; null: all of them. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text } = columnTypes(dialect);
  for (const table of ['account', 'api_key']) await db.schema.alterTable(table).addColumn('models', text).execute();
}
