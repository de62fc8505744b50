/**
 * How many prompt tokens one step may read: the largest power of two that takes at most 50 ms, learnt from the steps
 * themselves. An aborted request and every decoding neighbour wait for one such step at most. With SmolLM2-135M (Q4_1) on two
 * cores 16 tokens take 20–47 ms and 128 take 110–340; small chunks cost 10–15 % of the prefill rate.
 */
export class ChunkSizer {
  readonly #tokensMax: number;
  #tokenMs: number | undefined;

  constructor(tokensMax: number) {
    this.#tokensMax = tokensMax;
  }

  get tokens(): number {
    if (this.#tokenMs === undefined) return Math.min(firstTokens, this.#tokensMax);
    const fitting = 2 ** Math.floor(Math.log2(stepMs / this.#tokenMs));
    return Math.min(this.#tokensMax, Math.max(leastTokens, fitting));
  }

  /** Takes notice of a step; steps of a few tokens tell nothing of a chunk. */
  observe(tokens: number, elapsedMs: number): void {
    if (tokens < leastTokens) return;
    // No finer than the clock, so that the size stays finite.
    const tokenMs = Math.max(elapsedMs, 0.01) / tokens;
    this.#tokenMs = this.#tokenMs === undefined ? tokenMs : this.#tokenMs * 0.7 + tokenMs * 0.3;
  }
}

const stepMs = 50;
const firstTokens = 32;
const leastTokens = 8;
