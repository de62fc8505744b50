import {
  CompiledQuery,
  type DatabaseConnection,
  type Driver,
  type QueryResult,
  type TransactionSettings,
} from 'kysely';
import pg from 'pg';
import { withDeadline } from '../../platform/deadline.ts';
import { clientConfig, dropSocket, durable, inTimeOf, type PostgresAddress } from './connection.ts';
import { isConnectionLost } from './postgres-error.ts';

export interface PoolOptions {
  readonly address: PostgresAddress;
  readonly connections: number;
  /** Longer statements are ended by the server, and soon after by this driver, regardless of the server's answer. */
  readonly statementMs?: number;
  /** Maximum time until a new connection can be used. */
  readonly connectMs?: number;
}

/** Longer reports are ended by the server; the ledger has separate connections. */
const reportTimeoutMs = 120_000;
/** Additional time for the server to report that it has ended a statement. */
const answerGraceMs = 5_000;
const connectTimeoutMs = 5_000;
/** How long users of a connection have to return it when the pool closes. */
const closeTimeoutMs = 2_000;

/**
 * A few connections for Kysely. A connection that fails in any way, from its first statement on, is closed and its slot freed. Kysely's own
 * driver leaks the slot of a connection that fails during setup, and returns a connection as healthy whose statement was abandoned and
 * still awaits its answer.
 */
export class PoolDriver implements Driver {
  readonly #pool: pg.Pool;
  readonly #open = new Set<pg.PoolClient>();
  readonly #connectionsMax: number;
  #acquired = 0;
  #heardAtMs = performance.now();
  /** The maximum time for which anything can keep a connection. */
  readonly acquiredMsMax: number;

  constructor({ address, connections, statementMs = reportTimeoutMs, connectMs = connectTimeoutMs }: PoolOptions) {
    this.#connectionsMax = connections;
    this.acquiredMsMax = statementMs + answerGraceMs;
    const pool = new pg.Pool({
      ...clientConfig(address),
      max: connections,
      idleTimeoutMillis: 60_000,
      allowExitOnIdle: true,
      query_timeout: this.acquiredMsMax,
      verify: (client, done) => {
        inTimeOf(client, connectMs, () => onConnect(client, statementMs)).then(
          () => done(),
          (error: Error) => {
            dropSocket(client);
            done(error);
          },
        );
      },
    });
    pool.on('error', () => {}); // an idle connection broke; the next query opens another one
    pool.on('connect', (client) => {
      this.#open.add(client);
      // A connection in use reports the error to its query; without this listener, pg would also end the process.
      client.on('error', () => {});
    });
    pool.on('remove', (client) => this.#open.delete(client as pg.PoolClient));
    this.#pool = pool;
  }

  /** Whether all connections are in use, so that a probe through them would only wait. */
  get isBusy(): boolean {
    return this.#acquired >= this.#connectionsMax;
  }

  /** How long the server has sent nothing on any of the connections. */
  get silentMs(): number {
    return performance.now() - this.#heardAtMs;
  }

  init(): Promise<void> {
    return Promise.resolve();
  }

  async acquireConnection(): Promise<PooledConnection> {
    const client = await this.#pool.connect();
    this.#acquired++;
    return new PooledConnection(client, () => (this.#heardAtMs = performance.now()));
  }

  releaseConnection(connection: DatabaseConnection): Promise<void> {
    this.#acquired--;
    (connection as PooledConnection).release();
    return Promise.resolve();
  }

  async beginTransaction(connection: DatabaseConnection, { isolationLevel }: TransactionSettings): Promise<void> {
    await within(connection, isolationLevel === undefined ? 'begin' : `begin isolation level ${isolationLevel}`);
  }

  async commitTransaction(connection: DatabaseConnection): Promise<void> {
    await within(connection, 'commit');
  }

  /** If the connection has broken, the server rolls back by itself, and the caller needs the reason for the break instead. */
  async rollbackTransaction(connection: DatabaseConnection): Promise<void> {
    if (!(connection as PooledConnection).isBroken) await within(connection, 'rollback');
  }

  /** Never takes longer than its timeout, regardless of the server and the users of connections. */
  async destroy(): Promise<void> {
    await withDeadline(this.#pool.end(), closeTimeoutMs, () => this.#open.forEach(dropSocket));
  }
}

/** Runs before a connection is first used. Nothing is in the startup packet, because poolers such as PgBouncer refuse it. */
async function onConnect(client: pg.ClientBase, statementMs: number): Promise<void> {
  await client.query(durable);
  // Compiling a report, and starting helpers for it, takes longer than running it.
  await client.query(
    `set jit = off; set max_parallel_workers_per_gather = 0; set statement_timeout = ${String(statementMs)}`,
  );
}

/** A connection whose transaction may still be open must not be passed on to another user. */
async function within(connection: DatabaseConnection, words: string): Promise<void> {
  try {
    await connection.executeQuery(CompiledQuery.raw(words));
  } catch (error) {
    (connection as PooledConnection).isBroken = true;
    throw error;
  }
}

class PooledConnection implements DatabaseConnection {
  readonly #client: pg.PoolClient;
  readonly #heard: () => void;
  isBroken = false;

  constructor(client: pg.PoolClient, heard: () => void) {
    this.#client = client;
    this.#heard = heard;
  }

  async executeQuery<Row>({ sql, parameters }: CompiledQuery): Promise<QueryResult<Row>> {
    try {
      const { command, rowCount, rows } = await this.#client.query<Row & object>(sql, [...parameters]);
      this.#heard();
      return ['INSERT', 'UPDATE', 'DELETE', 'MERGE'].includes(command)
        ? { rows, numAffectedRows: BigInt(rowCount ?? 0) }
        : { rows };
    } catch (error) {
      if (isConnectionLost(error)) this.isBroken = true;
      else this.#heard();
      throw error;
    }
  }

  streamQuery(): never {
    throw new Error('rows are read in pages here, never streamed');
  }

  release(): void {
    if (this.isBroken) dropSocket(this.#client);
    this.#client.release(this.isBroken);
  }
}
