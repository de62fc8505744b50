/** How fast a model writes one answer, or reads inputs: weighted towards the latest. */
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

/** Fewer measure the first step. */
const tokensMin = 8;
/** Shorter ones measure how messages are bundled. */
const elapsedMinMs = 50;
const latestShare = 0.2;
