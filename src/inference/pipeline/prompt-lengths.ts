/** Bytes per token of ordinary text, deliberately high, so that estimates are low. */
export const bytesPerToken = 4;

/** How many accounts' last prompts are remembered per model. */
const accountsMax = 10_000;

interface Reported {
  readonly bytes: number;
  readonly tokens: number;
}

/**
 * Estimates prompt lengths for models whose backends cannot count: from the account's last prompt, whose length its backend reported with
 * the answer, in proportion to bytes. Counts are needed in the middle of conversations, where the next prompt mostly consists of the last
 * one.
 */
export class PromptLengths {
  /** By account, least recently reported first. */
  readonly #reported = new Map<string, Reported>();

  /** Records a reported length. `bytes` must be measured in the same way each time. */
  learn(accountId: string, bytes: number, tokens: number): void {
    if (bytes < 1 || tokens < 1) return;
    this.#reported.delete(accountId);
    this.#reported.set(accountId, { bytes, tokens });
    for (const oldest of this.#reported.keys()) {
      if (this.#reported.size <= accountsMax) return;
      this.#reported.delete(oldest);
    }
  }

  /** Returns the estimate; it never falls as bytes grow, unless something is learned in between. */
  likely(accountId: string, bytes: number): number {
    const reported = this.#reported.get(accountId);
    if (reported === undefined) return Math.ceil(bytes / bytesPerToken);
    if (bytes <= reported.bytes) return Math.ceil((bytes * reported.tokens) / reported.bytes);
    return reported.tokens + Math.ceil((bytes - reported.bytes) / bytesPerToken);
  }
}
