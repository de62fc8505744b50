import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';

import { ApiError } from '../../platform/errors.ts';

export interface HashCost {
  readonly N: number;
  readonly r: number;
  readonly p: number;
}

/** 32 MB and about 0.1 s per hash: what each guess costs someone who has stolen the database (OWASP, scrypt). */
export const hashCost: HashCost = { N: 2 ** 15, r: 8, p: 3 };
const keyBytes = 32;
/** More would take CPU from inference. */
const atOnceMax = 2;
const waitingMax = 50;

/** Length of a password in characters. */
export const passwordLength = { min: 10, max: 200 } as const;

/** Hashes passwords, two at a time; refuses callers when fifty are waiting (reliability §3.6). */
export class Passwords {
  readonly #cost: HashCost;
  #running = 0;
  #most = 0;
  #done = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(cost = hashCost) {
    this.#cost = cost;
  }

  /** Number of hashes computed, right or wrong, and the most at the same time: the cost of one sign-in, for the tests. */
  get work(): { readonly done: number; readonly mostAtOnce: number } {
    return { done: this.#done, mostAtOnce: this.#most };
  }

  /** Returns `scrypt:N:r:p:salt:key`, in base64url. Throws `rate_limit_exceeded` 429 when too many wait. */
  async hash(password: string): Promise<string> {
    const salt = randomBytes(16);
    const { N, r, p } = this.#cost;
    const key = await this.#derive(password, salt, this.#cost);
    return ['scrypt', N, r, p, salt.toString('base64url'), key.toString('base64url')].join(':');
  }

  /** Also false for text that is not a hash from this class. */
  async verify(hash: string, password: string): Promise<boolean> {
    const parsed = /^scrypt:(\d{1,7}):(\d{1,2}):(\d{1,2}):([\w-]{22}):([\w-]{43})$/.exec(hash);
    if (parsed === null) return false;
    const [, N, r, p, salt, key] = parsed;
    const known = Buffer.from(key!, 'base64url');
    const derived = await this.#derive(password, Buffer.from(salt!, 'base64url'), {
      N: Number(N),
      r: Number(r),
      p: Number(p),
    });
    return timingSafeEqual(derived, known);
  }

  async #derive(password: string, salt: Buffer, { N, r, p }: { N: number; r: number; p: number }): Promise<Buffer> {
    await this.#enter();
    try {
      return await new Promise<Buffer>((resolve, reject) => {
        // Equivalent texts with different code points are one password.
        scrypt(password.normalize('NFKC'), salt, keyBytes, { N, r, p, maxmem: 256 * N * r }, (error, key) =>
          error === null ? resolve(key) : reject(error),
        );
      });
    } finally {
      this.#leave();
    }
  }

  async #enter(): Promise<void> {
    if (this.#running >= atOnceMax) {
      if (this.#waiting.length >= waitingMax)
        throw new ApiError('rate_limit_exceeded', 'Too many people are signing in at the moment. Try again in 5 s.', {
          retryAfterSeconds: 5,
        });
      // A finishing caller hands its slot over.
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    } else this.#running += 1;
    this.#done += 1;
    this.#most = Math.max(this.#most, this.#running);
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#running -= 1;
    else next();
  }
}
