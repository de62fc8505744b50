/**
 * The deadline for a request's first token: after `timeoutMs` without progress, and after `readingMsMax` in any case. Reading a part of the
 * prompt is progress; waiting for a slot is not.
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

/** Returns both limits for a given first-token limit; see docs/embedded.md. */
export const firstTokenOptions = (timeoutMs = 120_000): FirstTokenOptions => ({
  timeoutMs,
  readingMsMax: 5 * timeoutMs,
});
