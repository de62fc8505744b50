import {
  CompiledQuery,
  Kysely,
  PostgresAdapter,
  PostgresDialect,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type DatabaseConnection,
  type Driver,
} from 'kysely';
import pg from 'pg';
import type { Database } from '../database.ts';
import { clientConfig, durable, type PostgresAddress, type Session } from './connection.ts';

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
  // One in use tells its query; without a listener of its own, pg would end the process besides.
  pool.on('connect', (client) => client.on('error', () => {}));
  return new Kysely<Database>({
    dialect: new PostgresDialect({
      pool,
      onCreateConnection: async (connection) => {
        await connection.executeQuery(CompiledQuery.raw(durable));
        // Compiling a report, and starting helpers for it, takes longer than running it.
        await connection.executeQuery(CompiledQuery.raw('set jit = off; set max_parallel_workers_per_gather = 0'));
      },
    }),
  });
}

/** Kysely on a connection that has an owner already: for single statements that must end in time. */
export function kyselyOnSession(session: Session, timeoutMs: number): Kysely<Database> {
  const connection: DatabaseConnection = {
    executeQuery: async <Row>({ sql, parameters }: CompiledQuery) => {
      const { rows, count } = await session.query({ text: sql }, parameters, timeoutMs);
      return { rows: rows as Row[], numAffectedRows: BigInt(count) };
    },
    streamQuery: refused,
  };
  const nothing = (): Promise<void> => Promise.resolve();
  const driver: Driver = {
    init: nothing,
    acquireConnection: () => Promise.resolve(connection),
    beginTransaction: refused,
    commitTransaction: refused,
    rollbackTransaction: refused,
    releaseConnection: nothing,
    destroy: nothing, // its owner closes it
  };
  return new Kysely<Database>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => driver,
      createIntrospector: (db) => new PostgresIntrospector(db),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  });
}

function refused(): never {
  throw new Error('single statements only');
}
