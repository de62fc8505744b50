import type { Ledger } from '../store/ledger.ts';
import { StoreError } from '../store/store-error.ts';

/** An answer that takes longer, and one more is asked for before anything is admitted from memory. */
const silenceMaxMs = 1_000;

/**
 * Whether the ledger answers (reliability D1, D3). While it does not, nothing can be charged, so nothing may be begun,
 * whatever the balances in memory say. Costs a request nothing but a look at two fields while all is well.
 */
export class LedgerHealth {
  readonly #ledger: Ledger;
  #waiting = 0;
  /** The last answer, or when the first of those that wait was asked for. */
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

  /** Takes note of what becomes of a call to the ledger. */
  watch<Value>(call: Promise<Value>): Promise<Value> {
    if (this.#waiting === 0) this.#quietSinceMs = performance.now();
    this.#waiting++;
    call.then(this.#onAnswer, this.#onFailure);
    return call;
  }

  /** Asks the ledger for a sign of life; all that come meanwhile wait for the same one. False: there is none. */
  regain(): Promise<boolean> {
    this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  async #ask(): Promise<boolean> {
    // A write goes the whole way that a settlement goes: the thread, the lock of the file, and room on the disk.
    const sign = this.watch(this.#ledger.probe());
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<boolean>((resolve) => {
      timer = setTimeout(resolve, silenceMaxMs, false);
    });
    const answered = sign.then(
      () => true,
      () => false,
    );
    try {
      return await Promise.race([answered, silence]);
    } finally {
      clearTimeout(timer);
    }
  }

  readonly #onAnswer = (): void => {
    this.#waiting--;
    this.#quietSinceMs = performance.now();
    this.#isRefused = false;
  };

  readonly #onFailure = (error: unknown): void => {
    if (error instanceof StoreError && !isOutage(error)) {
      this.#onAnswer();
      return;
    }
    this.#waiting--;
    this.#isRefused = true;
  };
}

/** A row that is refused for what it says is an answer, too. */
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
      return false;
  }
}
