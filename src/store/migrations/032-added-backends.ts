/** Servers that operators add to a source of backends. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export async function up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  const integer = sql.raw(dialect === 'sqlite' ? 'integer' : 'bigint');
  const storage = sql.raw(dialect === 'sqlite' ? ' strict, without rowid' : '');
  await sql`create table "added_backend" ("model_id" text not null, "source" text not null, "url" text not null, "rank" ${integer}, "weight" text, "added_at" ${integer} not null, constraint "added_backend_key" primary key ("model_id", "source", "url"))${storage}`.execute(
    db,
  );
}
