/** Bytes per token of ordinary text, on the high side, so that estimates are on the low side. */
export const bytesPerToken = 4;

/** How many accounts' last prompts are remembered per model. */
const accountsMax = 10_000;

interface Reported {
  readonly bytes: number;
  readonly tokens: number;
}

/**
 * Estimates prompt lengths for models whose backends cannot count beforehand: from the account's last prompt, whose length its
 * backend reported with the answer, in proportion to bytes. Counts are asked for in the middle of conversations, where the next
 * prompt is mostly the last one.
 */
export class PromptLengths {
  /** By account, the most recently reported last. */
  readonly #reported = new Map<string, Reported>();

  /** `bytes` must be measured in the same way each time. */
  learn(accountId: string, bytes: number, tokens: number): void {
    if (bytes < 1 || tokens < 1) return;
    this.#reported.delete(accountId);
    this.#reported.set(accountId, { bytes, tokens });
    for (const oldest of this.#reported.keys()) {
      if (this.#reported.size <= accountsMax) return;
      this.#reported.delete(oldest);
    }
  }

  /** Never less for more bytes, as long as nothing is learned in between. */
  likely(accountId: string, bytes: number): number {
    const reported = this.#reported.get(accountId);
    if (reported === undefined) return Math.ceil(bytes / bytesPerToken);
    if (bytes <= reported.bytes) return Math.ceil((bytes * reported.tokens) / reported.bytes);
    return reported.tokens + Math.ceil((bytes - reported.bytes) / bytesPerToken);
  }
}
