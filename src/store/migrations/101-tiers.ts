/** The service tier that served a request, and its wait for a slot. */
import { sql } from 'kysely';
import type { Step } from './step.ts';

export const tiers: Step = {
  up: async (db) => {
    for (const column of ['tier', 'queued'])
      await sql.raw(`alter table "usage" add column "${column}" text`).execute(db);
  },
};
