import { setTimeout as sleep } from 'node:timers/promises';
import { withDeadline } from '../platform/deadline.ts';
import { deferred } from '../platform/deferred.ts';
import type { Deferred } from '../platform/deferred.ts';
import { ApiError, atCap } from '../platform/errors.ts';
import { FairQueue } from '../platform/fair-queue.ts';
import { widestNetworkOf } from '../platform/ip/network.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import { ratesOf } from './account-rates.ts';
import type { Caller, Directory } from './directory.ts';
import { fillFilter } from './fill-filter.ts';

/** Maximum keys in one statement. */
const keysAtOnce = 100;
/** Maximum keys that may wait to be read. */
const waitingMax = 2_000;
/** Time limit for reading a key. */
const answerTimeoutMs = 5_000;
/** Maximum reads of one key that changes may overtake. */
const readsMax = 10;
/** Delay after the filter could not be read. */
const fillAgainMs = 5_000;

export type LookedUpRepositories = Pick<Repositories, 'findKeys' | 'loadKeys' | 'listAccountPrices' | 'listKeyHashes'>;

/** Whether the filter of all keys was read. */
export type FilterOutcome = { readonly keys: number; readonly elapsedMs: number } | { readonly error: unknown };

export interface KeyLookUpsOptions {
  readonly directory: Directory;
  readonly repositories: LookedUpRepositories;
  /** The clock shared by all replicas. */
  readonly now: () => number;
  readonly filled?: (outcome: FilterOutcome) => void;
}

interface Waiting extends Deferred<void> {
  readonly hash: string;
  /** How often it was read and overtaken by a change. */
  reads: number;
}

/**
 * Reads keys that are presented and not in memory. One statement runs at a time, for up to a hundred keys, taken in turn from the addresses
 * that present them: this bounds the work of the database regardless of the traffic, and a caller who sends many keys waits only behind
 * their own. Nonexistent keys cost nothing once the filter of all keys is filled, which begins at startup.
 */
export class KeyLookUps {
  readonly #options: KeyLookUpsOptions;
  readonly #waiting = new Map<string, Waiting>();
  readonly #queue = new FairQueue<Waiting>(waitingMax);
  #isReading = false;
  /** The database has not answered the current statement in time. */
  #isSilent = false;
  #filling: Promise<void> | undefined;
  readonly #closing = new AbortController();

  constructor(options: KeyLookUpsOptions) {
    this.#options = options;
  }

  /** Number of keys that wait or are being read. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * Resolves when `find` has an answer for a cold key, until the next turn of the event loop. Rejects with `backend_at_capacity` 429 when
   * too many wait, and with `internal_error` 500 when the database does not answer, both with Retry-After: a key that could not be checked
   * is not reported as invalid.
   */
  read(presented: string, address: string | undefined): Promise<void> {
    const { directory } = this.#options;
    this.fill();
    const hash = directory.hashOf(presented);
    if (hash === undefined) return Promise.resolve();
    const known = this.#waiting.get(hash);
    if (known !== undefined) return known.promise;
    if (this.#isSilent) return Promise.reject(noAnswer());
    const waiting: Waiting = { hash, reads: 0, ...deferred() };
    if (!this.#queue.add(widestNetworkOf(address ?? ''), waiting)) return Promise.reject(tooMany());
    this.#waiting.set(hash, waiting);
    if (!this.#isReading) void this.#readAll();
    return waiting.promise;
  }

  /** The caller with a key of this id; undefined: not now, because it is paused or expired; `revoked`: never again. */
  async readById(keyId: string): Promise<Caller | 'revoked' | undefined> {
    const { directory, repositories, now } = this.#options;
    for (let reads = 0; reads < readsMax; reads++) {
      const found = directory.findById(keyId);
      if (typeof found === 'object') return found;
      const read = directory.beginRead();
      try {
        const keys = await repositories.loadKeys({ ids: [keyId] });
        const [key] = keys;
        if (key === undefined) return 'revoked';
        if (found === undefined) return undefined;
        const rates = await ratesOf([key.accountId], repositories, now());
        directory.take(read, [Buffer.from(key.hash).toString('latin1')], keys, rates);
      } finally {
        directory.endRead(read);
      }
      const later = directory.findById(keyId);
      if (later !== 'cold') return later;
    }
    return undefined;
  }

  /** Fills the filter in the background if it is missing or too full. */
  fill(): void {
    const { directory } = this.#options;
    if (directory.isWhole || directory.unknown.isComplete || this.#filling !== undefined) return;
    this.#filling = this.#fill().finally(() => (this.#filling = undefined));
  }

  /** Stops background reads. */
  close(): void {
    this.#closing.abort();
  }

  async #readAll(): Promise<void> {
    this.#isReading = true;
    try {
      for (let batch = this.#queue.take(keysAtOnce); batch.length > 0; batch = this.#queue.take(keysAtOnce)) {
        const reading = this.#readSome(batch);
        await withDeadline(reading, answerTimeoutMs, () => this.#silent());
        // One statement at a time, even if nobody waits for it any more.
        await reading;
        this.#isSilent = false;
      }
    } finally {
      this.#isReading = false;
    }
  }

  /** Never rejects. */
  async #readSome(batch: readonly Waiting[]): Promise<void> {
    const { directory, repositories, now } = this.#options;
    const read = directory.beginRead();
    try {
      const hashes = batch.map(({ hash }) => Buffer.from(hash, 'latin1'));
      const keys = await repositories.findKeys({ hashes });
      const accountIds = keys.map(({ accountId }) => accountId);
      const rates = await ratesOf(accountIds, repositories, now());
      const again = new Set(
        directory.take(
          read,
          batch.map(({ hash }) => hash),
          keys,
          rates,
        ),
      );
      for (const waiting of batch) {
        if (!again.has(waiting.hash)) this.#end(waiting);
        else if (++waiting.reads < readsMax && this.#waiting.has(waiting.hash)) this.#queue.addFirst(waiting);
        else this.#end(waiting, noAnswer());
      }
    } catch (error) {
      for (const waiting of batch) this.#end(waiting, noAnswer(error));
    } finally {
      directory.endRead(read);
    }
  }

  #end(waiting: Waiting, error?: ApiError): void {
    if (!this.#waiting.delete(waiting.hash)) return;
    if (error === undefined) waiting.resolve();
    else waiting.reject(error);
  }

  #silent(): void {
    this.#isSilent = true;
    this.#queue.clear();
    for (const waiting of [...this.#waiting.values()]) this.#end(waiting, noAnswer());
  }

  async #fill(): Promise<void> {
    const { directory, repositories, filled } = this.#options;
    const { signal } = this.#closing;
    while (!signal.aborted && !directory.isWhole && !directory.unknown.isComplete) {
      const begunMs = performance.now();
      try {
        await fillFilter(directory.unknown, repositories, signal);
        if (directory.unknown.isComplete)
          filled?.({ keys: directory.unknown.size, elapsedMs: performance.now() - begunMs });
      } catch (error) {
        if (signal.aborted) return;
        filled?.({ error });
        await sleep(fillAgainMs, undefined, { signal, ref: false }).catch(() => {});
      }
    }
  }
}

const tooMany = (): ApiError =>
  new ApiError('backend_at_capacity', 'Too many keys are being checked. Try again shortly.', atCap(waitingMax, 1));

const noAnswer = (cause?: unknown): ApiError =>
  new ApiError('internal_error', 'The database does not answer, so the key could not be checked.', {
    retryAfterSeconds: 1,
    cause,
  });
