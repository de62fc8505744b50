import { FairQueue } from './fair-queue.ts';
import type { StopSignal } from './stop-signal.ts';

export interface FairPlacesOptions {
  /** How many may be held at the same time. */
  readonly placesMax: number;
  /** How many one account may hold: fewer than all, so that the next account finds one, however long this account's work takes. */
  readonly perAccountMax: number;
  /** How many may wait, over all accounts. One alone gets half, two get a third each, so there is always room for another. */
  readonly waitingMax: number;
  readonly waitMsMax: number;
  /** The error of a refused caller: there was no room to wait, or the wait was too long. `max`: the limit that applied. */
  readonly refusal: (max: number) => Error;
}

/** Gives a place back; called once. */
export type Leave = () => void;

interface Waiting {
  readonly account: string;
  readonly enter: () => void;
}

/**
 * Places for work that accounts compete for. Accounts take turns: a busy one waits behind its own work, and another waits for at
 * most one piece of work when all places are taken.
 */
export class FairPlaces {
  readonly #options: FairPlacesOptions;
  readonly #queue: FairQueue<Waiting>;
  readonly #inside = new Map<string, number>();
  #insideCount = 0;
  #begun = 0;
  #refused = 0;

  constructor(options: FairPlacesOptions) {
    this.#options = options;
    this.#queue = new FairQueue(options.waitingMax);
  }

  /** Pieces of work begun since the start. */
  get begun(): number {
    return this.#begun;
  }

  /** Callers refused since the start. */
  get refused(): number {
    return this.#refused;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** Whether nothing is running or waiting. */
  get isIdle(): boolean {
    return this.#insideCount === 0 && this.#queue.size === 0;
  }

  /** Does the work in a place. Rejects with the refusal, or with the signal's reason while it waits. */
  async hold<Value>(account: string, signal: StopSignal, work: () => Promise<Value>): Promise<Value> {
    const leave = await this.enter(account, signal);
    try {
      return await work();
    } finally {
      leave();
    }
  }

  /** Takes a place, immediately or after a wait. */
  async enter(account: string, signal: StopSignal): Promise<Leave> {
    signal.throwIfAborted();
    if (this.#mayEnter(account)) this.#take(account);
    else await this.#wait(account, signal);
    let hasLeft = false;
    return () => {
      if (hasLeft) throw new Error('a place is given back once');
      hasLeft = true;
      this.#leave(account);
    };
  }

  #mayEnter(account: string): boolean {
    const { placesMax, perAccountMax } = this.#options;
    return this.#insideCount < placesMax && (this.#inside.get(account) ?? 0) < perAccountMax;
  }

  #take(account: string): void {
    this.#begun++;
    this.#insideCount++;
    this.#inside.set(account, (this.#inside.get(account) ?? 0) + 1);
  }

  #leave(account: string): void {
    this.#insideCount--;
    const own = (this.#inside.get(account) ?? 0) - 1;
    if (own > 0) this.#inside.set(account, own);
    else this.#inside.delete(account);
    // Waiters come first: they get their places before a new caller can ask.
    const mayEnter = (source: string): boolean => this.#mayEnter(source);
    for (let next = this.#queue.next(mayEnter); next !== undefined; next = this.#queue.next(mayEnter)) {
      this.#take(next.account);
      next.enter();
    }
  }

  #wait(account: string, signal: StopSignal): Promise<void> {
    const { waitingMax, waitMsMax, refusal } = this.#options;
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', abort);
      };
      const waiting: Waiting = {
        account,
        enter: () => {
          settle();
          resolve();
        },
      };
      const give = (error: unknown): void => {
        settle();
        this.#queue.remove(account, waiting);
        reject(error as Error);
      };
      const refuse = (): void => {
        this.#refused++;
        give(refusal(waitingMax));
      };
      const abort = (): void => give(signal.reason);
      const timer = setTimeout(refuse, waitMsMax);
      if (!this.#queue.add(account, waiting)) refuse();
      else signal.addEventListener('abort', abort, { once: true });
    });
  }
}

/** Separate places for each key, such as a host; a key is forgotten while nobody uses it. */
export class FairPlacesOf<Key> {
  readonly #options: FairPlacesOptions;
  readonly #places = new Map<Key, FairPlaces>();
  #begun = 0;
  #refused = 0;

  constructor(options: FairPlacesOptions) {
    const { refusal } = options;
    const counted = (max: number): Error => {
      this.#refused++;
      return refusal(max);
    };
    this.#options = { ...options, refusal: counted };
  }

  get begun(): number {
    return this.#begun;
  }

  get refused(): number {
    return this.#refused;
  }

  get waiting(): number {
    return [...this.#places.values()].reduce((sum, { waiting }) => sum + waiting, 0);
  }

  async hold<Value>(key: Key, account: string, signal: StopSignal, work: () => Promise<Value>): Promise<Value> {
    const places = this.#places.get(key) ?? new FairPlaces(this.#options);
    this.#places.set(key, places);
    try {
      return await places.hold(account, signal, () => {
        this.#begun++;
        return work();
      });
    } finally {
      if (places.isIdle && this.#places.get(key) === places) this.#places.delete(key);
    }
  }
}
