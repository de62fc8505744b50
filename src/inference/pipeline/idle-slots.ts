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

/** How long a line may take to give its slot back: a server looks for aborted requests between two steps. */
const windowMs = 50;
/** How many windows are remembered: four seconds. */
const windows = 80;
/** The share of the requests that may find no slot free at once. */
const lateShare = 1 / 4;
/** How long requests are said to come after one has come. */
const recentMs = 60_000;

/** A line of a batch that has a slot. */
interface Sold<Place> {
  readonly place: Place;
  readonly stop: () => void;
}

/**
 * The slots of a model that nobody needs: what is sold to batches. A request that would wait gets the slot of the line that began last, which
 * runs again later. That takes a moment, so as many slots stay free as let three of four requests of the last seconds begin at
 * once (docs/decisions/060-idle-slots.md). `Place`: what has slots.
 */
export class IdleSlots<Place = unknown> {
  /** Slots that only the tier `priority` may take. */
  reservedSlots = 0;
  readonly #counts: () => SlotCounts;
  readonly #now: () => number;
  readonly #arrivals = new Uint32Array(windows);
  #window = 0;
  #arrivedMs = -Infinity;
  /** In the order in which they got their slots. */
  readonly #sold = new Set<Sold<Place>>();
  readonly #watchers = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** `now`: by `performance.now()`; another clock is for simulations. */
  constructor(counts: () => SlotCounts, now = () => performance.now()) {
    this.#counts = counts;
    this.#now = now;
  }

  /** A request that is of no batch has come. `nowMs` by `performance.now()`. */
  arrived(nowMs: number): void {
    this.#passTo(nowMs);
    this.#arrivals[this.#window % windows]!++;
    this.#arrivedMs = nowMs;
  }

  /** Requests that are of no batch have come in the last minute. */
  get isRecent(): boolean {
    return this.#now() - this.#arrivedMs < recentMs;
  }

  /** A line has got its slot; `stop` ends its run within a moment. Returns the function that says that it has ended. */
  sold(place: Place, stop: () => void): () => void {
    const sold = { place, stop };
    this.#sold.add(sold);
    return () => void this.#sold.delete(sold);
  }

  /**
   * A request waits that could run at these places: of the lines there, the one that began last gives its slot back. It has produced the
   * least. False: there is none.
   */
  release(isFor: (place: Place) => boolean): boolean {
    const last = [...this.#sold].findLast(({ place }) => isFor(place));
    if (last === undefined) return false;
    this.#sold.delete(last);
    last.stop();
    return true;
  }

  /** Slots that are kept free of batches. */
  reserve(nowMs = this.#now()): number {
    this.#passTo(nowMs);
    const arrived = this.#arrivals.reduce((sum, count) => sum + count, 0);
    const late = (reserve: number): number =>
      this.#arrivals.reduce((sum, count) => sum + Math.max(0, count - reserve), 0);
    let reserve = 0;
    while (late(reserve) > lateShare * arrived) reserve++;
    return reserve;
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
    const window = Math.floor(nowMs / windowMs);
    for (let passed = Math.min(window - this.#window, windows); passed > 0; passed--)
      this.#arrivals[(window - passed + 1) % windows] = 0;
    this.#window = Math.max(window, this.#window);
  }
}
