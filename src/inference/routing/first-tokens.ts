/** Measurements kept: enough that 12 lie above the 95th percentile. */
const keptMax = 256;
/** With fewer, the 95th percentile would be a guess. */
const keptMin = 40;
const sortEvery = 16;

/** The latest times to first content of a model's requests. */
export class FirstTokens {
  readonly #kept: number[] = [];
  #count = 0;
  #p95 = Infinity;

  observe(elapsedMs: number): void {
    this.#kept[this.#count++ % keptMax] = elapsedMs;
    if (this.#kept.length < keptMin || this.#count % sortEvery !== 0) return;
    const sorted = Float64Array.from(this.#kept).sort();
    this.#p95 = sorted[Math.floor(0.95 * sorted.length)]!;
  }

  /** The 95th percentile in milliseconds; Infinity until enough are known. */
  get p95(): number {
    return this.#p95;
  }
}
