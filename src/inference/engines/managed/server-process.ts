import { spawn, type ChildProcess } from 'node:child_process';
import { Readable, type Writable } from 'node:stream';

export interface ServerCommand {
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** All that it gets of an environment. */
  readonly variables: Readonly<Record<string, string>>;
  readonly directory: string;
}

/**
 * The program becomes the leader of a process group, beside a shell that reads a pipe from this process. When the pipe ends, because this
 * process has died in whatever way, or has closed it because the program has ended, the shell kills the group: the program and all that
 * it has started. It is not the program's child, which may wait for all of its own.
 */
const guarded =
  `( ( trap '' TERM INT HUP; while read -r _ <&3; do :; done; kill -KILL 0 ) </dev/null >/dev/null 2>&1 & ) ` +
  `&& exec 3<&- && exec "$@"`;

/** A server's process, from its start until it and all that it has started are gone. */
export class ServerProcess {
  readonly #child: ChildProcess;
  readonly #tail = new Tail();
  #keepsOutput = true;
  /** Set when it has been ready: from then on it may have requests. */
  wasReady = false;
  /** By another than this service, as the kernel does when memory is short. */
  wasKilled = false;
  /** Resolves when it has ended, with the reason in words. */
  readonly ended: Promise<string>;
  #hasEnded = false;
  #isStopped = false;

  constructor({ command, variables, directory }: ServerCommand) {
    const child = spawn('/bin/sh', ['-c', guarded, 'sh', ...command], {
      cwd: directory,
      env: variables,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    });
    this.#child = child;
    // Without file descriptors there are no pipes, and `error` follows.
    for (const output of [child.stdout, child.stderr].filter((each) => each instanceof Readable)) {
      output.setEncoding('utf8').on('error', () => {});
      output.on('data', (text: string) => {
        if (this.#keepsOutput) this.#tail.add(text);
      });
    }
    const guard = (child.stdio as ChildProcess['stdio'] | undefined)?.[3] as Writable | undefined;
    guard?.on('error', () => {});
    this.ended = new Promise((resolve) => {
      const end = (how: string): void => {
        this.#hasEnded = true;
        guard?.destroy();
        // What it has written may still be on its way.
        setImmediate(() => resolve(how));
      };
      child.on('error', (error) => {
        if (child.pid === undefined) end(error.message);
      });
      child.on('exit', (code, signal) => {
        // 137: a shell that started the program says so of it.
        this.wasKilled = !this.#isStopped && (signal === 'SIGKILL' || code === 137);
        const how = signal === null ? `it exited with code ${code}` : `it ended by ${signal}`;
        end(this.wasKilled ? `${how}, as the kernel ends a process when memory is short` : how);
      });
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** The last lines of its output, the latest last. */
  get lastLines(): readonly string[] {
    return this.#tail.lines;
  }

  /** Drops what it writes from now on: it may have to do with requests. */
  keepNoOutput(): void {
    this.#keepsOutput = false;
    this.#tail.clear();
  }

  /** Asks it to end, and ends it if it does not in time. Resolves when it is gone. */
  async stop(graceMs: number): Promise<void> {
    this.#signal('SIGTERM');
    const timer = setTimeout(() => this.kill(), graceMs);
    await this.ended;
    clearTimeout(timer);
  }

  kill(): void {
    this.#signal('SIGKILL');
  }

  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#child;
    if (pid === undefined || this.#hasEnded) return;
    this.#isStopped = true;
    try {
      process.kill(-pid, signal);
    } catch {
      // It has just ended.
    }
  }
}

const linesMax = 20;
const lineLengthMax = 300;

/** The end of an output. */
class Tail {
  #lines: string[] = [];
  #begun = '';

  get lines(): readonly string[] {
    return this.#begun === '' ? this.#lines : [...this.#lines, this.#begun].slice(-linesMax);
  }

  add(text: string): void {
    const lines = (this.#begun + text.slice(-linesMax * lineLengthMax)).split(/[\r\n]+/);
    this.#begun = printable(lines.pop() ?? '');
    this.#lines = [...this.#lines, ...lines.map(printable).filter(isOfUse)].slice(-linesMax);
  }

  clear(): void {
    this.#lines = [];
    this.#begun = '';
  }
}

/**
 * The frames of a Python traceback are left out: vLLM ends with one of sixty lines that says "See root cause above", and the cause is the last
 * line of the one before.
 */
const isOfUse = (line: string): boolean => line !== '' && !/^( {2}File "|\s{4})/.test(line);

/** Goes to terminals, without their control sequences. */
const printable = (line: string): string =>
  line
    // eslint-disable-next-line no-control-regex
    .replaceAll(/\u001b\[[0-9;]*[A-Za-z]|[\u0000-\u001f\u007f-\u009f]/g, '')
    .slice(0, lineLengthMax);
