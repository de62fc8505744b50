/**
 * How fast this computer can read prompts: the fastest step so far at each depth, since what else runs here only ever makes a step
 * longer. So what it says of a prompt is a lower bound, and one that cannot be read in time by it cannot be read at all.
 */
export class ReadingPace {
  /** Milliseconds for a token, by depth. */
  readonly #fastest: number[] = [];

  /** A step that read this many tokens of one prompt, from that depth on, and did nothing else. */
  observe(depth: number, tokens: number, elapsedMs: number): void {
    const band = Math.floor(depth / bandTokens);
    this.#fastest[band] = Math.min(this.#fastest[band] ?? Infinity, elapsedMs / tokens);
  }

  /** The least time for a prompt's tokens from `cached` on; 0 where nothing is known. */
  leastMs(cached: number, tokens: number): number {
    let sumMs = 0;
    let tokenMs = 0;
    for (let depth = 0; depth < tokens; depth += bandTokens) {
      // Deeper tokens take longer, so what is not known takes at least as long as what was before it.
      tokenMs = Math.max(tokenMs, this.#fastest[depth / bandTokens] ?? 0);
      sumMs += tokenMs * Math.max(0, Math.min(tokens, depth + bandTokens) - Math.max(cached, depth));
    }
    return sumMs;
  }

  /** The most tokens of a new prompt that it may read in this time, `most` or fewer. */
  tokensWithin(ms: number, most: number): number {
    let [low, high] = [0, most];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.leastMs(0, middle) <= ms) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

const bandTokens = 512;
