/** Requests are signed by day: keys, heads, and the hashes below them. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';
import { immutable } from '../schema/triggers.ts';

export const heads = {
  up: async (db: Kysely<Database>, dialect: SchemaDialect): Promise<void> => {
    const integer = dialect === 'sqlite' ? 'integer' : 'bigint';
    const bytes = dialect === 'sqlite' ? 'blob' : 'bytea';
    const storage = dialect === 'sqlite' ? ' strict, without rowid' : '';
    for (const statement of [
      `create table "signing_key" ("id" text not null primary key, "number" ${integer} not null unique, "public_key" ${bytes} not null check (length(public_key) = 32), "created_at" ${integer} not null)${storage}`,
      `create table "day_head" ("day" ${integer} not null primary key, "root" ${bytes} not null, "previous" ${bytes}, "key_id" text not null references "signing_key" ("id"), "signed_at" ${integer} not null, "signature" ${bytes} not null)${storage}`,
      `create table "usage_head" ("account_id" text not null, "day" ${integer} not null, "requests" ${integer} not null, "late" ${integer} not null, "cost" ${integer} not null, "root" ${bytes} not null, "previous" ${bytes}, "hash" ${bytes} not null, constraint "usage_head_key" primary key ("account_id", "day"))${storage}`,
      `create index "usage_head_day" on "usage_head" ("day", "hash")`,
      `create table "usage_leaves" ("day" ${integer} not null, "account_id" text not null, "page" ${integer} not null, "root" ${bytes} not null, "leaves" ${bytes} not null, constraint "usage_leaves_key" primary key ("day", "account_id", "page"))${storage}`,
      ...['signing_key', 'day_head', 'usage_head'].flatMap((table) =>
        immutable(table, dialect, { isPartitioned: false, mayBeDeleted: undefined }),
      ),
    ])
      await sql.raw(statement).execute(db);
  },
};
