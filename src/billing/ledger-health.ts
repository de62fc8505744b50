import { withDeadline } from '../platform/deadline.ts';
import type { Ledger } from '../store/ledger.ts';
import { StoreError } from '../store/store-error.ts';

/** After a longer silence, an answer is required before anything is admitted from memory. */
const silenceMaxMs = 1_000;

/**
 * Whether the ledger answers (reliability D1, D3). While it does not, nothing can be charged, so nothing may begin, whatever the
 * balances in memory say. While all is well, it costs a request only a look at two fields.
 */
export class LedgerHealth {
  readonly #ledger: Ledger;
  #waiting = 0;
  /** The last answer, or when the oldest waiting call was made. */
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

  /** The same, and reports the outcome: for every request there is one promise less. */
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

  /** Whether work may begin. While the ledger is lost it is asked, within a second; concurrent callers wait for the same answer. */
  async answers(): Promise<boolean> {
    if (!this.isLost) return true;
    this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    return await this.#asking;
  }

  async #ask(): Promise<boolean> {
    // A write takes the whole path of a settlement: the thread, the lock of the file, and room on the disk.
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

/** A row that is refused for its content is an answer, too. */
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
