import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { StoreError } from '../store-error.ts';
import { isConnectionLost, sqlState } from './postgres-error.ts';

export const connectTimeoutMs = 3_000;
/** Failed connections are retried after a pause that grows to this, half of it random (reliability D3). */
const pauseMaxMs = 1_000;
/** The first version with `materialized`, which the ledger's statements need. */
const oldestServer = 120_000;

/** Address of the database; the URL may contain a password, so it is never shown. */
export interface PostgresAddress {
  readonly url: string;
  /** The password if it is not in the URL. Without one, the driver reads the user's password file (`PGPASSFILE`). */
  readonly password?: string | undefined;
}

export function clientConfig({ url, password }: PostgresAddress): pg.ClientConfig {
  return {
    connectionString: password === undefined ? url : withPassword(url, password),
    connectionTimeoutMillis: connectTimeoutMs,
    application_name: 'tokenhouse',
    keepAlive: true,
    types: { getTypeParser: typeParser },
  };
}

function withPassword(url: string, password: string): string {
  const parts = new URL(url);
  parts.password = encodeURIComponent(password);
  return parts.href;
}

const parsers: Readonly<Record<number, (text: string) => unknown>> = {
  20: BigInt, // int8
  23: BigInt, // int4
  1700: BigInt, // numeric: what sum() of bigint gives, always whole
  16: (text) => text === 't',
  17: bytesOf,
};

/** Every integer is read as bigint, as on SQLite (store/schema/column.ts); everything else stays text. */
function typeParser(oid: number): (text: string) => unknown {
  return parsers[oid] ?? String;
}

/** Returns a copy: a view into the driver's buffer would change later. */
function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(Buffer.from(text.slice(2), 'hex')); // \x…
}

/**
 * Set on each connection that writes (M10), so that acknowledged data has reached the disk. A server configured with a stronger guarantee,
 * such as a synchronous standby, keeps it.
 */
export const durable = `select set_config('synchronous_commit',
    case when current_setting('synchronous_commit') = 'off' then 'on' else current_setting('synchronous_commit') end, false),
  set_config('default_transaction_isolation', 'read committed', false),
  set_config('idle_in_transaction_session_timeout', '10000', false)`;

/** Throws if the server is not suitable for the ledger. */
export async function refuseUnfitServer(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query<{ version: string; encoding: string; writable: string }>(
    `select current_setting('server_version_num') as version, current_setting('server_encoding') as encoding,
       current_setting('transaction_read_only') as writable`,
  );
  const { version, encoding, writable } = rows[0]!;
  if (Number(version) < oldestServer)
    throw new StoreError('unusable', `PostgreSQL 12 or later is needed, and the server is ${version}. Upgrade it.`);
  if (encoding !== 'UTF8')
    throw new StoreError(
      'unusable',
      `The database has the encoding ${encoding}. Create one with: createdb --encoding UTF8 --template template0 …`,
    );
  if (writable === 'on')
    throw new StoreError(
      'unusable',
      'The database is read-only: it is a standby, or set to read only. Set `storage` to the primary.',
    );
}

/** Destroys the socket immediately: ending the session properly would wait for a server that does not answer. */
export function dropSocket(client: pg.ClientBase): void {
  (client as unknown as { readonly connection: { readonly stream: { destroy(): void } } }).connection.stream.destroy();
}

/** Fails pending statements after a timeout: the server may be silent rather than gone, like a pooler whose server is away. */
export async function inTimeOf<Value>(
  client: pg.ClientBase,
  timeoutMs: number,
  work: () => Promise<Value>,
): Promise<Value> {
  const timer = setTimeout(() => dropSocket(client), timeoutMs);
  try {
    return await work();
  } finally {
    clearTimeout(timer);
  }
}

/** Converts a failure to reach the database into instructions for the operator. */
export function unreachable(error: unknown, shown: string): StoreError {
  if (error instanceof StoreError) return error;
  const reason = error instanceof Error ? error.message || reasonOf(error) : String(error);
  switch (sqlState(error) ?? '') {
    case '3D000':
      return new StoreError(
        'unusable',
        `${shown}: the database does not exist. Create it once: createdb --encoding UTF8 …`,
        error,
      );
    case '28P01':
    case '28000':
      return new StoreError('unusable', `${shown} refuses this user: ${reason}. Check user and password.`, error);
  }
  return new StoreError(
    'unusable',
    `${shown} cannot be reached: ${reason}. Check that PostgreSQL is running there and that \`storage\` is its address.`,
    error,
  );
}

/** The reason of an error without a message, as when every address of a host has refused. */
function reasonOf(error: Error): string {
  if (error instanceof AggregateError) return (error.errors as Error[]).map((one) => one.message).join(', ');
  return 'code' in error ? String(error.code) : error.name;
}

export interface SessionOptions {
  readonly address: PostgresAddress;
  /** Runs on each new connection before anything else. */
  readonly onConnect?: (client: pg.Client) => Promise<void>;
  readonly onNotification?: (payload: string) => void;
  /** Called when the server has answered. */
  readonly onAnswer?: () => void;
}

interface Answer<Row> {
  readonly rows: readonly Row[];
  readonly count: number;
}

export type Statement = { readonly name: string; readonly text: string } | { readonly text: string };

/** Runs statements one at a time on a connection that is re-established when it breaks. */
export class Session {
  readonly #options: SessionOptions;
  #client: pg.Client | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #failures = 0;
  #closed = false;

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  /** Rejects with the driver's error. After a connection was lost, the next call opens another one. */
  query<Row extends object>(statement: Statement, values: readonly unknown[], timeoutMs: number): Promise<Answer<Row>> {
    return this.exclusively(timeoutMs, (run) => run<Row>(statement, values));
  }

  /** Gives the connection to one caller for several statements, with one timeout for all of them. */
  exclusively<Value>(timeoutMs: number, work: (run: Run) => Promise<Value>): Promise<Value> {
    const turn = this.#last.then(
      () => this.#work(timeoutMs, work),
      () => this.#work(timeoutMs, work),
    );
    this.#last = turn;
    return turn;
  }

  async #work<Value>(timeoutMs: number, work: (run: Run) => Promise<Value>): Promise<Value> {
    const client = await this.#connected();
    // The server is silent rather than gone: waiting for it indefinitely would block the next caller.
    const timer = setTimeout(() => this.#drop(client), timeoutMs);
    try {
      return await work(async (statement, values) => {
        const result = await client.query({ ...statement, values: [...values] });
        this.#options.onAnswer?.();
        return { rows: result.rows as never[], count: result.rowCount ?? 0 };
      });
    } catch (error) {
      if (isConnectionLost(error)) this.#drop(client);
      else this.#options.onAnswer?.();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #connected(): Promise<pg.Client> {
    if (this.#closed) throw new StoreError('failed', 'the store is closed');
    if (this.#client !== undefined) return this.#client;
    if (this.#failures > 0) {
      const pauseMs = Math.min(25 * 2 ** this.#failures, pauseMaxMs);
      // Closing the store waits for this too: with an unreferenced timer the process would end in the middle of it.
      await sleep(pauseMs * (0.5 + Math.random() / 2));
    }
    const client = new pg.Client(clientConfig(this.#options.address));
    client.on('error', () => this.#drop(client));
    client.on('end', () => this.#drop(client));
    const { onNotification } = this.#options;
    if (onNotification !== undefined) client.on('notification', ({ payload }) => onNotification(payload ?? ''));
    try {
      await inTimeOf(client, 2 * connectTimeoutMs, async () => {
        await client.connect();
        await client.query(durable);
        await this.#options.onConnect?.(client);
      });
      this.#failures = 0;
      this.#client = client;
      return client;
    } catch (error) {
      this.#failures = Math.min(this.#failures + 1, 10);
      this.#drop(client);
      throw error;
    }
  }

  #drop(client: pg.Client): void {
    if (this.#client === client) this.#client = undefined;
    dropSocket(client);
  }

  /** Closes after all waiting work. */
  async close(): Promise<void> {
    await this.#last.catch(() => {});
    this.#closed = true;
    const client = this.#client;
    this.#client = undefined;
    if (client === undefined) return;
    client.removeAllListeners('end');
    const timer = setTimeout(() => this.#drop(client), 1_000);
    await client.end().catch(() => {});
    clearTimeout(timer);
  }
}

export type Run = <Row extends object>(statement: Statement, values: readonly unknown[]) => Promise<Answer<Row>>;
