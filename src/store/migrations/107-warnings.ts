/** What a request asked for and did not get. */
import { sql } from 'kysely';
import type { Step } from './step.ts';

export const warnings: Step = {
  up: async (db) => {
    await sql`alter table "usage" add column "warnings" text`.execute(db);
  },
};
