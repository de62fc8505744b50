/** Finds the requests of all accounts that ended in an hour. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export const endedUsage = {
  up: async (db: Kysely<Database>, dialect: SchemaDialect): Promise<void> => {
    if (dialect === 'sqlite') return;
    await sql`create index "usage_ended" on "usage" using brin ("ended_at") with (autosummarize = on)`.execute(db);
  },
};
