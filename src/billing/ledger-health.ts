import { withDeadline } from '../platform/deadline.ts';
import type { Ledger } from '../store/ledger.ts';
import { StoreError } from '../store/store-error.ts';

/** After a longer silence, an answer is required before anything is admitted from memory. */
const silenceMaxMs = 1_000;

/**
 * Tracks whether the ledger answers (reliability D1, D3). While it does not, nothing can be charged, so nothing may begin, regardless of
 * the balances in memory. In normal operation the check costs a request two field reads.
 */
export class LedgerHealth {
  readonly #ledger: Ledger;
  #waiting = 0;
  /** The time of the last answer, or of the oldest waiting call. */
  #quietSinceMs = 0;
  #isRefused = false;
  #asking: Promise<boolean> | undefined;

  constructor(ledger: Ledger) {
    this.#ledger = ledger;
  }

  get isLost(): boolean {
    if (this.#ledger.silentMs > silenceMaxMs) return true;
    return this.#isRefused || (this.#waiting > 0 && performance.now() - this.#quietSinceMs > silenceMaxMs);
  }

  /** Observes the outcome of a call to the ledger. */
  watch<Value>(call: Promise<Value>): Promise<Value> {
    this.report(call, ignored);
    return call;
  }

  /** The same with a callback for the outcome, which saves one promise per request. */
  report<Value>(call: Promise<Value>, done: (outcome: Value | { readonly error: unknown }) => void): void {
    if (this.#waiting === 0) this.#quietSinceMs = performance.now();
    this.#waiting++;
    call.then(
      (value) => {
        this.#onAnswer();
        done(value);
      },
      (error: unknown) => {
        this.#onFailure(error);
        done({ error });
      },
    );
  }

  /** Whether work may begin. While the ledger is lost it is probed, within a second; concurrent callers share the answer. */
  async answers(): Promise<boolean> {
    if (!this.isLost) return true;
    this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    return await this.#asking;
  }

  async #ask(): Promise<boolean> {
    // A write exercises the whole path of a settlement: the thread, the file lock, and disk space.
    const sign = this.watch(this.#ledger.probe());
    const answered = sign.then(
      () => true,
      () => false,
    );
    return await withDeadline(answered, silenceMaxMs, () => false);
  }

  #onAnswer(): void {
    this.#waiting--;
    this.#quietSinceMs = performance.now();
    this.#isRefused = false;
  }

  #onFailure(error: unknown): void {
    if (error instanceof StoreError && !isOutage(error)) {
      this.#onAnswer();
      return;
    }
    this.#waiting--;
    this.#isRefused = true;
  }
}

const ignored = (): void => {};

/** Whether an error means an outage; a row rejected for its content is an answer, too. */
function isOutage(error: StoreError): boolean {
  switch (error.code) {
    case 'busy':
    case 'full':
    case 'failed':
    case 'unusable':
      return true;
    case 'conflict':
    case 'insufficient':
    case 'invalid':
    case 'not_found':
    case 'gone':
      return false;
  }
}
