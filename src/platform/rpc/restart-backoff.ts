export interface RestartBackoffOptions {
  /** The pause after the first death in a row; it doubles with each further one. */
  readonly firstMs: number;
  readonly mostMs: number;
  /** One that has lived this long is proven: its death begins a new row. */
  readonly provenMs: number;
  /** 0: the successor of a proven one starts immediately; 1: after the first pause. */
  readonly provenCounts: 0 | 1;
}

/** Decides when to restart what has died, with longer pauses while it keeps dying. */
export class RestartBackoff {
  readonly #options: RestartBackoffOptions;
  #deathsInRow = 0;

  constructor(options: RestartBackoffOptions) {
    this.#options = options;
  }

  get deathsInRow(): number {
    return this.#deathsInRow;
  }

  /** Returns the pause before the next start. `livedMs` is 0 for one that never worked. */
  died(livedMs: number): number {
    const { firstMs, mostMs, provenMs, provenCounts } = this.#options;
    this.#deathsInRow = livedMs >= provenMs ? provenCounts : this.#deathsInRow + 1;
    return this.#deathsInRow === 0 ? 0 : Math.min(mostMs, firstMs * 2 ** (this.#deathsInRow - 1));
  }
}
