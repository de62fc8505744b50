/** A PostgreSQL server of one test file: its own data in a temporary folder, a port of its own on 127.0.0.1, and fsync as asked. */
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import pg from 'pg';
import { migrate } from '../../../src/store/migrations/migrate.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { freePort } from '../../support/free-port.ts';
import { until } from '../../support/service.ts';

export interface User {
  readonly uid: number;
  readonly gid: number;
}

const startTimeoutMs = 60_000;

export class PostgresServer {
  readonly #folder: string;
  readonly #user: User | undefined;
  readonly #fsync: 'on' | 'off';
  readonly port: number;
  #process: ChildProcess | undefined;
  #said = '';
  #databases = 0;
  #withTables: Promise<string> | undefined;

  private constructor(folder: string, port: number, user: User | undefined, fsync: 'on' | 'off') {
    this.#fsync = fsync;
    this.#folder = folder;
    this.port = port;
    this.#user = user;
  }

  /** A server that runs. `dispose` it after the tests. Without `fsync` where nothing is about what survives. */
  static async start({ fsync = 'on' }: { readonly fsync?: 'on' | 'off' } = {}): Promise<PostgresServer> {
    const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-postgres-'));
    const user = unprivileged();
    if (user !== undefined) chownSync(folder, user.uid, user.gid);
    const server = new PostgresServer(folder, await freePort(), user, fsync);
    const words = ['-D', join(folder, 'data'), '-U', 'tokenhouse', '-A', 'trust', '-E', 'UTF8', '--locale=C'];
    execFileSync(program('initdb'), words, { ...server.#as(), stdio: ['ignore', 'ignore', 'pipe'] });
    await server.resume();
    return server;
  }

  /** Starts the server on the data that is there, after `kill`. Resolves when it takes connections. */
  async resume(): Promise<void> {
    const settings = {
      listen_addresses: '127.0.0.1',
      port: this.port,
      unix_socket_directories: '',
      fsync: this.#fsync,
    };
    const words = Object.entries({ ...settings, max_connections: 200, log_min_messages: 'panic' }).flatMap(
      ([name, value]) => ['-c', `${name}=${value}`],
    );
    const child = spawn(program('postgres'), ['-D', join(this.#folder, 'data'), ...words], {
      ...this.#as(),
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: true, // a group of its own, so that kill -9 takes its children too, as a machine that dies does
    });
    child.stderr.on('data', (text: Buffer) => (this.#said += text.toString()));
    this.#process = child;
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`postgres ended with ${child.exitCode}: ${this.#said}`);
      return await answers(this.url('postgres'));
    }, startTimeoutMs);
  }

  /** The process id of the server's parent process. */
  get pid(): number {
    return this.#process!.pid!;
  }

  url(database: string): string {
    return `postgres://tokenhouse@127.0.0.1:${this.port}/${database}`;
  }

  /**
   * A new database, empty or a copy of one to which nobody is connected: its address. Empty ones are for what is about the making of tables,
   * or about a first start.
   */
  async createDatabase(template = 'template1'): Promise<string> {
    const name = `test_${++this.#databases}`;
    await this.sql('postgres', `create database ${name} template ${template}`);
    return this.url(name);
  }

  /**
   * A new database that has the tables of this version, copied from one in which they were made: its address. To copy them takes a
   * tenth of the processor time that it takes to make them.
   */
  async databaseWithTables(): Promise<string> {
    this.#withTables ??= this.#makeTables();
    return await this.createDatabase(await this.#withTables);
  }

  async #makeTables(): Promise<string> {
    const name = 'with_tables';
    await this.sql('postgres', `create database ${name}`);
    const db = kyselyOnPostgres({ url: this.url(name) }, 1);
    try {
      await migrate(db, 'postgres');
    } finally {
      await db.destroy();
    }
    return name;
  }

  /** Runs statements as the administrator, on a connection of its own. */
  async sql(database: string, text: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
    const client = new pg.Client({ connectionString: database.includes('://') ? database : this.url(database) });
    await client.connect();
    try {
      return (await client.query<Record<string, unknown>>(text)).rows;
    } finally {
      await client.end();
    }
  }

  /** Ends the server and all its children at once; nothing is written any more. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('close', resolve));
    for (const pid of [...this.#family(), child.pid!]) signal(pid, 'SIGKILL');
    await ended;
  }

  /** Stops all of it as it is: connections stay, and nobody answers. */
  pause(): void {
    for (const pid of [this.#process!.pid!, ...this.#family()]) signal(pid, 'SIGSTOP');
  }

  unpause(): void {
    for (const pid of [this.#process!.pid!, ...this.#family()]) signal(pid, 'SIGCONT');
  }

  async dispose(): Promise<void> {
    this.unpause();
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Backends have groups of their own, so they are found by their parent. */
  #family(): readonly number[] {
    const { stdout } = spawnSync('ps', ['-o', 'pid=', '--ppid', String(this.#process!.pid)], { encoding: 'utf8' });
    return stdout.split('\n').filter(Boolean).map(Number);
  }

  #as(): { readonly uid?: number; readonly gid?: number; readonly cwd: string } {
    return { ...this.#user, cwd: this.#folder };
  }
}

const program = (name: string): string => {
  const folder = process.env['TOKENHOUSE_TEST_POSTGRES'];
  if (folder === undefined) throw new Error('run these tests with: npm run suite postgres');
  return join(folder, name);
};

/** Finds the programs of this server's version before any others, such as pg_dump. */
export const programsFirst = (): Readonly<Record<string, string>> => ({
  PATH: `${process.env['TOKENHOUSE_TEST_POSTGRES']}${delimiter}${process.env['PATH']}`,
});

/** PostgreSQL refuses to run as root: then as its own user where there is one, else as nobody. */
export function unprivileged(): User | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const { stdout } = spawnSync('getent', ['passwd', 'postgres'], { encoding: 'utf8' });
  const [, , uid, gid] = (stdout ?? '').split(':');
  return uid === undefined ? { uid: 65_534, gid: 65_534 } : { uid: Number(uid), gid: Number(gid) };
}

async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 1_000 });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('select 1');
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => {});
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has just ended by itself.
  }
}
