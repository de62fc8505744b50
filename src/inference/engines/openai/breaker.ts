/**
 * Stops sending requests to a backend that refuses connections. States: closed (all may try) → open after `failuresMax` failures
 * in a row (none may) → closed again by a look that reaches the backend. The engine itself looks when a pause is over, so that no
 * client's request is spent on it. The clock is passed in; pauses are jittered so that replicas do not look together.
 */
export class Breaker {
  readonly #failuresMax = 3;
  /** A look is a GET that costs nothing: with a fifth to either side, a server that is back is found within 0.6 s. */
  readonly #pauseMs = 500;
  #failures = 0;
  #openUntilMs = 0;

  get isOpen(): boolean {
    return this.#failures >= this.#failuresMax;
  }

  /** Some request or look got an answer. */
  succeeded(): void {
    this.#failures = 0;
  }

  /** A request could not connect. Requests that had started before it opened do not make the pause longer. */
  failed(nowMs: number, random = Math.random()): void {
    if (this.isOpen) return;
    this.#failures++;
    if (this.isOpen) this.#pause(nowMs, random);
  }

  /** The look at the end of a pause found no server. */
  lookFailed(nowMs: number, random = Math.random()): void {
    if (this.isOpen) this.#pause(nowMs, random);
  }

  /** Milliseconds until the next look; 0 when it is due, or when the breaker is closed. */
  pauseLeftMs(nowMs: number): number {
    return this.isOpen ? Math.max(0, this.#openUntilMs - nowMs) : 0;
  }

  #pause(nowMs: number, random: number): void {
    this.#openUntilMs = nowMs + this.#pauseMs * (0.8 + 0.4 * random);
  }
}
