/** Hours of usage are summed when they are complete. Before, the last two were rewritten every minute and may be incomplete. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';

export const completeHours = {
  up: async (db: Kysely<Database>): Promise<void> => {
    const { rows } = await sql<{ last: bigint | null }>`select max(hour) as last from usage_hour`.execute(db);
    const last = rows[0]!.last;
    if (last === null) return;
    const first = Number(last) - 3_600_000;
    await sql`delete from usage_hour where hour >= ${first}`.execute(db);
    await sql`delete from usage_tag_hour where hour >= ${first}`.execute(db);
  },
};
