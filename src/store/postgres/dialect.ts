import { CompiledQuery, Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { Database } from '../database.ts';
import { clientConfig, durable, type PostgresAddress } from './connection.ts';

/** A report that takes longer is ended by the server; the ledger has connections of its own. */
const reportTimeoutMs = 120_000;

/** Kysely on a few connections of its own. Close with `destroy()`. */
export function kyselyOnPostgres(address: PostgresAddress, connections: number): Kysely<Database> {
  const pool = new pg.Pool({
    ...clientConfig(address),
    max: connections,
    idleTimeoutMillis: 60_000,
    allowExitOnIdle: true,
    statement_timeout: reportTimeoutMs,
    query_timeout: reportTimeoutMs + 5_000,
  });
  pool.on('error', () => {}); // an idle connection broke; the next query makes another one
  return new Kysely<Database>({
    dialect: new PostgresDialect({
      pool,
      onCreateConnection: async (connection) => {
        await connection.executeQuery(CompiledQuery.raw(durable));
      },
    }),
  });
}
