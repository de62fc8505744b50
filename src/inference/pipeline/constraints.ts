import { createHmac, randomBytes } from 'node:crypto';
import { entryUrl } from '../../platform/entries.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import { FairPlaces } from '../../platform/fair-places.ts';
import { memoryLimitBytes } from '../../platform/memory.ts';
import { Remembered } from '../../platform/remembered.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { Constraint, EngineConstraint } from '../../generation/request.ts';
import { ThreadPool } from '../../platform/rpc/thread-pool.ts';
import type { CompileCalls, Compiled, CompileOrder } from './compile-thread.ts';

export interface ConstraintsOptions {
  /** Bounds on the cached grammars: their number, and their bytes. */
  readonly grammarsMax?: number;
  readonly bytesMax?: number;
  /** How many constraints may wait for a thread; further ones are refused. */
  readonly waitingMax?: number;
  readonly waitMsMax?: number;
  /** Time limit for one constraint. Its steps are bounded too, so this only matters on a stalled machine. */
  readonly timeLimitMs?: number;
}

/** The account that asks for a constraint; the signal ends its wait. */
export interface CompileCall {
  readonly accountId: string;
  /** false: nothing of the constraint outlives its compilation (§4.2.6). */
  readonly retain: boolean;
  readonly signal: StopSignal;
}

/** Concurrent compilations: two, and one per account, so that one account never keeps another waiting. */
const threadsMax = 2;
const perAccountMax = 1;
const refusedMax = 1_024;
const refusedForMs = 300_000;

/**
 * Compiles constraints on separate threads, because a hostile one takes 100 ms of CPU, and caches the newest, because a program sends the
 * same schema with every request. Accounts take turns, and each has its own cache: the time that a constraint takes reveals nothing about
 * what others have sent.
 */
export class Constraints {
  readonly #grammarsMax: number;
  readonly #bytesMax: number;
  readonly #pool: ThreadPool<CompileCalls>;
  readonly places: FairPlaces;
  /** Grammars by the digest of account and constraint, least recently used first. */
  readonly #grammars = new Map<string, Compiled>();
  #bytes = 0;
  /** Errors of constraints that cannot be compiled, by the same digest. */
  readonly #refused = new Remembered<ApiError>({ entriesMax: refusedMax, forMs: refusedForMs });
  readonly #secret = randomBytes(32);

  constructor({
    grammarsMax,
    bytesMax,
    waitingMax = 256,
    waitMsMax = 10_000,
    timeLimitMs = 10_000,
  }: ConstraintsOptions = {}) {
    this.#grammarsMax = grammarsMax ?? 512;
    this.#bytesMax = bytesMax ?? 32 * 1024 * 1024;
    this.places = new FairPlaces({
      placesMax: threadsMax,
      perAccountMax,
      waitingMax,
      waitMsMax,
      refusal: atCapacity,
    });
    this.#pool = new ThreadPool({
      program: entryUrl('compile-thread'),
      name: 'constraints',
      // Exceeding it ends only the thread.
      resourceLimits: { maxOldGenerationSizeMb: Math.min(512, Math.ceil(memoryLimitBytes() / 4_194_304)) },
      threadsMax,
      // Every caller holds a place.
      waitingMax: 0,
      timeLimitMs,
      idleMs: Infinity,
      refusal: (why) =>
        why === 'died' ? new Error('the thread that compiles constraints has died') : atCapacity(waitingMax),
    });
  }

  /** Number of cached grammars. */
  get count(): number {
    return this.#grammars.size;
  }

  /**
   * Rejects with 400 for constraints that are invalid, too large or cannot be enforced (contracts decisions 13 and 15), and with
   * `backend_at_capacity` when there is more to compile than the threads can take. `at` is the field that holds the constraint, for the
   * `param` of an error.
   */
  async compile(source: Constraint, at: string, { accountId, retain, signal }: CompileCall): Promise<EngineConstraint> {
    if (!retain) {
      const compiled = await this.places.hold(accountId, signal, () => this.#pool.call('compile', { source, at }));
      return { source, ...compiled };
    }
    const name = createHmac('sha256', this.#secret)
      .update(JSON.stringify([accountId, source, at]))
      .digest('base64');
    const known = this.#known(name);
    if (known !== undefined) return { source, ...known };
    const compiled = await this.places.hold(accountId, signal, async () => {
      // Another request of the account may have compiled the same constraint while this one waited.
      return this.#known(name) ?? (await this.#compiled(name, { source, at }));
    });
    return { source, ...compiled };
  }

  #known(name: string): Compiled | undefined {
    const refused = this.#refused.get(name);
    if (refused !== undefined) throw refused;
    const known = this.#grammars.get(name);
    if (known === undefined) return undefined;
    this.#forget(name);
    this.#remember(name, known);
    return known;
  }

  async #compiled(name: string, order: CompileOrder): Promise<Compiled> {
    try {
      const compiled = await this.#pool.call('compile', order);
      this.#remember(name, compiled);
      return compiled;
    } catch (error) {
      if (error instanceof ApiError && error.status === 400) this.#refused.set(name, error);
      throw error;
    }
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
