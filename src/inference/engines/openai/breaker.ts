/**
 * Stops sending requests to a backend that refuses connections. States: closed (all requests may try) → open after `failuresMax`
 * consecutive failures (none may) → closed again by a probe that reaches the backend. The engine itself probes after each pause, so that no
 * client's request is spent on it. The clock is passed in; pauses are jittered so that replicas do not probe together.
 */
export class Breaker {
  readonly #failuresMax = 3;
  /** A probe is a cheap GET: with a jitter of a fifth, a server that is back is found within 0.6 s. */
  readonly #pauseMs = 500;
  #failures = 0;
  #openUntilMs = 0;

  get isOpen(): boolean {
    return this.#failures >= this.#failuresMax;
  }

  /** Records that a request or probe got an answer. */
  succeeded(): void {
    this.#failures = 0;
  }

  /** Records that a request could not connect. Requests that started before the breaker opened do not extend the pause. */
  failed(nowMs: number, random = Math.random()): void {
    if (this.isOpen) return;
    this.#failures++;
    if (this.isOpen) this.#pause(nowMs, random);
  }

  /** Records that the probe at the end of a pause found no server. */
  lookFailed(nowMs: number, random = Math.random()): void {
    if (this.isOpen) this.#pause(nowMs, random);
  }

  /** Returns the milliseconds until the next probe; 0 if it is due, or if the breaker is closed. */
  pauseLeftMs(nowMs: number): number {
    return this.isOpen ? Math.max(0, this.#openUntilMs - nowMs) : 0;
  }

  #pause(nowMs: number, random: number): void {
    this.#openUntilMs = nowMs + this.#pauseMs * (0.8 + 0.4 * random);
  }
}
