import { ApiError } from '../errors.ts';

/** A place that one running request takes; given back exactly once, in `finally`. */
export interface Slot {
  release(): void;
}

/** Caps the running requests of each account (specification part 8, "Concurrency"). */
export class Concurrency {
  /** May change at any time; what runs goes on. */
  perAccountMax: number;
  readonly #running = new Map<string, number>();
  #total = 0;

  constructor(perAccountMax: number) {
    this.perAccountMax = perAccountMax;
  }

  /** Running requests of all accounts. */
  get total(): number {
    return this.#total;
  }

  /** Throws `concurrency_limit_exceeded` 429 with `Retry-After: 1` (specification §7.5). */
  admit(accountId: string): Slot {
    const running = this.#running.get(accountId) ?? 0;
    if (running >= this.perAccountMax) {
      throw new ApiError(
        'concurrency_limit_exceeded',
        `The account has ${this.perAccountMax} requests running, as many as it may.`,
        {
          retryAfterSeconds: 1,
          headers: {
            'ratelimit-limit': String(this.perAccountMax),
            'ratelimit-remaining': '0',
            'ratelimit-reset': '1',
          },
        },
      );
    }
    this.#running.set(accountId, running + 1);
    this.#total++;
    let released = false;
    return {
      release: () => {
        if (released) throw new Error('a slot is released once');
        released = true;
        this.#total--;
        const left = (this.#running.get(accountId) ?? 0) - 1;
        if (left > 0) this.#running.set(accountId, left);
        else this.#running.delete(accountId);
      },
    };
  }
}
