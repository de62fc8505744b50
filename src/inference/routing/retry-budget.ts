/** Retries beyond the first ones: this part of the requests. */
const share = 0.1;
/** As many at once as wait at a server that ends. */
const saved = 100;

/**
 * Bounds how many requests are sent a second time, so that a fleet that fails for having too much to do does not get twice as much
 * (Finagle's retry budget).
 */
export class RetryBudget {
  #retries = saved;

  requested(): void {
    this.#retries = Math.min(saved, this.#retries + share);
  }

  /** Whether there may be one more. */
  take(): boolean {
    if (this.#retries < 1) return false;
    this.#retries--;
    return true;
  }
}
