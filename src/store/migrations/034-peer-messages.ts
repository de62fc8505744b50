/** What replicas tell each other. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export async function up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  const isSqlite = dialect === 'sqlite';
  const [create, bytes, integer, storage] = isSqlite
    ? ['create table', 'blob', 'integer', ' strict, without rowid']
    : ['create unlogged table', 'bytea', 'bigint', ''];
  await sql`${sql.raw(create!)} "peer_message" ("replica_id" ${sql.raw(bytes!)} not null, "number" ${sql.raw(integer!)} not null, "sent_at" ${sql.raw(integer!)} not null, "text" text not null, constraint "peer_message_key" primary key ("replica_id", "number"))${sql.raw(storage!)}`.execute(
    db,
  );
}
