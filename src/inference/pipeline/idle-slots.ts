/** What is known of a model's slots. */
export interface SlotCounts {
  /** Slots of the backends that are ready; Infinity: one of them takes any number. */
  readonly slots: number;
  /** Requests that run in them, those of batches included, and lines of batches that wait for one. */
  readonly running: number;
  /** Requests that wait, without those of batches. */
  readonly waiting: number;
  /** No backend is ready, and there is room for a server that the service starts. */
  readonly mayStart: boolean;
}

/** How long arrivals are remembered, in seconds. */
const rememberedSeconds = 60;

/**
 * The slots of a model that nobody needs: what is sold to batches. A reserve stays free for requests that are about to come: as many as came
 * in the busiest second of the last minute. A wave that is no larger than those before finds its slots free, and while it lasts the lines
 * of batches that end give theirs up.
 */
export class IdleSlots {
  /** Slots that only the tier `priority` may take. */
  reservedSlots = 0;
  readonly #counts: () => SlotCounts;
  readonly #arrivals = new Uint32Array(rememberedSeconds);
  #second = 0;
  readonly #watchers = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  constructor(counts: () => SlotCounts) {
    this.#counts = counts;
  }

  /** A request that is of no batch has come. `nowMs` by `performance.now()`. */
  arrived(nowMs: number): void {
    this.#passTo(nowMs);
    this.#arrivals[this.#second % rememberedSeconds]!++;
  }

  /** Slots that are kept free of batches. */
  reserve(nowMs = performance.now()): number {
    this.#passTo(nowMs);
    return this.#arrivals.reduce((most, count) => Math.max(most, count), 0);
  }

  /** Slots that no request has. */
  get unused(): number {
    const { slots, running } = this.#counts();
    return Math.max(0, slots - running);
  }

  /** How many requests of batches may start now; 0 while any other request waits. */
  get free(): number {
    const { slots, running, waiting, mayStart } = this.#counts();
    if (waiting > 0) return 0;
    // One line has the server started; its slots are there for the others then.
    if (mayStart) return running > 0 ? 0 : 1;
    return Math.max(0, slots - running - Math.max(this.reserve(), this.reservedSlots));
  }

  /**
   * Calls `wake` whenever a slot may have become free for a batch: after a slot was given back, and every second, because the reserve
   * falls with time. It must be quick and throw nothing. Returns the function that ends it.
   */
  watch(wake: () => void): () => void {
    this.#watchers.add(wake);
    this.#timer ??= setInterval(() => this.changed(), 1_000).unref();
    return () => {
      this.#watchers.delete(wake);
      if (this.#watchers.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  /** Slots were given back, or backends came or went. */
  changed(): void {
    if (this.#watchers.size > 0 && this.free > 0) for (const wake of this.#watchers) wake();
  }

  #passTo(nowMs: number): void {
    const second = Math.floor(nowMs / 1_000);
    for (let passed = Math.min(second - this.#second, rememberedSeconds); passed > 0; passed--)
      this.#arrivals[(second - passed + 1) % rememberedSeconds] = 0;
    this.#second = Math.max(second, this.#second);
  }
}
