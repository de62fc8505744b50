/**
 * Stops asking a backend that cannot be connected to. States: closed (all may try) → open after `failuresMax` failures in
 * a row (nobody may) → half-open when the pause is over (one may try) → closed, or open again for twice as long.
 * The clock is passed in; pauses are jittered so that replicas do not come back together.
 */
export class Breaker {
  readonly #failuresMax = 3;
  readonly #pauseMinMs: number;
  readonly #pauseMaxMs: number;
  #failures = 0;
  #pauseMs: number;
  #openUntilMs = 0;
  #isProbing = false;

  constructor(pauseMinMs = 1_000, pauseMaxMs = 30_000) {
    this.#pauseMinMs = pauseMinMs;
    this.#pauseMaxMs = pauseMaxMs;
    this.#pauseMs = pauseMinMs;
  }

  /** Whether a request may try now. Who gets `true` reports exactly one of the three outcomes. */
  admit(nowMs: number): boolean {
    if (this.#failures < this.#failuresMax) return true;
    if (nowMs < this.#openUntilMs || this.#isProbing) return false;
    this.#isProbing = true;
    return true;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#isProbing = false;
    this.#pauseMs = this.#pauseMinMs;
  }

  failed(nowMs: number, random = Math.random()): void {
    const wasProbe = this.#isProbing;
    this.#isProbing = false;
    this.#failures = Math.min(this.#failures + 1, this.#failuresMax);
    if (this.#failures < this.#failuresMax) return;
    // Requests that had started before it opened do not make the pause longer.
    if (nowMs < this.#openUntilMs && !wasProbe) return;
    this.#openUntilMs = nowMs + this.#pauseMs * (0.8 + 0.4 * random);
    this.#pauseMs = Math.min(this.#pauseMs * 2, this.#pauseMaxMs);
  }

  /** The try ended without saying anything about the backend. */
  abandoned(): void {
    this.#isProbing = false;
  }

  /** How long nobody may try; 0 when somebody may. */
  pauseLeftMs(nowMs: number): number {
    if (this.#failures < this.#failuresMax) return 0;
    return this.#isProbing ? 1 : Math.max(0, this.#openUntilMs - nowMs);
  }
}
