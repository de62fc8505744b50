/**
 * When a request without a token is given up: after `timeoutMs` in which nothing happened to it, and after `readingMsMax` in any
 * case. That a part of its prompt was read is something; that it waits for a slot is nothing.
 */
export class FirstTokenTime {
  readonly #timeoutMs: number;
  readonly #lastMs: number;
  #readMs: number;

  constructor(options: FirstTokenOptions, nowMs: number) {
    const { timeoutMs, readingMsMax } = options;
    this.#timeoutMs = timeoutMs;
    this.#lastMs = nowMs + readingMsMax;
    this.#readMs = nowMs;
  }

  get lateAtMs(): number {
    return Math.min(this.#readMs + this.#timeoutMs, this.#lastMs);
  }

  hasRead(nowMs: number): void {
    this.#readMs = nowMs;
  }
}

export interface FirstTokenOptions {
  readonly timeoutMs: number;
  readonly readingMsMax: number;
}

/** By the limit for the first token; docs/engines.md says it. */
export const firstTokenOptions = (timeoutMs = 120_000): FirstTokenOptions => ({
  timeoutMs,
  readingMsMax: 5 * timeoutMs,
});
