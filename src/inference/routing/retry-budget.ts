/** Retries earned per request. */
const share = 0.1;
/** Retries earned per second, so that a service with little traffic always has some. */
const perSecond = 1;
/** Maximum saved retries: enough for the running requests of a server that stops. */
const savedMax = 100;

/**
 * Bounds how many requests are sent a second time, so that a fleet that fails under overload does not get twice the load: a tenth of the
 * requests and a little more (Finagle's retry budget).
 */
export class RetryBudget {
  #saved = savedMax;
  #countedAtMs = 0;
  /** Retries granted and refused since the start. */
  taken = 0;
  refused = 0;

  requested(): void {
    if (this.#saved < savedMax) this.#saved += share;
  }

  /** Takes one retry if there is one beyond `reserve`, which is left for others. Returns whether it was taken. */
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
