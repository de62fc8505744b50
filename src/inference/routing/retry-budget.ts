/** Retries for each request. */
const share = 0.1;
/** Retries for each second, so that a service with little to do always has some. */
const perSecond = 1;
/** As many at once as were running at a server that ends. */
const savedMax = 100;

/**
 * Bounds how many requests are sent a second time, so that a fleet that fails because it has too much to do does not get twice as
 * much: a tenth of the requests and a little more (Finagle's retry budget).
 */
export class RetryBudget {
  #saved = savedMax;
  #countedAtMs = 0;
  /** Since the start. */
  taken = 0;
  refused = 0;

  requested(): void {
    if (this.#saved < savedMax) this.#saved += share;
  }

  /** Whether there may be one more, with so many left for others. */
  take(nowMs: number, reserve = 0): boolean {
    this.#saved = Math.min(savedMax, this.#saved + (perSecond * (nowMs - this.#countedAtMs)) / 1_000);
    this.#countedAtMs = nowMs;
    if (this.#saved < 1 + reserve) {
      if (reserve === 0) this.refused++;
      return false;
    }
    this.#saved--;
    this.taken++;
    return true;
  }
}
