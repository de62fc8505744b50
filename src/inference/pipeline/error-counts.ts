import type { ErrorCode } from '../../platform/errors.ts';
import type { RefusedRequest } from '../../store/repositories/refusals.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';

/** Refused requests that are kept of an account; the store keeps as many. */
const refusedMax = 100;
/** Kinds of errors (key, model, code) that are kept apart for an account in a minute. The others are summed by code. */
const kindsPerAccountMax = 200;
/** For all accounts, and of requests that wait to be written. */
const kindsMax = 20_000;
const refusedInAllMax = 5_000;
/** With anything to write. While the store takes nothing, errors of further accounts are not counted. */
const accountsMax = kindsMax;
/** Presented keys that do not work, in one batch. */
const hashesMax = 500;
const minuteMs = 60_000;
const writeEveryMs = 2_000;

/** A request that ended with an error. */
export interface Outcome {
  readonly accountId: string;
  readonly keyId: string;
  /** The catalog's id; empty: not known. */
  readonly modelId: string;
  readonly code: ErrorCode;
}

/** What is kept of a refused request. */
export type Refused = Pick<RefusedRequest, 'requestId' | 'publicId' | 'clientId' | 'message'>;
type RefusedAt = Refused & Pick<RefusedRequest, 'at'>;

interface Count extends Outcome {
  readonly minute: number;
  refusals: number;
  failures: number;
}

interface OfAccount {
  readonly counts: Map<string, Count>;
  /** The count of its last error: a flood has the same one again and again. */
  last: Count | undefined;
  /** In a ring: `next` is the oldest one once it is full. */
  refused: RefusedRequest[];
  next: number;
}

/** A presented key that is not live, and may be one that was. */
interface OfHash {
  refusals: number;
  last: RefusedAt;
}

export interface ErrorCountsOptions {
  readonly repositories: Pick<Repositories, 'keysOfHashes' | 'addErrors'>;
  readonly now: () => number;
  /** Not written, and tried again. */
  readonly failed: (error: unknown) => void;
}

/**
 * Counts requests that end with an error, and keeps the last refused ones of each account, in memory until a batch is written, every two
 * seconds. A flood costs a few additions a request: what it can occupy, here and in the store, is bounded for an account and in all.
 */
export class ErrorCounts {
  readonly #options: ErrorCountsOptions;
  readonly #accounts = new Map<string, OfAccount>();
  #hashes = new Map<string, OfHash>();
  #minute = 0;
  #kinds = 0;
  #refused = 0;
  #writing: Promise<void> | undefined;
  /** Runs while something waits to be written, so that an idle process is not woken. */
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ErrorCountsOptions) {
    this.#options = options;
  }

  /** Counts kept in memory. */
  get size(): number {
    return this.#kinds;
  }

  /** Accounts, refused requests and presented keys kept in memory. */
  get kept(): { readonly accounts: number; readonly refused: number; readonly hashes: number } {
    return { accounts: this.#accounts.size, refused: this.#refused, hashes: this.#hashes.size };
  }

  /** A request that was refused before any of it was charged. */
  refused(outcome: Outcome, refused: Refused): void {
    const at = this.#options.now();
    this.#count(outcome, at, 1, 0);
    this.#keep(outcome, refused, at);
  }

  /** A request with a row of usage. */
  failed(outcome: Outcome): void {
    this.#count(outcome, this.#options.now(), 0, 1);
  }

  /** A request with a key that is not live, by the hash of the key. Whose it was is read with the batch. */
  refusedKey(hash: string, refused: Refused): void {
    this.#writeSoon();
    const last = { ...refused, at: this.#options.now() };
    const known = this.#hashes.get(hash);
    if (known !== undefined) {
      known.refusals++;
      known.last = last;
    } else if (this.#hashes.size < hashesMax) this.#hashes.set(hash, { refusals: 1, last });
  }

  /** Writes what has come since the last batch. */
  write(): Promise<void> {
    this.#writing ??= this.#write()
      .catch((error: unknown) => {
        this.#options.failed(error);
        this.#writeSoon();
      })
      .finally(() => (this.#writing = undefined));
    return this.#writing;
  }

  async close(): Promise<void> {
    await this.#writing;
    await this.write();
    clearTimeout(this.#timer);
  }

  #writeSoon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (this.#writing === undefined) void this.write();
      else this.#writeSoon();
    }, writeEveryMs).unref();
  }

  async #write(): Promise<void> {
    await this.#findKeys();
    const counts = [...this.#accounts.values()].flatMap(({ counts: all }) =>
      [...all.values()].filter(({ refusals, failures }) => refusals > 0 || failures > 0),
    );
    const batch = counts.map((count) => ({ ...count }));
    const refused = [...this.#accounts.values()].flatMap((of) => of.refused);
    if (batch.length === 0 && refused.length === 0) return;
    for (const count of counts) count.refusals = count.failures = 0;
    for (const of of this.#accounts.values()) {
      of.refused = [];
      of.next = 0;
    }
    this.#refused = 0;
    try {
      await this.#options.repositories.addErrors({ counts: batch, refused });
    } catch (error) {
      // The counts stay in memory; the requests are lost.
      for (const [index, { refusals, failures }] of batch.entries()) {
        counts[index]!.refusals += refusals;
        counts[index]!.failures += failures;
      }
      throw error;
    }
    this.#forget();
  }

  async #findKeys(): Promise<void> {
    if (this.#hashes.size === 0) return;
    const hashes = this.#hashes;
    this.#hashes = new Map();
    const found = await this.#options.repositories.keysOfHashes({
      hashes: [...hashes.keys()].map((hash) => Uint8Array.from(Buffer.from(hash, 'latin1'))),
    });
    for (const { hash, keyId, accountId } of found) {
      const of = hashes.get(Buffer.from(hash).toString('latin1'));
      if (of === undefined) continue;
      const outcome = { accountId, keyId, modelId: '', code: 'invalid_api_key' } as const;
      this.#count(outcome, of.last.at, of.refusals, 0);
      this.#keep(outcome, of.last, of.last.at);
    }
  }

  #count(outcome: Outcome, at: number, refusals: number, failures: number): void {
    this.#writeSoon();
    const minute = at - (at % minuteMs);
    if (minute > this.#minute) this.#minute = minute;
    const { accountId, keyId, modelId, code } = outcome;
    const of = this.#of(accountId);
    if (of === undefined) return;
    const { counts, last } = of;
    const isLast = last?.minute === minute && last.keyId === keyId && last.modelId === modelId && last.code === code;
    const isMany = counts.size >= kindsPerAccountMax || this.#kinds >= kindsMax / 2;
    const count = isLast
      ? last
      : (counts.get(nameOf(outcome, minute)) ??
        this.#new(counts, isMany ? { accountId, keyId: '', modelId: '', code } : outcome, minute));
    if (count === undefined) return;
    of.last = count;
    count.refusals += refusals;
    count.failures += failures;
  }

  /** undefined: there are too many accounts with errors at this moment. */
  #new(counts: OfAccount['counts'], outcome: Outcome, minute: number): Count | undefined {
    const name = nameOf(outcome, minute);
    const known = counts.get(name);
    if (known !== undefined || this.#kinds >= kindsMax) return known;
    const count: Count = { ...outcome, minute, refusals: 0, failures: 0 };
    counts.set(name, count);
    this.#kinds++;
    return count;
  }

  #keep({ accountId, keyId, modelId, code }: Outcome, refused: Refused, at: number): void {
    const of = this.#of(accountId);
    if (of === undefined) return;
    const { requestId, publicId, clientId, message } = refused;
    const row = {
      accountId,
      requestId,
      publicId,
      clientId,
      at,
      keyId,
      model: modelId === '' ? null : modelId,
      code,
      message,
    };
    const max = this.#refused < refusedInAllMax ? refusedMax : 1;
    if (of.refused.length < max) {
      of.refused.push(row);
      this.#refused++;
    } else {
      of.refused[of.next % of.refused.length] = row;
      of.next++;
    }
  }

  #of(accountId: string): OfAccount | undefined {
    const known = this.#accounts.get(accountId);
    if (known !== undefined || this.#accounts.size >= accountsMax) return known;
    const of: OfAccount = { counts: new Map(), last: undefined, refused: [], next: 0 };
    this.#accounts.set(accountId, of);
    return of;
  }

  /** What has been written of earlier minutes. */
  #forget(): void {
    for (const [accountId, of] of this.#accounts) {
      const { counts, refused } = of;
      of.last = undefined;
      for (const [name, { minute, refusals, failures }] of counts) {
        if (minute >= this.#minute || refusals > 0 || failures > 0) continue;
        counts.delete(name);
        this.#kinds--;
      }
      if (counts.size === 0 && refused.length === 0) this.#accounts.delete(accountId);
    }
  }
}

const nameOf = ({ keyId, modelId, code }: Outcome, minute: number): string => `${minute} ${code} ${keyId} ${modelId}`;
