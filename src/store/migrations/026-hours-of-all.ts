import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';

/**
 * The job's index over the hours of all accounts is on `hour + 0`, so that no report can use it: hours lie in the table in the
 * order of time, so PostgreSQL estimated that index cheaper than the key, and read the hours of all accounts for one account's.
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
