/** Backward steps below this are waited out, so that this process's times do not go back. */
const waitedOutMs = 10_000;

/**
 * The database's time without a query: its answers carry their time, and a monotonic clock counts from there. Replicas whose own clocks
 * differ by days thus agree to within an answer's latency (reliability S5, M4).
 */
export class DatabaseClock {
  readonly #monotonicMs: () => number;
  /** Database time less monotonic time. */
  #offsetMs: number | undefined;
  #lastMs = -Infinity;

  constructor(monotonicMs: () => number = () => performance.now()) {
    this.#monotonicMs = monotonicMs;
  }

  /** Milliseconds since 1970. Requires at least one answer from the database. */
  now(): number {
    if (this.#offsetMs === undefined) throw new Error('the database has not said what time it is');
    this.#lastMs = Math.max(this.#lastMs, Math.floor(this.#monotonicMs() + this.#offsetMs));
    return this.#lastMs;
  }

  /** Takes a time `readingMs` reported by the database for a query sent at `askedMs` of `monotonicMs`; the answer has just arrived. */
  heard(readingMs: number, askedMs: number): void {
    const leastMs = readingMs - this.#monotonicMs();
    const mostMs = readingMs + 1 - askedMs; // a reading is in whole milliseconds
    const offsetMs = this.#offsetMs;
    if (offsetMs === undefined || offsetMs < leastMs) {
      this.#offsetMs = leastMs;
    } else if (offsetMs > mostMs) {
      this.#offsetMs = mostMs;
      if (offsetMs - mostMs > waitedOutMs) this.#lastMs = -Infinity;
    }
  }
}
