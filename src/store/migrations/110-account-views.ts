/** Accounts that operators look at as viewers. */
import { sql } from 'kysely';
import type { Step } from './step.ts';

export const accountViews: Step = {
  up: async (db, dialect) => {
    const integer = dialect === 'sqlite' ? 'integer' : 'bigint';
    const storage = dialect === 'sqlite' ? ' strict, without rowid' : '';
    await sql
      .raw(
        `create table "account_view" ("session_id" text not null primary key, "user_id" text not null, "account_id" text not null references "account" ("id"), "created_at" ${integer} not null, "expires_at" ${integer} not null)${storage}`,
      )
      .execute(db);
  },
};
