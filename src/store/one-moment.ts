import type { Kysely } from 'kysely';
import type { Database } from './database.ts';

/**
 * Runs reads that belong together on one snapshot: what a job moves from one table to another meanwhile is neither missed nor
 * counted twice. SQLite has no other kind of transaction. Within a transaction it is that one's snapshot.
 */
export const inOneMoment = <Value>(
  db: Kysely<Database>,
  read: (moment: Kysely<Database>) => Promise<Value>,
): Promise<Value> =>
  db.isTransaction
    ? read(db)
    : db.transaction().setAccessMode('read only').setIsolationLevel('repeatable read').execute(read);
