import {
  CompiledQuery,
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
  type TransactionSettings,
} from 'kysely';
import type { Database } from '../database.ts';
import { openReadOnlyConnection, type Connection } from './connection.ts';

/** Kysely on one connection. `destroy` closes the connection. */
export function kyselyOn(connection: Connection): Kysely<Database> {
  return new Kysely<Database>({ dialect: sqliteDialect(connection) });
}

/** For the CLI: the service's queries on a file that the service may have open. Close with `destroy()`. */
export function openReadOnly(file: string): Kysely<Database> {
  return kyselyOn(openReadOnlyConnection(file));
}

function sqliteDialect(connection: Connection): Dialect {
  return {
    createAdapter: () => new TransactionalAdapter(),
    createDriver: () => new SqliteDriver(connection),
    createIntrospector: (db) => new SqliteIntrospector(db),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  };
}

class TransactionalAdapter extends SqliteAdapter {
  /** SQLite's DDL is transactional: a migration that dies midway leaves nothing behind. */
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

class SqliteDriver implements Driver {
  readonly #connection: Connection;
  readonly #session: DatabaseConnection;
  #released: Promise<void> = Promise.resolve();
  #release: () => void = () => {};

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#session = new SqliteSession(connection);
  }

  init(): Promise<void> {
    return Promise.resolve();
  }

  /** One at a time, so that no other query slips into an open transaction. */
  async acquireConnection(): Promise<DatabaseConnection> {
    const before = this.#released;
    let release = (): void => {};
    this.#released = new Promise((resolve) => (release = resolve));
    await before;
    this.#release = release;
    return this.#session;
  }

  releaseConnection(): Promise<void> {
    this.#release();
    return Promise.resolve();
  }

  /** Writers lock immediately: a transaction that reads first and writes later can fail with SQLITE_BUSY_SNAPSHOT (reliability D7). */
  async beginTransaction(session: DatabaseConnection, settings: TransactionSettings): Promise<void> {
    await session.executeQuery(CompiledQuery.raw(settings.accessMode === 'read only' ? 'begin' : 'begin immediate'));
  }

  async commitTransaction(session: DatabaseConnection): Promise<void> {
    await session.executeQuery(CompiledQuery.raw('commit'));
  }

  async rollbackTransaction(session: DatabaseConnection): Promise<void> {
    if (this.#connection.isTransaction) await session.executeQuery(CompiledQuery.raw('rollback')); // SQLite may have done it
  }

  destroy(): Promise<void> {
    if (this.#connection.isOpen) this.#connection.close();
    return Promise.resolve();
  }
}

class SqliteSession implements DatabaseConnection {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    // A separate function, so that SQLite's exceptions become rejections.
    return new Promise((resolve) => {
      const statement = this.#connection.prepare(query.sql);
      if (statement.columns().length > 0) {
        resolve({ rows: statement.all(...query.parameters) as Row[] });
        return;
      }
      const { changes } = statement.run(...query.parameters);
      resolve({ rows: [], numAffectedRows: BigInt(changes) });
    });
  }

  async *streamQuery<Row>(): AsyncIterableIterator<QueryResult<Row>> {
    throw new Error('streaming is not supported; read in pages');
  }
}
