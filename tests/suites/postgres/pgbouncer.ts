/** A real pooler of one test, in session mode, as docs/postgresql.md asks for. */
import { spawn, type ChildProcess } from 'node:child_process';
import { chownSync, cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { freePort } from '../../support/free-port.ts';
import { until } from '../../support/service.ts';
import { unprivileged } from './server.ts';

export class PgBouncer {
  readonly #folder: string;
  readonly #process: ChildProcess;
  readonly #port: number;
  #said = '';

  private constructor(folder: string, port: number) {
    this.#folder = folder;
    this.#port = port;
    this.#process = spawn(join(folder, 'pgbouncer'), [join(folder, 'pgbouncer.ini')], {
      ...unprivileged(),
      cwd: folder,
      env: { ...process.env, LD_LIBRARY_PATH: join(folder, 'lib') },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#process.stderr!.on('data', (text: Buffer) => (this.#said += text.toString()));
  }

  /** Before the server at this port. `close` it after the test. */
  static async start(serverPort: number): Promise<PgBouncer> {
    const { TOKENHOUSE_TEST_PGBOUNCER: file, TOKENHOUSE_TEST_PGBOUNCER_LIBRARIES: libraries = '' } = process.env;
    if (file === undefined) throw new Error('run these tests with: npm run suite postgres');
    const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-pgbouncer-'));
    // Its user may not be let into the folder where it was unpacked, which is below the home of another.
    cpSync(file, join(folder, 'pgbouncer'));
    for (const from of libraries.split(delimiter).filter((each) => each !== ''))
      cpSync(from, join(folder, 'lib'), { recursive: true, dereference: true });
    const port = await freePort();
    // Nothing that a distribution's file does not say, but for how soon it tries again.
    writeFileSync(
      join(folder, 'pgbouncer.ini'),
      `[databases]
* = host=127.0.0.1 port=${serverPort} user=tokenhouse
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = session
max_client_conn = 200
default_pool_size = 60
server_login_retry = 1
`,
    );
    const user = unprivileged();
    if (user !== undefined) chownSync(folder, user.uid, user.gid);
    const pooler = new PgBouncer(folder, port);
    await until(() => pooler.#listens(), 30_000);
    return pooler;
  }

  /** The same database, through the pooler. */
  url(url: string): string {
    const parts = new URL(url);
    parts.port = String(this.#port);
    return parts.href;
  }

  async close(): Promise<void> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      const ended = new Promise((resolve) => this.#process.once('close', resolve));
      this.#process.kill('SIGKILL');
      await ended;
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #listens(): Promise<boolean> {
    if (this.#process.exitCode !== null) throw new Error(`pgbouncer ended: ${this.#said}`);
    return new Promise((resolve) => {
      const socket = connect(this.#port, '127.0.0.1', () => (socket.destroy(), resolve(true)));
      socket.on('error', () => resolve(false));
    });
  }
}
