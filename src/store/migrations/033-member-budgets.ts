/** Usage that is charged to the budget of a member names its balance. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';

export async function up(db: Kysely<Database>): Promise<void> {
  await sql`alter table "usage" add column "member_budget" text`.execute(db);
}
