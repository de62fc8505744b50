/** Admits a number of entrants at once; the others wait in order, as long as their signals allow. */
export class Gate {
  readonly #max: number;
  #running = 0;
  readonly #waiting = new Set<() => void>();

  constructor(max: number) {
    this.#max = max;
  }

  /** There is no entrant inside and none waiting. */
  get isIdle(): boolean {
    return this.#running === 0 && this.#waiting.size === 0;
  }

  /** Resolves when there is room, with the function that returns it, to be called once. Rejects with the reason of the signal. */
  async enter(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#running >= this.#max) {
      await new Promise<void>((resolve, reject) => {
        const settle = (): void => {
          this.#waiting.delete(go);
          signal.removeEventListener('abort', leave);
        };
        const go = (): void => {
          settle();
          resolve();
        };
        const leave = (): void => {
          settle();
          reject(signal.reason as Error);
        };
        this.#waiting.add(go);
        signal.addEventListener('abort', leave, { once: true });
      });
      // The entrant that left has handed its slot over.
    } else this.#running++;
    return () => {
      const [next] = this.#waiting;
      if (next === undefined) this.#running--;
      else next();
    };
  }
}
