/** Budgets of keys and accounts for single models. */
import { sql } from 'kysely';
import type { Step } from './step.ts';

export const modelBudgets: Step = {
  up: async (db) => {
    await sql`alter table "budget" add column "owner" text`.execute(db);
    await sql`alter table "budget" add column "model_id" text`.execute(db);
    await sql`create index "budget_owner" on "budget" ("owner") where owner is not null`.execute(db);
  },
};
