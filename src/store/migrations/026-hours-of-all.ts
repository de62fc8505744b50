import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';

/**
 * The index by which the job finds the hours of all accounts is on `hour + 0`, so that no report can be read by it: hours lie in
 * the table in the order of time, so PostgreSQL took that index for cheaper than the key, and read the hours of all accounts for
 * one account's.
 */
export async function up(db: Kysely<Database>): Promise<void> {
  for (const table of ['usage_hour', 'usage_tag_hour']) {
    await db.schema.dropIndex(`${table}_hour`).execute();
    await db.schema
      .createIndex(`${table}_of_all`)
      .on(table)
      .expression(sql`(hour + 0)`)
      .execute();
  }
}
