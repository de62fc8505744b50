import { setTimeout as sleep } from 'node:timers/promises';
import { isOfBudget, readPurseId } from './budget.ts';
import type { LeasedBalances } from './ledger.ts';
import { StoreError, storeErrorFrom } from './store-error.ts';

/** A lease lasts for so many holds, or for so much spending, whichever is more. */
const holdsAhead = 64n;
const spendingAheadSeconds = 2n;
/** What was not asked for in this time goes back, so that others find it. */
const idleMs = 10_000;
const sweepEveryMs = 1_000;
/** A purse without money is looked at again after this, when nobody waits for it. */
const dryMs = 1_000;
/** While others may have idle remainders of a purse that cannot pay: asked so often, with a pause for their answer. */
const triesMax = 4;
const pauseMs = 25;

/** Who has the purses, and hands out parts of them. */
export interface Lender {
  /** Rejects with a StoreError. */
  grant(wish: LeaseWish): Promise<Granted>;
  /** Takes back what is not needed. Without an answer nobody knows whether it is back. */
  giveBack(purseId: string, microcents: bigint): Promise<unknown>;
  /** Calls on all others to give back what is idle of the purse. */
  callOthers(purseId: string): Promise<unknown>;
}

export interface Granted {
  /** In microcents. */
  readonly leased: bigint;
  /** Others hold some of the purse. */
  readonly isElsewhere: boolean;
  /** There is such a purse. */
  readonly isThere: boolean;
}

/** All in microcents. */
export interface LeaseWish {
  readonly purseId: string;
  /** So much at least, or nothing; 0: whatever there is, ahead of need. */
  readonly missing: bigint;
  /** So much at most. */
  readonly want: bigint;
  /** In steps of so much, where less than `want` is handed out. */
  readonly step: bigint;
  /** The first wish of a lease: of a budget, the first to ask begins the purse. */
  readonly isFirst: boolean;
}

/** What a wish gets of a purse: a sixteenth of it at most where less than `want` would do, so that others find some too. */
export function leaseOf(
  available: bigint,
  { missing, want, step }: Pick<LeaseWish, 'missing' | 'want' | 'step'>,
): bigint {
  if (available <= 0n || available < missing) return 0n;
  const share = (available / 16n / step) * step;
  const ahead = want < share ? want : share;
  const asked = missing > ahead ? missing : ahead;
  return asked < available ? asked : available;
}

interface Waiter {
  readonly needMicrocents: bigint;
  resolve(microcents: bigint): void;
  reject(error: StoreError): void;
}

interface Lease {
  activeMs: number;
  /** What a request holds of the purse, by the last one that asked. */
  needMicrocents: bigint;
  spentMicrocents: bigint;
  spendingPerSecond: bigint;
  waiters: Waiter[];
  isAsking: boolean;
  dryUntilMs: number;
  /** Its first wish was answered. */
  isBegun: boolean;
}

export interface LeasesOptions {
  readonly lender: Lender;
  readonly free: LeasedBalances;
}

/** What this process may spend of each purse: leased ahead of need, given back when it is idle or others lack it. */
export class Leases {
  readonly #options: LeasesOptions;
  readonly #leases = new Map<string, Lease>();
  readonly #sweeper: NodeJS.Timeout;
  readonly #returning = new Set<Promise<void>>();
  #closed = false;

  constructor(options: LeasesOptions) {
    this.#options = options;
    this.#sweeper = setInterval(() => this.#sweep(), sweepEveryMs);
    this.#sweeper.unref();
  }

  /** One question for each purse at a time; those who come meanwhile share the next. */
  slice(purseId: string, needMicrocents: bigint): Promise<bigint> {
    if (this.#closed) return Promise.reject(new StoreError('failed', 'the ledger is closed'));
    const lease = this.#leaseOf(purseId);
    lease.activeMs = performance.now();
    if (needMicrocents > 0n) lease.needMicrocents = needMicrocents;
    return new Promise((resolve, reject) => {
      lease.waiters.push({ needMicrocents, resolve, reject });
      if (!lease.isAsking) void this.#ask(purseId, lease);
    });
  }

  /** Leases more in the background when less than half of what is wanted is left, so that a busy purse never waits. */
  left(purseId: string, freeMicrocents: bigint): void {
    const lease = this.#leases.get(purseId);
    if (lease === undefined) return;
    lease.activeMs = performance.now();
    if (lease.isAsking || freeMicrocents * 2n >= wanted(lease) || lease.dryUntilMs > lease.activeMs) return;
    void this.#refill(purseId, lease);
  }

  /** A hold ends: what it leaves free is idle from now on, however long ago the purse was last held from. */
  spent(purseId: string, microcents: bigint): void {
    const lease = this.#leaseOf(purseId);
    lease.activeMs = performance.now();
    lease.spentMicrocents += microcents;
  }

  /** Another process lacks what may be idle here. Resolves as `returnFree`. */
  async called(purseId: string): Promise<void> {
    if (this.#leases.has(purseId)) await this.returnFree(purseId);
  }

  /** The period of the purse is over, and nobody here holds any of it. */
  release(purseId: string): void {
    void this.returnFree(purseId);
    const lease = this.#leases.get(purseId);
    if (lease?.waiters.length === 0 && !lease.isAsking) this.#leases.delete(purseId);
  }

  /** Gives back what is free of a budget, or of all of them, so that its change holds for what is let in from now on. */
  returnBudget(subject: string | undefined): void {
    for (const purseId of this.#leases.keys()) {
      if (!isOfBudget(purseId) || (subject !== undefined && readPurseId(purseId).subject !== subject)) continue;
      void this.returnFree(purseId);
      this.#options.free.credit(purseId, 0n); // who was refused a moment ago need not wait any longer
    }
  }

  /** Gives back all that is free of a purse. Resolves when it can be had by others, or nobody knows. */
  returnFree(purseId: string): Promise<void> {
    const { free, lender } = this.#options;
    const amount = free.freeMicrocents(purseId);
    if (amount <= 0n || !free.reserve(purseId, amount)) return Promise.resolve();
    // Without an answer nobody knows whether it is back in the purse; it is not spent here again, and what is stranded
    // goes back when this process ends.
    const returning = lender.giveBack(purseId, amount).then(
      () => {},
      () => {},
    );
    this.#returning.add(returning);
    return returning.finally(() => this.#returning.delete(returning));
  }

  /** Nothing that was leased is ours any more. Who waits is answered out of the new life. */
  forget(): void {
    for (const [purseId, lease] of this.#leases) if (lease.waiters.length === 0) this.#leases.delete(purseId);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#sweeper);
    for (const { waiters } of this.#leases.values())
      for (const waiter of waiters.splice(0)) waiter.reject(new StoreError('failed', 'the ledger is closed'));
    await Promise.all(this.#returning);
  }

  async #ask(purseId: string, lease: Lease): Promise<void> {
    const { free } = this.#options;
    lease.isAsking = true;
    try {
      for (let tries = 0; lease.waiters.length > 0;) {
        const first = lease.waiters[0]!;
        const missing = first.needMicrocents - free.freeMicrocents(purseId);
        if (missing <= 0n) {
          this.#hand(purseId, lease, 0n); // came back meanwhile
          continue;
        }
        const { leased, isElsewhere } = await this.#grant(purseId, lease, missing);
        if (leased > 0n) {
          tries = 0;
          this.#hand(purseId, lease, leased);
        } else if (isElsewhere && tries < triesMax) {
          if (tries === 0) await this.#options.lender.callOthers(purseId);
          tries += 1;
          await sleep(pauseMs * (0.75 + Math.random() / 2));
        } else {
          tries = 0;
          lease.dryUntilMs = performance.now() + dryMs;
          const refused = lease.waiters.filter((one) => one.needMicrocents >= first.needMicrocents);
          lease.waiters = lease.waiters.filter((one) => one.needMicrocents < first.needMicrocents);
          for (const one of refused) one.resolve(0n);
        }
      }
    } catch (error) {
      const failure = storeErrorFrom(error);
      for (const waiter of lease.waiters.splice(0)) waiter.reject(failure);
    } finally {
      lease.isAsking = false;
    }
  }

  /**
   * Each waiter gets all that it needs, in order, out of the lease and of what has become free: a part of it could be gone
   * to somebody else before the waiter's turn comes.
   */
  #hand(purseId: string, lease: Lease, leased: bigint): void {
    const { free } = this.#options;
    let rest = leased;
    while (lease.waiters.length > 0) {
      const { needMicrocents, resolve } = lease.waiters[0]!;
      const missing = needMicrocents - rest;
      if (missing > 0n && !free.reserve(purseId, missing)) break;
      rest = missing > 0n ? 0n : -missing;
      lease.waiters.shift();
      resolve(needMicrocents);
    }
    if (rest > 0n) free.credit(purseId, rest);
  }

  async #refill(purseId: string, lease: Lease): Promise<void> {
    lease.isAsking = true;
    try {
      const { leased } = await this.#grant(purseId, lease, 0n);
      if (leased > 0n) this.#options.free.credit(purseId, leased);
      else lease.dryUntilMs = performance.now() + dryMs;
    } catch {
      // Nobody waits for it; whoever needs more asks, and hears why there is none.
    } finally {
      lease.isAsking = false;
      if (lease.waiters.length > 0) void this.#ask(purseId, lease);
    }
  }

  async #grant(purseId: string, lease: Lease, missing: bigint): ReturnType<Lender['grant']> {
    const waiting = lease.waiters.reduce((sum, { needMicrocents }) => sum + needMicrocents, 0n);
    const want = wanted(lease) > waiting ? wanted(lease) : waiting;
    const wish = { purseId, missing, want, step: lease.needMicrocents, isFirst: !lease.isBegun };
    const granted = await this.#options.lender.grant(wish);
    // A budget that this process has not yet heard the end of has no purse; it may be set again.
    lease.isBegun = granted.isThere;
    return granted;
  }

  #sweep(): void {
    const idleSinceMs = performance.now() - idleMs;
    for (const [purseId, lease] of this.#leases) {
      lease.spendingPerSecond = (lease.spendingPerSecond + lease.spentMicrocents) / 2n;
      lease.spentMicrocents = 0n;
      if (lease.activeMs > idleSinceMs || lease.isAsking) continue;
      void this.returnFree(purseId);
      this.#leases.delete(purseId);
    }
  }

  #leaseOf(purseId: string): Lease {
    let lease = this.#leases.get(purseId);
    if (lease === undefined) {
      lease = {
        activeMs: performance.now(),
        needMicrocents: 1n,
        spentMicrocents: 0n,
        spendingPerSecond: 0n,
        waiters: [],
        isAsking: false,
        dryUntilMs: 0,
        isBegun: false,
      };
      this.#leases.set(purseId, lease);
    }
    return lease;
  }
}

function wanted({ needMicrocents, spendingPerSecond }: Lease): bigint {
  const forHolds = needMicrocents * holdsAhead;
  const forSpending = spendingPerSecond * spendingAheadSeconds;
  return forHolds > forSpending ? forHolds : forSpending;
}
