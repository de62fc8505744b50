/** Measurements that are kept: enough for a 95th percentile that 12 lie above. */
const keptMax = 256;
/** Before that the 95th percentile is a guess. */
const keptMin = 40;
const sortEvery = 16;

/** The latest times to the first content of a model's requests. */
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

  /** What 95 of 100 do not exceed, in milliseconds; Infinity while too few are known. */
  get p95(): number {
    return this.#p95;
  }
}
