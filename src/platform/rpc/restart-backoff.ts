export interface RestartBackoffOptions {
  /** The pause after the first death in a row; it doubles with each further one. */
  readonly firstMs: number;
  readonly mostMs: number;
  /** One that has lived for this long has proved itself: its death begins a new row. */
  readonly provenMs: number;
  /** Where 0, the successor of a proven one is started at once; where 1, after the first pause. */
  readonly provenCounts: 0 | 1;
}

/** When to start again what has died: later and later while it dies again and again. */
export class RestartBackoff {
  readonly #options: RestartBackoffOptions;
  #deathsInRow = 0;

  constructor(options: RestartBackoffOptions) {
    this.#options = options;
  }

  get deathsInRow(): number {
    return this.#deathsInRow;
  }

  /** Returns the pause before the next start. `livedMs` of one that never worked is 0. */
  died(livedMs: number): number {
    const { firstMs, mostMs, provenMs, provenCounts } = this.#options;
    this.#deathsInRow = livedMs >= provenMs ? provenCounts : this.#deathsInRow + 1;
    return this.#deathsInRow === 0 ? 0 : Math.min(mostMs, firstMs * 2 ** (this.#deathsInRow - 1));
  }
}
