/**
 * How fast this computer can read prompts: the fastest step so far at each depth, since other load only ever makes a step longer. Its
 * estimates are therefore lower bounds, and a prompt that cannot be read in time by them cannot be read in time at all.
 */
export class ReadingPace {
  /** Milliseconds per token, by depth. */
  readonly #fastest: number[] = [];

  /** Records a step that read this many tokens of one prompt, from that depth on, and did nothing else. */
  observe(depth: number, tokens: number, elapsedMs: number): void {
    const band = Math.floor(depth / bandTokens);
    this.#fastest[band] = Math.min(this.#fastest[band] ?? Infinity, elapsedMs / tokens);
  }

  /** Returns the minimum time for a prompt's tokens from `cached` on; 0 if unknown. */
  leastMs(cached: number, tokens: number): number {
    let sumMs = 0;
    let tokenMs = 0;
    for (let depth = 0; depth < tokens; depth += bandTokens) {
      // Deeper tokens take longer, so an unknown depth takes at least as long as the one before it.
      tokenMs = Math.max(tokenMs, this.#fastest[depth / bandTokens] ?? 0);
      sumMs += tokenMs * Math.max(0, Math.min(tokens, depth + bandTokens) - Math.max(cached, depth));
    }
    return sumMs;
  }

  /** Returns the most tokens of a new prompt that can be read in this time, at most `most`. */
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
