import {
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type CompiledQuery,
  type DatabaseConnection,
  type Driver,
} from 'kysely';
import type { Database } from '../database.ts';
import type { PostgresAddress, Session } from './connection.ts';
import { PoolDriver } from './pool-driver.ts';

/** Kysely on a few dedicated connections. Close with `destroy()`. */
export function kyselyOnPostgres(address: PostgresAddress, connections: number): Kysely<Database> {
  return kyselyOn(new PoolDriver({ address, connections }));
}

export function kyselyOn(driver: Driver): Kysely<Database> {
  return new Kysely<Database>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => driver,
      createIntrospector: (db) => new PostgresIntrospector(db),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  });
}

/** Kysely on a connection owned by someone else: for single statements that need a timeout. */
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
  return kyselyOn(driver);
}

function refused(): never {
  throw new Error('single statements only');
}
