import { atCap, ApiError } from '../platform/errors.ts';
import type { Network } from '../platform/ip/network.ts';

interface Window {
  startsAt: number;
  used: number;
}

const windowMs = 60_000;
/** Maximum number of senders counted; beyond that, those whose minute is over are forgotten, then the oldest. */
const sendersMax = 50_000;

/**
 * Counts the requests of each sender in this minute. The account host is not a hot path and its routes are cheap to guard, so the
 * counts are per process: with N replicas a sender has up to N times the limit.
 */
export class RateLimit {
  readonly #perMinute: number;
  readonly #now: () => number;
  readonly #windows = new Map<string, Window>();

  constructor(perMinute: number, now: () => number) {
    this.#perMinute = perMinute;
    this.#now = now;
  }

  /**
   * Counts one request. Throws `rate_limit_exceeded` 429 above the limit; otherwise returns what remains as headers (specification
   * §7.5).
   */
  take(sender: string, times = 1): Readonly<Record<string, string>> {
    const window = this.#window(sender);
    const resetSeconds = this.#secondsLeft(window);
    const most = this.#perMinute * times;
    if (window.used >= most)
      throw new ApiError(
        'rate_limit_exceeded',
        `At most ${most} requests a minute. Try again in ${resetSeconds} s.`,
        atCap(most, resetSeconds),
      );
    window.used += 1;
    return {
      'ratelimit-limit': String(most),
      'ratelimit-remaining': String(most - window.used),
      'ratelimit-reset': String(resetSeconds),
    };
  }

  /** Counts one request for each network of a client; the headers are those of the narrowest. */
  takeOf([narrowest, ...wider]: readonly Network[]): Readonly<Record<string, string>> {
    for (const { name, times } of wider) this.take(name, times);
    return narrowest === undefined ? {} : this.take(narrowest.name, narrowest.times);
  }

  /** Throws where `takeOf` would, without counting. */
  check(networks: readonly Network[]): void {
    for (const { name, times } of networks) {
      const window = this.#windows.get(name);
      const most = this.#perMinute * times;
      if (window === undefined || this.#isOver(window) || window.used < most) continue;
      const seconds = this.#secondsLeft(window);
      throw new ApiError(
        'rate_limit_exceeded',
        `Too many failed attempts. Try again in ${seconds} s.`,
        atCap(most, seconds),
      );
    }
  }

  #window(sender: string): Window {
    const known = this.#windows.get(sender);
    if (known !== undefined && !this.#isOver(known)) return known;
    this.#windows.delete(sender);
    if (this.#windows.size >= sendersMax) this.#forget();
    const window = { startsAt: this.#now(), used: 0 };
    this.#windows.set(sender, window);
    return window;
  }

  #forget(): void {
    for (const [sender, window] of this.#windows) {
      if (!this.#isOver(window)) break;
      this.#windows.delete(sender);
    }
    const [oldest] = this.#windows.keys();
    if (this.#windows.size >= sendersMax && oldest !== undefined) this.#windows.delete(oldest);
  }

  #isOver(window: Window): boolean {
    return this.#now() >= window.startsAt + windowMs;
  }

  #secondsLeft(window: Window): number {
    return Math.max(1, Math.ceil((window.startsAt + windowMs - this.#now()) / 1000));
  }
}
