/** Errors of requests by minute, and the last refused requests of each account. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export const refusals = {
  up: async (db: Kysely<Database>, dialect: SchemaDialect): Promise<void> => {
    const integer = dialect === 'sqlite' ? 'integer' : 'bigint';
    const bytes = dialect === 'sqlite' ? 'blob' : 'bytea';
    const storage = dialect === 'sqlite' ? ' strict, without rowid' : '';
    for (const statement of [
      `create table "error_count" ("account_id" text not null, "minute" ${integer} not null, "key_id" text not null, "model_id" text not null, "code" text not null, "refusals" ${integer} not null, "failures" ${integer} not null, constraint "error_count_key" primary key ("account_id", "minute", "key_id", "model_id", "code"))${storage}`,
      `create index "error_count_age" on "error_count" ("minute")`,
      `create index "error_count_fold" on "error_count" ("minute") where minute % 3600000 <> 0`,
      `create table "refused_request" ("account_id" text not null, "request_id" ${bytes} not null, "public_id" text not null, "client_id" text, "at" ${integer} not null, "key_id" text not null, "model" text, "code" text not null, "message" text, constraint "refused_request_key" primary key ("account_id", "request_id"))${storage}`,
      `create index "refused_request_public" on "refused_request" ("public_id")`,
    ])
      await sql.raw(statement).execute(db);
  },
};
