import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';

import { until } from './service.ts';

const timeoutMs = 120_000;

/** A program on a terminal of its own, as a person has it in front of them: keys go in, the screen comes out. */
export class Terminal {
  readonly #process: ChildProcess;
  readonly #ended: Promise<number | null>;
  #screen = '';

  /** Uses `script` of the system: util-linux on Linux, the BSD one on macOS. */
  constructor(
    command: readonly string[],
    options: { readonly folder: string; readonly environment?: Readonly<Record<string, string>> },
  ) {
    assert.notEqual(
      process.platform,
      'win32',
      'this test needs a terminal made by script(1); run it on Linux or macOS',
    );
    const line = command.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
    // `exec`, because some shells stay in between, and an interrupt then ends them instead.
    const args =
      process.platform === 'darwin' ? ['-q', '/dev/null', ...command] : ['-qefc', `exec ${line}`, '/dev/null'];
    this.#process = spawn('script', args, {
      cwd: options.folder,
      env: { ...process.env, TERM: 'xterm', ...options.environment },
      stdio: ['pipe', 'pipe', 'inherit'],
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
    });
    this.#process.stdout?.on('data', (text: Buffer) => (this.#screen += text.toString()));
    this.#ended = new Promise((resolve, reject) => {
      this.#process.once('error', () =>
        reject(
          new Error('this test needs the command `script`: apt install bsdutils, or dnf install util-linux-script'),
        ),
      );
      this.#process.once('close', (code) => resolve(code));
    });
    this.#ended.catch(() => {});
  }

  /** Everything so far, without what moves the cursor. */
  get screen(): string {
    return this.#screen.replaceAll(/\u001b\[[0-9;?]*[A-Za-z]/g, '').replaceAll('\r', '');
  }

  type(keys: string): void {
    this.#process.stdin?.write(keys);
  }

  /** Waits until the screen, from a mark on, shows something. */
  async shows(pattern: RegExp, from = 0): Promise<void> {
    await Promise.race([
      until(() => pattern.test(this.screen.slice(from)), timeoutMs),
      this.#ended.then(() => {
        if (!pattern.test(this.screen.slice(from))) throw new Error(`it ended without ${pattern}:\n${this.screen}`);
      }),
    ]);
  }

  ended(): Promise<number | null> {
    return this.#ended;
  }

  kill(): void {
    this.#process.kill('SIGTERM');
  }
}
