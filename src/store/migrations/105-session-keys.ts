/** Keys that live as long as a session of the console. */
import { sql } from 'kysely';
import type { Step } from './step.ts';

export const sessionKeys: Step = {
  up: async (db) => {
    await sql`alter table "api_key" add column "session_id" text`.execute(db);
    await sql`create index "api_key_session" on "api_key" ("session_id") where session_id is not null`.execute(db);
  },
};
