import { PostgresAdapter, sql, type Kysely } from 'kysely';
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

/**
 * The same for reads of spans of all accounts' usage. The rows lie in the order of their end, which PostgreSQL does not count on: it would read a
 * whole month for each of its days (10 s instead of 1 s where a month has 33 million requests), and compile each statement for a second.
 */
export const inOrderOfTime = <Value>(
  db: Kysely<Database>,
  read: (moment: Kysely<Database>) => Promise<Value>,
): Promise<Value> =>
  inOneMoment(db, async (moment) => {
    if (moment.getExecutor().adapter instanceof PostgresAdapter)
      await sql`select set_config('random_page_cost', '1.1', true), set_config('jit', 'off', true)`.execute(moment);
    return await read(moment);
  });
