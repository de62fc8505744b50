/** How fast a model writes one answer, or reads inputs, weighted towards the latest. */
export class SpeedMeter {
  #tokensPerSecond: number | undefined;

  get tokensPerSecond(): number | undefined {
    return this.#tokensPerSecond;
  }

  observe(tokens: number, elapsedMs: number): void {
    if (tokens < tokensMin || elapsedMs < elapsedMinMs) return;
    const speed = (tokens / elapsedMs) * 1000;
    this.#tokensPerSecond =
      this.#tokensPerSecond === undefined ? speed : this.#tokensPerSecond * (1 - latestShare) + speed * latestShare;
  }
}

/** With fewer tokens, the first step would dominate. */
const tokensMin = 8;
/** Over shorter times, the batching of messages would dominate. */
const elapsedMinMs = 50;
const latestShare = 0.2;
