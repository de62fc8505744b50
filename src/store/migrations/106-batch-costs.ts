/** Finds what the lines of a batch have cost. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';

export const batchCosts = {
  up: async (db: Kysely<Database>): Promise<void> => {
    await sql`create index "usage_batch" on "usage" ("account_id", "batch_id", "cost") where batch_id is not null`.execute(
      db,
    );
  },
};
