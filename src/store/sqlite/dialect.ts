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

/** A statement that SQLite has compiled. When tables have changed, SQLite compiles it again by itself. */
interface Compiled {
  readonly statement: ReturnType<Connection['prepare']>;
  readonly hasRows: boolean;
}

/** Texts with a list of many values are long and rarely come again. */
const keptTextMax = 4_096;
const keptStatementsMax = 256;

class SqliteSession implements DatabaseConnection {
  readonly #connection: Connection;
  /** By text, the one that was used last at the end: to compile one takes longer than to run it. */
  readonly #kept = new Map<string, Compiled>();

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    // A separate function, so that SQLite's exceptions become rejections.
    return new Promise((resolve) => {
      const { statement, hasRows } = this.#compiled(query.sql);
      if (hasRows) {
        resolve({ rows: statement.all(...query.parameters) as Row[] });
        return;
      }
      const { changes } = statement.run(...query.parameters);
      resolve({ rows: [], numAffectedRows: BigInt(changes) });
    });
  }

  #compiled(text: string): Compiled {
    let compiled = this.#kept.get(text);
    if (compiled === undefined) {
      const statement = this.#connection.prepare(text);
      compiled = { statement, hasRows: statement.columns().length > 0 };
      if (text.length > keptTextMax) return compiled;
    } else this.#kept.delete(text);
    this.#kept.set(text, compiled);
    if (this.#kept.size > keptStatementsMax) this.#kept.delete(this.#kept.keys().next().value!);
    return compiled;
  }

  async *streamQuery<Row>(): AsyncIterableIterator<QueryResult<Row>> {
    throw new Error('streaming is not supported; read in pages');
  }
}
