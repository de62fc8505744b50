/** Bytes per token of ordinary text, on the high side, so that an estimate is on the low one. */
export const bytesPerToken = 4;

/** Accounts whose last prompt is remembered, for each model. */
const accountsMax = 10_000;

interface Told {
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
  readonly #told = new Map<string, Told>();

  /** `bytes`: by the same measure each time. */
  learn(accountId: string, bytes: number, tokens: number): void {
    if (bytes < 1 || tokens < 1) return;
    this.#told.delete(accountId);
    this.#told.set(accountId, { bytes, tokens });
    for (const oldest of this.#told.keys()) {
      if (this.#told.size <= accountsMax) return;
      this.#told.delete(oldest);
    }
  }

  /** Never less for more bytes, as long as nothing is learned in between. */
  likely(accountId: string, bytes: number): number {
    const told = this.#told.get(accountId);
    if (told === undefined) return Math.ceil(bytes / bytesPerToken);
    if (bytes <= told.bytes) return Math.ceil((bytes * told.tokens) / told.bytes);
    return told.tokens + Math.ceil((bytes - told.bytes) / bytesPerToken);
  }
}
