import type { Kysely } from 'kysely';
import type { Database } from './database.ts';

/**
 * Runs related reads on one snapshot: rows that a job moves from one table to another meanwhile are neither missed nor counted twice.
 * SQLite has no other kind of transaction. Within a transaction it uses that transaction's snapshot.
 */
export const inOneMoment = <Value>(
  db: Kysely<Database>,
  read: (moment: Kysely<Database>) => Promise<Value>,
): Promise<Value> =>
  db.isTransaction
    ? read(db)
    : db.transaction().setAccessMode('read only').setIsolationLevel('repeatable read').execute(read);
