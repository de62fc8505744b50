/** Bytes per token of ordinary text, on the high side, so that an estimate is on the low one. */
export const bytesPerToken = 4;

/** Accounts whose last prompt is remembered, for each model. */
const accountsMax = 10_000;

interface Reported {
  readonly bytes: number;
  readonly tokens: number;
}

/**
 * How long the prompts of a model are whose backends cannot count them beforehand: as long as the account's last one, whose length
 * its backend has told with the answer, by their bytes. Counts are asked for in the middle of conversations, whose next prompt
 * is mostly the last one.
 */
export class PromptLengths {
  /** By account, the one that was told of last at the end. */
  readonly #reported = new Map<string, Reported>();

  /** `bytes`: by the same measure each time. */
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
