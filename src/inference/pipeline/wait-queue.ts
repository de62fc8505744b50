import type { StopSignal } from '../../platform/stop-signal.ts';
export interface WaitQueueOptions {
  /** Maximum waiting requests; further ones are refused. */
  readonly lengthMax: number;
  readonly timeoutMs: number;
  /** Whether an offer could succeed now. Saves calling each waiter while everything is still taken. */
  readonly mayHaveChanged: () => boolean;
}

/** How a wait ended without a slot. When the signal was aborted, its own reason is thrown instead. */
export type Refusal = 'queue-full' | 'queue-timed-out';

/** Takes a slot if one is available to this request now; throws if none ever will be. Must be synchronous. */
export type Take<Slot extends object> = () => Slot | undefined;

interface Waiter<Slot extends object> {
  readonly take: Take<Slot>;
  readonly settle: (outcome: Slot | Refusal) => void;
  readonly fail: (error: unknown) => void;
}

/**
 * The wait queue of one model's backends: first come, first served, bounded in length and time. All backends share one queue, so no request
 * waits for one backend while another is free; and no request is overtaken, because a slot is offered to the waiting requests before a new
 * one gets it. A waiter that cannot use the free slot (it has failed there, or needs zero data retention) lets the next one pass.
 */
export class WaitQueue<Slot extends object> {
  readonly #options: WaitQueueOptions;
  readonly #waiters = new Set<Waiter<Slot>>();

  constructor(options: WaitQueueOptions) {
    this.#options = options;
  }

  get length(): number {
    return this.#waiters.size;
  }

  /** Returns a slot, immediately or after a wait. The caller gives it back and then calls `offer`. */
  acquire(take: Take<Slot>, signal: StopSignal): Slot | Promise<Slot | Refusal> | Refusal {
    signal.throwIfAborted();
    if (this.#waiters.size > 0) this.offer();
    const slot = take();
    if (slot !== undefined) return slot;
    return this.#waiters.size < this.#options.lengthMax ? this.#wait(take, signal) : 'queue-full';
  }

  /** Offers slots to waiters. Called when a slot was given back, or a backend came or went. */
  offer(): void {
    if (this.#waiters.size === 0 || !this.#options.mayHaveChanged()) return;
    for (const waiter of this.#waiters) {
      try {
        const slot = waiter.take();
        if (slot !== undefined) waiter.settle(slot);
      } catch (error) {
        waiter.fail(error);
      }
    }
  }

  #wait(take: Take<Slot>, signal: StopSignal): Promise<Slot | Refusal> {
    return new Promise((resolve, reject) => {
      // A waiter with an outcome leaves the queue synchronously, so that no slot goes to one that is gone.
      const leave = (): void => {
        this.#waiters.delete(waiter);
        clearTimeout(timer);
        signal.removeEventListener('abort', abort);
      };
      const waiter: Waiter<Slot> = {
        take,
        settle: (outcome) => {
          leave();
          resolve(outcome);
        },
        fail: (error) => {
          leave();
          reject(error as Error);
        },
      };
      const abort = (): void => waiter.fail(signal.reason);
      const timer = setTimeout(() => waiter.settle('queue-timed-out'), this.#options.timeoutMs);
      signal.addEventListener('abort', abort, { once: true });
      this.#waiters.add(waiter);
    });
  }
}
