import { createHmac } from 'node:crypto';

import { ApiError } from '../../platform/errors.ts';
import { networksOf } from '../../platform/ip/network.ts';
import type { AttemptRules } from '../../store/repositories/attempts.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';

export const attemptRules = {
  pair: { free: 5, pauseMaxMs: 900_000 },
  network: { free: 20, pauseMaxMs: 900_000 },
  person: { free: 30 },
} as const satisfies AttemptRules;

export interface AttemptServices {
  readonly repositories: Pick<Repositories, 'beginAttempt' | 'attemptWasRight' | 'forgetAttempts'>;
  /** Shared by all processes on the database; the subjects of counts are hashed with it. */
  readonly secret: string;
  readonly now: () => number;
}

/** Maximum rows: for users, networks and both together. */
export const countsMax = 150_000;
/** The rows are tidied after this many attempts, in addition to the job. */
const tidyEvery = 500;

/**
 * Sign-in attempts, per user and per network, with pauses that double. Users are never locked out: from a network without failures they can
 * try immediately, regardless of what others do. An attempt counts as failed from its beginning, so that a hundred concurrent ones count as
 * a hundred. Counts are in the database, so all replicas share them.
 */
export class Attempts {
  readonly #services: AttemptServices;
  #begun = 0;

  constructor(services: AttemptServices) {
    this.#services = services;
  }

  /**
   * Begins an attempt from an address, which counts for its networks. Rejects with `rate_limit_exceeded` 429 and the remaining pause. Call
   * the result if the attempt succeeded.
   */
  async begin(person: string, address: string): Promise<() => Promise<void>> {
    const { repositories, now } = this.#services;
    const networks = networksOf(address);
    const attempted = {
      pairs: networks.map(({ name, times }) => ({ who: this.#hash('pair', name, person), times })),
      networks: networks.map(({ name, times }) => ({ who: this.#hash('network', name), times })),
      person: this.#hash('person', person),
    };
    const waitMs = await repositories.beginAttempt({ attempted, rules: attemptRules, at: now() });
    if (waitMs > 0) {
      const seconds = Math.ceil(waitMs / 1000);
      throw new ApiError('rate_limit_exceeded', `Too many failed attempts. Try again in ${seconds} s.`, {
        retryAfterSeconds: seconds,
      });
    }
    this.#begun += 1;
    if (this.#begun % tidyEvery === 0) await this.tidy();
    return () => repositories.attemptWasRight({ attempted, rules: attemptRules });
  }

  /** Deletes a batch of counts that were idle for a day or exceed the maximum; false: there were none. */
  async tidy(): Promise<boolean> {
    const { repositories, now } = this.#services;
    return (await repositories.forgetAttempts({ at: now(), keepMax: countsMax })) > 0;
  }

  #hash(...who: readonly string[]): string {
    return createHmac('sha256', this.#services.secret)
      .update(JSON.stringify(['attempt', ...who]))
      .digest('base64url');
  }
}
