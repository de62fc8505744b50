import { createHash } from 'node:crypto';
import { Worker } from 'node:worker_threads';
import { entryUrl } from '../../platform/entries.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import type { Constraint, EngineConstraint } from '../../generation/request.ts';
import type { CompileOrder, Compiled, CompileReply } from './compile-thread.ts';

export interface ConstraintsOptions {
  /** Bounds on the grammars kept: their number, and their bytes. */
  readonly grammarsMax?: number;
  readonly bytesMax?: number;
  /** How many constraints may wait for the thread; further ones are refused. */
  readonly waitingMax?: number;
  /** Time limit for one constraint. Its steps are bounded too, so this is for a machine that stands still. */
  readonly timeLimitMs?: number;
}

interface Job {
  readonly order: CompileOrder;
  resolve(compiled: Compiled): void;
  reject(error: unknown): void;
}

/**
 * Compiles constraints on a thread of its own, because a hostile one takes 100 ms of CPU, and remembers the newest, because a
 * program sends the same schema with every request.
 */
export class Constraints {
  readonly #options: Required<ConstraintsOptions>;
  /** By the digest of what was compiled, least recently used first. */
  readonly #grammars = new Map<string, Compiled>();
  #bytes = 0;
  /** Constraints being compiled, shared with other requests that send the same one. */
  readonly #running = new Map<string, Promise<Compiled>>();
  readonly #waiting: Job[] = [];
  #thread: Worker | undefined;
  #job: Job | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ConstraintsOptions = {}) {
    this.#options = {
      grammarsMax: 512,
      bytesMax: 32 * 1024 * 1024,
      waitingMax: 256,
      timeLimitMs: 10_000,
      ...options,
    };
  }

  /** Number of grammars remembered. */
  get count(): number {
    return this.#grammars.size;
  }

  /**
   * Rejects with 400 for what is broken, too large or cannot be enforced (contracts decisions 13 and 15), and with
   * `backend_at_capacity` when there is more to compile than the thread can take. `retain: false`: nothing of the constraint
   * outlives its compilation (§4.2.6). `at` is the field that holds the constraint, for the `param` of an error.
   */
  async compile(source: Constraint, at: string, retain: boolean): Promise<EngineConstraint> {
    if (!retain) return { source, ...(await this.#run({ source, at })) };
    const key = createHash('sha256')
      .update(JSON.stringify([source, at]))
      .digest('base64');
    const known = this.#grammars.get(key);
    if (known !== undefined) {
      this.#forget(key);
      this.#remember(key, known);
      return { source, ...known };
    }
    let running = this.#running.get(key);
    if (running === undefined) {
      running = this.#run({ source, at });
      this.#running.set(key, running);
      running.then(
        (compiled) => {
          this.#running.delete(key);
          this.#remember(key, compiled);
        },
        () => this.#running.delete(key),
      );
    }
    return { source, ...(await running) };
  }

  async close(): Promise<void> {
    for (const job of this.#waiting.splice(0)) job.reject(atCapacity(this.#options.waitingMax));
    await this.#end();
  }

  #remember(key: string, compiled: Compiled): void {
    const { grammarsMax, bytesMax } = this.#options;
    this.#grammars.set(key, compiled);
    this.#bytes += bytesOf(compiled);
    for (const oldest of this.#grammars.keys()) {
      if (this.#grammars.size <= grammarsMax && this.#bytes <= bytesMax) return;
      this.#forget(oldest);
    }
  }

  #forget(key: string): void {
    const known = this.#grammars.get(key);
    this.#bytes -= known === undefined ? 0 : bytesOf(known);
    this.#grammars.delete(key);
  }

  #run(order: CompileOrder): Promise<Compiled> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.length >= this.#options.waitingMax) {
        reject(atCapacity(this.#options.waitingMax));
        return;
      }
      this.#waiting.push({ order, resolve, reject });
      this.#next();
    });
  }

  #next(): void {
    if (this.#job !== undefined) return;
    this.#job = this.#waiting.shift();
    if (this.#job === undefined) {
      this.#thread?.unref();
      return;
    }
    this.#thread ??= this.#start();
    this.#thread.ref();
    this.#timer = setTimeout(() => void this.#end(), this.#options.timeLimitMs);
    this.#thread.postMessage(this.#job.order);
  }

  #start(): Worker {
    const thread = new Worker(entryUrl('compile-thread'), {
      name: 'constraints',
      resourceLimits: { maxOldGenerationSizeMb: 512 },
    });
    thread.on('message', (reply: CompileReply) => {
      // From a thread that took too long, just before it ended: another thread has another constraint now.
      if (this.#thread !== thread) return;
      const job = this.#job;
      this.#job = undefined;
      clearTimeout(this.#timer);
      if ('gbnf' in reply) job?.resolve(reply);
      else job?.reject(new ApiError(reply.code, reply.message, { param: reply.param }));
      this.#next();
    });
    // A fault of our own: the next constraint gets a new thread.
    const died = (): void => {
      if (this.#thread === thread) void this.#end(new Error('the thread that compiles constraints has died'));
    };
    thread.on('error', died).on('exit', died).on('messageerror', died);
    return thread;
  }

  /** Ends the thread and the constraint it is working on; those that wait continue on another thread. */
  async #end(reason: Error = atCapacity(this.#options.waitingMax)): Promise<void> {
    const thread = this.#thread;
    this.#thread = undefined;
    clearTimeout(this.#timer);
    this.#job?.reject(reason);
    this.#job = undefined;
    this.#next();
    await thread?.terminate();
  }
}

const bytesOf = ({ gbnf, program }: Compiled): number => gbnf.length + program.byteLength;

const atCapacity = (waitingMax: number): ApiError =>
  new ApiError('backend_at_capacity', 'Constraints cannot be compiled now. Try again shortly.', atCap(waitingMax, 1));
