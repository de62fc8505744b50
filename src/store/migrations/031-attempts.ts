/** Which backends were tried for a request, and why. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';

export async function up(db: Kysely<Database>): Promise<void> {
  await sql`alter table usage add column backend_attempts text`.execute(db);
}
