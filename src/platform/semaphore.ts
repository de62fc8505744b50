export interface SemaphoreOptions {
  /** How many may wait; further ones are refused. */
  readonly waitingMax: number;
  readonly refusal: () => Error;
}

/** Admits a number of holders at once; the others wait in order, as long as their signals allow. */
export class Semaphore {
  readonly #max: number;
  readonly #options: SemaphoreOptions | undefined;
  #held = 0;
  readonly #waiting = new Set<() => void>();

  constructor(max: number, options?: SemaphoreOptions) {
    this.#max = max;
    this.#options = options;
  }

  /** Whether nothing holds it or waits for it. */
  get isIdle(): boolean {
    return this.#held === 0 && this.#waiting.size === 0;
  }

  /** Returns the function that releases it, to be called once; undefined if the caller would have to wait. */
  tryAcquire(): (() => void) | undefined {
    if (this.#held >= this.#max) return undefined;
    this.#held++;
    return () => this.#release();
  }

  /** Resolves when there is room, with the function that releases it. Rejects with the reason of the signal, or as full. */
  async acquire(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const acquired = this.tryAcquire();
    if (acquired !== undefined) return acquired;
    if (this.#options !== undefined && this.#waiting.size >= this.#options.waitingMax) throw this.#options.refusal();
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
    return () => this.#release();
  }

  /** Passes it to the longest waiter. */
  #release(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#held--;
    else next();
  }
}
