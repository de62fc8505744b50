import { tiers, type Tier } from '../../generation/tier.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import { TierLine, tokensAsked, type Asking } from './tier-line.ts';

export interface WaitQueueOptions {
  /** Maximum waiting requests; beyond that somebody is refused. */
  readonly lengthMax: number;
  readonly timeoutMs: number;
  /** Whether those who wait do so because no backend is there yet. */
  readonly isStarting?: () => boolean;
  /** Whether an offer could succeed now. Saves calling each waiter while everything is still taken. */
  readonly mayHaveChanged: () => boolean;
  /** An account's share beside those of others; 1 when left out. */
  readonly weightOf?: ((account: Asking['account']) => number) | undefined;
}

/** How a wait ended without a slot. When the signal was aborted, its own reason is thrown instead. */
export type Refusal = 'queue-full' | 'queue-timed-out';

/** Takes a slot if one is available to this request now; throws if none ever will be. Must be synchronous. */
export type Take<Slot extends object> = () => Slot | undefined;

/** Requests that were in front of a new one, in the order of the queue. */
export interface Ahead {
  /** Those of tiers that go before its own. */
  readonly tiers: number;
  /** Those of its own account. */
  readonly own: number;
  /** Those of other accounts in its tier that get their turns before it. */
  readonly others: number;
}

/** A request's wait, in milliseconds. */
export interface Wait {
  readonly ahead: Ahead;
  /** What the wait was expected to take when it began; undefined: no slot had been given back yet. */
  readonly expectedMs: number | undefined;
  /** So far, or until it ended. */
  readonly waitedMs: number;
  readonly isOver: boolean;
  /** Whether it waits because no backend is there yet. */
  readonly isForStart: boolean;
}

/** Weight of the latest interval between two grants in their moving average. */
const latestShare = 0.1;

/**
 * The wait queue of one model's backends, bounded in length and time (docs/decisions/056-fair-queue.md). All backends share one queue, so
 * no request waits for one backend while another is free; and no newcomer overtakes, because a slot is offered to the waiting requests
 * first. A waiter that cannot use the free slot (it has failed there, or needs zero data retention) lets the next one pass.
 *
 * Tiers go in their order, but none is passed over for ever; in a tier accounts take turns by the tokens that they get, in an account its
 * keys, and of a key the first to come is the first to be served.
 */
export class WaitQueue<Slot extends object> {
  readonly #options: WaitQueueOptions;
  readonly #lines: readonly TierLine<Waiter<Slot>>[] = tiers.map((tier) => new TierLine<Waiter<Slot>>(tier));
  #length = 0;
  #grantedMs = 0;
  #intervalMs = 0;

  constructor(options: WaitQueueOptions) {
    this.#options = options;
  }

  get length(): number {
    return this.#length;
  }

  lengthOf(tier: Tier): number {
    return this.#lineOf(tier).length;
  }

  /**
   * Returns a slot at once, or a wait for one, or a refusal. The caller gives the slot back and then calls `offer`; if it waited, `ended`
   * says what it really took.
   */
  acquire(take: Take<Slot>, signal: StopSignal, asking: Asking): Slot | Waiter<Slot> | Refusal {
    signal.throwIfAborted();
    if (this.#length > 0) this.offer();
    const slot = take();
    if (slot !== undefined) return slot;
    if (this.#length >= this.#options.lengthMax && !this.#makesRoomFor(asking)) return 'queue-full';
    return this.#wait(take, signal, asking);
  }

  /** Offers slots to waiters. Called when a slot was given back, or a backend came or went. */
  offer(): void {
    while (this.#length > 0 && this.#options.mayHaveChanged()) if (!this.#grantOne()) return;
  }

  /** A request that waited has ended, having taken this many tokens instead of those it was expected to. */
  ended(asking: Asking, tokens: number): void {
    this.#lineOf(asking.tier).correct(asking, tokens - tokensAsked(asking));
  }

  /** Gives one slot to the request that is next; false: nobody who waits can use one. */
  #grantOne(): boolean {
    // A tier that has been passed over too often goes first.
    for (const isDue of [true, false])
      for (const line of this.#lines)
        if (line.length > 0 && line.isDue === isDue && line.grant()) {
          this.#granted(line);
          return true;
        }
    return false;
  }

  #granted(line: TierLine<Waiter<Slot>>): void {
    for (let at = this.#lines.indexOf(line) + 1; at < this.#lines.length; at++) {
      const passedOver = this.#lines[at]!;
      if (passedOver.length > 0) passedOver.passes++;
    }
    const nowMs = performance.now();
    // Of the times when somebody waited: pauses say nothing about how fast slots come back.
    if (this.#grantedMs > 0) {
      const intervalMs = nowMs - this.#grantedMs;
      this.#intervalMs += this.#intervalMs === 0 ? intervalMs : latestShare * (intervalMs - this.#intervalMs);
    }
    this.#grantedMs = nowMs;
  }

  #lineOf(tier: Tier): TierLine<Waiter<Slot>> {
    return this.#lines[tiers.indexOf(tier)]!;
  }

  /**
   * The queue is full: the newest request of who has most waiting, in the last tier, makes room for one of a tier before it or of an account
   * with less, or for the first of a later tier. So nobody can fill the queue for others, and one alone can use all of it.
   */
  #makesRoomFor({ tier, account }: Asking): boolean {
    const last = this.#lines.findLast(({ length }) => length > 0);
    if (last === undefined) return false;
    const isLater = tiers.indexOf(last.tier) < tiers.indexOf(tier);
    // Without one that waits a tier would not get its share of the slots.
    if (isLater && (tier === 'batch' || this.#lineOf(tier).length > 0)) return false;
    const least = last.tier === tier ? last.lengthOf(account.id) + 2 : isLater ? 2 : 1;
    const newest = last.newestOfLongest(least);
    newest?.settle('queue-full');
    return newest !== undefined;
  }

  #wait(take: Take<Slot>, signal: StopSignal, asking: Asking): Waiter<Slot> {
    const line = this.#lineOf(asking.tier);
    const ahead = this.#aheadOf(asking, line);
    if (this.#length === 0) this.#grantedMs = 0;
    const position = ahead.tiers + ahead.own + ahead.others + 1;
    const expectedMs = this.#intervalMs === 0 ? undefined : Math.round(position * this.#intervalMs);
    const { tier, model } = asking;
    const { isStarting = never } = this.#options;
    const waitMsMax = (tier === 'default' ? undefined : model.tiers?.[tier]?.waitMs) ?? this.#options.timeoutMs;
    const abort = (): void => waiter.fail(signal.reason);
    const waiter = new Waiter<Slot>(asking, take, ahead, expectedMs, isStarting, () => {
      // A waiter with an outcome leaves the queue synchronously, so that no slot goes to one that is gone.
      line.remove(waiter);
      this.#length--;
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    });
    const timer = setTimeout(() => waiter.settle('queue-timed-out'), waitMsMax);
    signal.addEventListener('abort', abort, { once: true });
    line.add(waiter, this.#options.weightOf?.(asking.account) ?? 1);
    this.#length++;
    return waiter;
  }

  #aheadOf({ account }: Asking, line: TierLine<Waiter<Slot>>): Ahead {
    const own = line.lengthOf(account.id);
    let before = 0;
    for (const each of this.#lines) {
      if (each === line) break;
      before += each.length;
    }
    return { tiers: before, own, others: line.turnsOfOthers(account.id, own + 1) };
  }
}

/** A request that waits, or has waited. */
export class Waiter<Slot extends object> implements Wait {
  readonly asking: Asking;
  readonly ahead: Ahead;
  readonly expectedMs: number | undefined;
  /** Resolves when the wait is over. */
  readonly outcome: Promise<Slot | Refusal>;
  readonly #begunMs = performance.now();
  readonly #take: Take<Slot>;
  readonly #isStarting: () => boolean;
  readonly #leave: () => void;
  #endedMs: number | undefined;
  #resolve!: (outcome: Slot | Refusal) => void;
  #reject!: (error: Error) => void;

  constructor(
    asking: Asking,
    take: Take<Slot>,
    ahead: Ahead,
    expectedMs: number | undefined,
    isStarting: () => boolean,
    leave: () => void,
  ) {
    this.asking = asking;
    this.#take = take;
    this.ahead = ahead;
    this.expectedMs = expectedMs;
    this.#isStarting = isStarting;
    this.#leave = leave;
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get isForStart(): boolean {
    return !this.isOver && this.#isStarting();
  }

  get isOver(): boolean {
    return this.#endedMs !== undefined;
  }

  get waitedMs(): number {
    return Math.round((this.#endedMs ?? performance.now()) - this.#begunMs);
  }

  grant(): boolean {
    try {
      const slot = this.#take();
      if (slot !== undefined) this.settle(slot);
      return slot !== undefined;
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  settle(outcome: Slot | Refusal): void {
    this.#end();
    this.#resolve(outcome);
  }

  fail(error: unknown): void {
    this.#end();
    this.#reject(error as Error);
  }

  #end(): void {
    this.#endedMs = performance.now();
    this.#leave();
  }
}

const never = (): boolean => false;
