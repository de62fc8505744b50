import { createHmac, randomBytes } from 'node:crypto';

/**
 * Remembers, for ten minutes, which requests were running when an engine child died, so that a request that kills the child each time is
 * not tried a third time (reliability E3). It keeps keyed digests, never texts, and nothing at all while children live.
 */
export class CrashQuarantine {
  readonly #key = randomBytes(32);
  readonly #deaths = new Map<string, { count: number; readonly untilMs: number }>();

  /** Records that a child died while it worked on these. Identical requests count once per death. */
  record(contents: readonly unknown[]): void {
    this.#forgetOld();
    for (const digest of new Set(contents.map((content) => this.#digest(content)))) {
      const known = this.#deaths.get(digest);
      if (known !== undefined) known.count++;
      else if (this.#deaths.size < quarantinedMax)
        this.#deaths.set(digest, { count: 1, untilMs: performance.now() + memoryMs });
    }
  }

  /** Returns whether this request was running at two deaths. */
  isQuarantined(content: unknown): boolean {
    this.#forgetOld();
    return this.#deaths.size > 0 && (this.#deaths.get(this.#digest(content))?.count ?? 0) >= deathsMax;
  }

  /** Forgets a request that has completed. */
  clear(content: unknown): void {
    if (this.#deaths.size > 0) this.#deaths.delete(this.#digest(content));
  }

  #digest(content: unknown): string {
    return createHmac('sha256', this.#key).update(JSON.stringify(content)).digest('base64');
  }

  #forgetOld(): void {
    const nowMs = performance.now();
    for (const [digest, { untilMs }] of this.#deaths) if (untilMs < nowMs) this.#deaths.delete(digest);
  }
}

const deathsMax = 2;
const quarantinedMax = 256;
const memoryMs = 600_000;
