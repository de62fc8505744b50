import { sql, type Kysely, type RawBuilder } from 'kysely';
import type { Database } from '../database.ts';

/** Key of an advisory lock in the database, "tkhs" and a number; the others are in store.ts. */
const migrationLock = 0x746b6873_0001n;

/** Lets one process at a time create or change the tables; the others wait. The lock ends with the connection, even after kill -9. */
export function withSchemaLock<Value>(
  db: Kysely<Database>,
  work: (connection: Kysely<Database>) => Promise<Value>,
): Promise<Value> {
  return db.connection().execute(async (connection) => {
    await sql`select pg_advisory_lock(${migrationLock})`.execute(connection);
    try {
      return await work(connection);
    } finally {
      await releaseLock(
        connection,
        sql`select set_config('lock_timeout', '0', false), pg_advisory_unlock(${migrationLock})`,
      );
    }
  });
}

/** Runs the statement that gives a session's lock back. If it fails, the session ends with its locks: the pool would keep both. */
export async function releaseLock(connection: Kysely<Database>, statement: RawBuilder<unknown>): Promise<void> {
  await statement
    .execute(connection)
    .catch(() => sql`select pg_terminate_backend(pg_backend_pid())`.execute(connection))
    .catch(() => {});
}
