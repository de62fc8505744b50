import type { IncomingMessage } from 'node:http';

export interface BodyRateLimits {
  /** Slower bodies are refused (reliability C2). */
  readonly bodyBytesPerSecondMin: number;
  /** The rate is measured over windows of this length: a short pause does not count as slow. */
  readonly bodyRateWindowMs: number;
}

/** Measures how fast one body arrives. It is polled, with times of a monotonic clock. */
export class BodyRate {
  readonly request: IncomingMessage;
  readonly #limits: BodyRateLimits;
  #windowFromMs: number;
  #bytesBefore: number;

  constructor(request: IncomingMessage, limits: BodyRateLimits, nowMs: number) {
    this.request = request;
    this.#limits = limits;
    this.#windowFromMs = nowMs;
    this.#bytesBefore = request.socket.bytesRead;
  }

  isTooSlow(nowMs: number): boolean {
    const { bytesRead } = this.request.socket;
    const elapsedMs = nowMs - this.#windowFromMs;
    if (elapsedMs < this.#limits.bodyRateWindowMs) return false;
    const expected = (this.#limits.bodyBytesPerSecondMin * elapsedMs) / 1000;
    // Data that waits here unread is not the client's slowness.
    if (bytesRead - this.#bytesBefore < expected && this.request.readableLength === 0) return true;
    this.#windowFromMs = nowMs;
    this.#bytesBefore = bytesRead;
    return false;
  }
}
