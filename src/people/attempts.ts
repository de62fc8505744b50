import { ApiError } from '../errors.ts';

interface Count {
  failures: number;
  /** Nothing before then. */
  openAt: number;
  lastAt: number;
}

/** Failures that cost nothing, and the longest pause after more. */
export const attemptRules = {
  /** Of one person from one network. */
  pair: { free: 5, pauseMaxMs: 900_000 },
  /** Of one network, whoever it tries to be. */
  network: { free: 20, pauseMaxMs: 900_000 },
  /** Failures at one person, from everywhere, from which on each network has one free attempt instead of five. */
  person: { free: 30 },
} as const;

const firstPauseMs = 1000;
/** What was quiet for so long is forgotten. */
const forgetAfterMs = 86_400_000;
const countsMax = 50_000;

/**
 * Attempts to sign in, per person and per network, with pauses that double. There is no lock on a person: whoever comes
 * from a network that has not failed can try at once, whatever others do meanwhile. An attempt counts as failed from its
 * begin, so that a hundred at once are a hundred. Counts are this process's own.
 */
export class Attempts {
  readonly #now: () => number;
  readonly #pairs = new Map<string, Count>();
  readonly #networks = new Map<string, Count>();
  readonly #people = new Map<string, Count>();

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Begins an attempt. Throws `rate_limit_exceeded` 429 with the pause that is left. Call what it returns when it was right. */
  begin(person: string, network: string): () => void {
    const pairKey = `${network} ${person}`;
    const [pair, from, at] = [
      this.#count(this.#pairs, pairKey),
      this.#count(this.#networks, network),
      this.#count(this.#people, person),
    ];
    const waitMs = Math.max(pair.openAt, from.openAt) - this.#now();
    if (waitMs > 0) {
      const seconds = Math.ceil(waitMs / 1000);
      throw new ApiError('rate_limit_exceeded', `Too many failed attempts. Try again in ${seconds} s.`, {
        retryAfterSeconds: seconds,
      });
    }
    const isUnderAttack = at.failures >= attemptRules.person.free;
    this.#fail(pair, isUnderAttack ? 1 : attemptRules.pair.free, attemptRules.pair.pauseMaxMs);
    this.#fail(from, attemptRules.network.free, attemptRules.network.pauseMaxMs);
    this.#fail(at, Number.POSITIVE_INFINITY, 0);
    return () => {
      this.#pairs.delete(pairKey);
      from.failures = Math.max(0, from.failures - 1);
      at.failures = Math.max(0, at.failures - 1);
      if (from.failures <= attemptRules.network.free) from.openAt = 0;
    };
  }

  #fail(count: Count, free: number, pauseMaxMs: number): void {
    count.failures += 1;
    const beyond = count.failures - free;
    if (beyond < 0 || pauseMaxMs === 0) return;
    count.openAt = this.#now() + Math.min(firstPauseMs * 2 ** Math.min(beyond, 20), pauseMaxMs);
  }

  #count(counts: Map<string, Count>, key: string): Count {
    const now = this.#now();
    const known = counts.get(key);
    // Put last, so that the first ones are those that were quiet for longest.
    counts.delete(key);
    const count =
      known === undefined || now - known.lastAt > forgetAfterMs ? { failures: 0, openAt: 0, lastAt: now } : known;
    count.lastAt = now;
    counts.set(key, count);
    if (counts.size > countsMax) counts.delete(counts.keys().next().value!);
    return count;
  }
}
