import { createHash } from 'node:crypto';
import { entryUrl } from '../../platform/entries.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import type { Constraint, EngineConstraint } from '../../generation/request.ts';
import { ThreadPool } from '../../platform/rpc/thread-pool.ts';
import type { CompileCalls, Compiled } from './compile-thread.ts';

export interface ConstraintsOptions {
  /** Bounds on the grammars kept: their number, and their bytes. */
  readonly grammarsMax?: number;
  readonly bytesMax?: number;
  /** How many constraints may wait for the thread; further ones are refused. */
  readonly waitingMax?: number;
  /** Time limit for one constraint. Its steps are bounded too, so this is for a machine that stands still. */
  readonly timeLimitMs?: number;
}

/**
 * Compiles constraints on a thread of its own, because a hostile one takes 100 ms of CPU, and remembers the newest, because a
 * program sends the same schema with every request.
 */
export class Constraints {
  readonly #grammarsMax: number;
  readonly #bytesMax: number;
  readonly #pool: ThreadPool<CompileCalls>;
  /** By the digest of what was compiled, least recently used first. */
  readonly #grammars = new Map<string, Compiled>();
  #bytes = 0;
  /** Constraints being compiled, shared with other requests that send the same one. */
  readonly #running = new Map<string, Promise<Compiled>>();

  constructor({ grammarsMax, bytesMax, waitingMax = 256, timeLimitMs = 10_000 }: ConstraintsOptions = {}) {
    this.#grammarsMax = grammarsMax ?? 512;
    this.#bytesMax = bytesMax ?? 32 * 1024 * 1024;
    this.#pool = new ThreadPool({
      program: entryUrl('compile-thread'),
      name: 'constraints',
      resourceLimits: { maxOldGenerationSizeMb: 512 },
      threadsMax: 1,
      waitingMax,
      timeLimitMs,
      idleMs: Infinity,
      refusal: (why) =>
        why === 'died' ? new Error('the thread that compiles constraints has died') : atCapacity(waitingMax),
    });
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
    if (!retain) return { source, ...(await this.#pool.call('compile', { source, at })) };
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
      running = this.#pool.call('compile', { source, at });
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

  close(): Promise<void> {
    return this.#pool.close();
  }

  #remember(key: string, compiled: Compiled): void {
    this.#grammars.set(key, compiled);
    this.#bytes += bytesOf(compiled);
    for (const oldest of this.#grammars.keys()) {
      if (this.#grammars.size <= this.#grammarsMax && this.#bytes <= this.#bytesMax) return;
      this.#forget(oldest);
    }
  }

  #forget(key: string): void {
    const known = this.#grammars.get(key);
    this.#bytes -= known === undefined ? 0 : bytesOf(known);
    this.#grammars.delete(key);
  }
}

const bytesOf = ({ gbnf, program }: Compiled): number => gbnf.length + program.byteLength;

const atCapacity = (waitingMax: number): ApiError =>
  new ApiError(
    'backend_at_capacity',
    'Constraints cannot be compiled at the moment. Try again shortly.',
    atCap(waitingMax, 1),
  );
