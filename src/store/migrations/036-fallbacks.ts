/** Usage says which model was asked for where another one served. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';

export async function up(db: Kysely<Database>): Promise<void> {
  await sql`alter table "usage" add column "fallbacks" text`.execute(db);
}
