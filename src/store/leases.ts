import { setTimeout as sleep } from 'node:timers/promises';
import { isOfBudget, readBalanceId } from './budget.ts';
import type { CreditLeases, FreeBalances } from './ledger.ts';
import { StoreError, storeErrorFrom } from './store-error.ts';

/** A lease covers this many holds, or this much spending, whichever is more. */
const holdsAhead = 64n;
const spendingAheadSeconds = 2n;
/** A remainder that was not requested for this long is returned, so that others find it. */
const idleMs = 10_000;
const sweepEveryMs = 1_000;
/**
 * Maximum leases of a process that has the balances alone, like the default maximum of keys in memory; beyond it, leases unused for
 * `aloneIdleMs` are returned.
 */
const aloneMax = 100_000;
const aloneIdleMs = 600_000;
/** Maximum number of these that are checked in one sweep, and that are returned. */
const aloneLookedMax = 10_000;
const aloneReturnedMax = 1_000;
/** A balance without credit is checked again after this time if no request waits for it. */
const dryMs = 1_000;
/** Number of tries while others may have idle remainders of a balance that cannot pay, with a pause for their answer. */
const triesMax = 4;
const pauseMs = 25;
/** Tries to debit an account while processes return its idle credit. */
const debitTriesMax = 4;

/** Owns the balances, and leases parts of them. */
export interface LeaseServer {
  /** Rejects with a StoreError. */
  grant(input: LeaseRequest): Promise<Granted>;
  /** Takes back what is not needed. Without an answer it is unknown whether it was returned. */
  returnUnused(balanceId: string, microcents: bigint): Promise<unknown>;
  /** Calls in idle leases of the balance from all other processes. */
  callOthers(balanceId: string): Promise<unknown>;
}

export interface Granted {
  /** In microcents. */
  readonly leased: bigint;
  /** Whether others hold some of the balance. */
  readonly isElsewhere: boolean;
  /** Whether the balance exists. */
  readonly isThere: boolean;
}

/** All in microcents. */
export interface LeaseRequest {
  readonly balanceId: string;
  /** At least this much, or nothing; 0: as much as is available, ahead of need. */
  readonly missing: bigint;
  /** At most this much. */
  readonly want: bigint;
  /** Increment of the amount, if less than `want` is granted. */
  readonly step: bigint;
  /** Whether it is the first request of a lease, which for a budget begins the balance. */
  readonly isFirst: boolean;
}

interface Waiter {
  readonly needMicrocents: bigint;
  resolve(microcents: bigint): void;
  reject(error: StoreError): void;
}

interface Lease {
  activeMs: number;
  /** The amount of the last requested hold on the balance. */
  needMicrocents: bigint;
  spentMicrocents: bigint;
  spendingPerSecond: bigint;
  waiters: Waiter[];
  isAsking: boolean;
  dryUntilMs: number;
  /** Whether its first request was answered. */
  isBegun: boolean;
  /** Number of changes of its budget and of call-ins so far. */
  changes: number;
  /** The value of `changes` before the last request that was granted something; -1: there was no such request. */
  changesGranted: number;
}

export interface LeasesOptions {
  readonly leaseServer: LeaseServer;
  readonly free: FreeBalances;
  /**
   * Set if no other process leases from the server, which answers in order, and grants everything available: nothing is renewed, and
   * nothing is returned because it is idle. Every change of a balance goes through `changing`.
   */
  readonly alone?: boolean;
}

/** What this process may spend of each balance: leased ahead of need, returned when idle or needed by others. */
export class Leases implements CreditLeases {
  readonly #options: LeasesOptions;
  readonly #leases = new Map<string, Lease>();
  readonly #sweeper: NodeJS.Timeout | undefined;
  readonly #returning = new Set<Promise<void>>();
  /** If alone: some lease has been returned because it was idle, so a hold may outlive its lease. */
  #hasReturnedAlone = false;
  #closed = false;

  constructor(options: LeasesOptions) {
    this.#options = options;
    this.#sweeper = setInterval(() => this.sweep(), sweepEveryMs).unref();
  }

  /** Runs one request per balance at a time; callers that arrive meanwhile share the next one. */
  lease(balanceId: string, needMicrocents: bigint): Promise<bigint> {
    if (this.#closed) return Promise.reject(new StoreError('failed', 'the ledger is closed'));
    const lease = this.#leaseOf(balanceId);
    lease.activeMs = performance.now();
    if (needMicrocents > 0n) lease.needMicrocents = needMicrocents;
    return new Promise((resolve, reject) => {
      lease.waiters.push({ needMicrocents, resolve, reject });
      if (!lease.isAsking) void this.#ask(balanceId, lease);
    });
  }

  /** Leases more in the background when less than half of the wanted amount is left, so that a busy balance never waits. */
  noteRemaining(balanceId: string, freeMicrocents: bigint): void {
    if (this.#options.alone === true) return;
    const lease = this.#leases.get(balanceId);
    if (lease === undefined) return;
    lease.activeMs = performance.now();
    if (lease.isAsking || freeMicrocents * 2n >= wanted(lease) || lease.dryUntilMs > lease.activeMs) return;
    void this.#refill(balanceId, lease);
  }

  /** Records that a hold was charged. */
  spent(balanceId: string, microcents: bigint): void {
    const lease = this.#leases.get(balanceId);
    if (lease === undefined) return;
    lease.activeMs = performance.now();
    lease.spentMicrocents += microcents;
  }

  /**
   * Returns what a hold leaves over if the rest of the lease was returned earlier, as idle or for a change of the budget, and nothing has
   * been leased since: the balance may not cover its holds.
   */
  freed(balanceId: string): void {
    const isAlone = this.#options.alone === true;
    if (isAlone && !this.#hasReturnedAlone) return;
    const lease = this.#leases.get(balanceId);
    if (lease === undefined) {
      void this.releaseUnused(balanceId);
      this.#options.free.drop(balanceId);
    } else if (!isAlone && lease.changes !== lease.changesGranted) void this.releaseUnused(balanceId);
  }

  /**
   * Another process needs what may be idle here: returns it, and also what holds leave over until something is leased again. Resolves like
   * `releaseUnused`.
   */
  async called(balanceId: string): Promise<void> {
    const lease = this.#leases.get(balanceId);
    if (lease === undefined) return;
    lease.changes += 1;
    await this.releaseUnused(balanceId);
  }

  /** Ends the lease of a balance whose period is over and of which this process holds nothing. */
  release(balanceId: string): void {
    void this.releaseUnused(balanceId);
    const lease = this.#leases.get(balanceId);
    if (lease?.waiters.length === 0 && !lease.isAsking) this.#leases.delete(balanceId);
  }

  /** Returns the free part of a budget, or of all budgets, so that its change applies to everything admitted from now on. */
  budgetChanged(subject: string | undefined): void {
    if (this.#options.alone === true) return;
    for (const balanceId of this.ofBudget(subject)) {
      this.#leaseOf(balanceId).changes += 1;
      void this.releaseUnused(balanceId);
      this.#options.free.credit(balanceId, 0n); // a request that was refused a moment ago need not wait any longer
    }
  }

  /**
   * If alone: changes balances and leases them again in the same moment. A debit therefore finds everything that no request holds, and when
   * the change is durable, the free amount matches the ledger.
   */
  async changing<Value>(balanceIds: readonly string[], change: () => Promise<Value>): Promise<Value> {
    const leased = balanceIds.filter((balanceId) => this.#leases.has(balanceId));
    for (const balanceId of leased) void this.releaseUnused(balanceId);
    const changed = change();
    await Promise.allSettled([changed, ...leased.map((balanceId) => this.#leaseAgain(balanceId))]);
    return await changed;
  }

  /** The leased balances of a budget, or of all budgets. */
  ofBudget(subject: string | undefined): readonly string[] {
    const isIt = (balanceId: string): boolean =>
      isOfBudget(balanceId) && (subject === undefined || readBalanceId(balanceId).subject === subject);
    return [...this.#leases.keys()].filter(isIt);
  }

  /** Returns the free part of a balance. Resolves when it is available to others, or when the outcome is unknown. */
  releaseUnused(balanceId: string): Promise<void> {
    const { free, leaseServer, alone } = this.#options;
    const amount = free.freeMicrocents(balanceId);
    if (alone !== true && amount <= 0n) return Promise.resolve();
    if (!free.reserve(balanceId, amount)) return Promise.resolve();
    const returning = leaseServer.returnUnused(balanceId, amount).then(
      () => {},
      (error: unknown) => {
        // Without an answer it is unknown whether it is back in the balance; it is not spent here again, and what is stranded is returned
        // when this process ends.
        if (wasNotWritten(error)) free.credit(balanceId, amount);
      },
    );
    this.#returning.add(returning);
    return returning.finally(() => this.#returning.delete(returning));
  }

  /** Forgets all leases, which no longer belong to this process. Waiters are answered from the new epoch. */
  forget(): void {
    for (const [balanceId, lease] of this.#leases) if (lease.waiters.length === 0) this.#leases.delete(balanceId);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#sweeper);
    for (const { waiters } of this.#leases.values())
      for (const waiter of waiters.splice(0)) waiter.reject(new StoreError('failed', 'the ledger is closed'));
    await Promise.all(this.#returning);
  }

  async #ask(balanceId: string, lease: Lease): Promise<void> {
    const { free } = this.#options;
    lease.isAsking = true;
    try {
      for (let tries = 0; lease.waiters.length > 0;) {
        const first = lease.waiters[0]!;
        const missing = first.needMicrocents - free.freeMicrocents(balanceId);
        if (missing <= 0n) {
          this.#hand(balanceId, lease, 0n); // returned meanwhile
          continue;
        }
        const { leased, isElsewhere } = await this.#grant(balanceId, lease, missing);
        if (leased !== 0n) {
          tries = 0;
          this.#hand(balanceId, lease, leased);
        } else if (isElsewhere && tries < triesMax) {
          if (tries === 0) await this.#options.leaseServer.callOthers(balanceId);
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
   * Gives each waiter all that it needs, in order, from the lease and from what has become free: otherwise other requests could take part
   * of it before the waiter's turn.
   */
  #hand(balanceId: string, lease: Lease, leased: bigint): void {
    const { free } = this.#options;
    let rest = leased;
    while (lease.waiters.length > 0) {
      const { needMicrocents, resolve } = lease.waiters[0]!;
      const missing = needMicrocents - rest;
      if (missing > 0n && !free.reserve(balanceId, missing)) break;
      rest = missing > 0n ? 0n : -missing;
      lease.waiters.shift();
      resolve(needMicrocents);
    }
    if (rest !== 0n) this.#credit(balanceId, rest);
  }

  #credit(balanceId: string, microcents: bigint): void {
    this.#options.free.credit(balanceId, microcents);
    this.freed(balanceId);
  }

  async #leaseAgain(balanceId: string): Promise<void> {
    const request = { balanceId, missing: 0n, want: 0n, step: 1n, isFirst: false };
    const { leased } = await this.#options.leaseServer.grant(request);
    this.#options.free.credit(balanceId, leased);
  }

  async #refill(balanceId: string, lease: Lease): Promise<void> {
    lease.isAsking = true;
    try {
      const { leased } = await this.#grant(balanceId, lease, 0n);
      if (leased > 0n) this.#credit(balanceId, leased);
      else lease.dryUntilMs = performance.now() + dryMs;
    } catch {
      // No request waits for it; one that needs more will ask, and get the reason.
    } finally {
      lease.isAsking = false;
      if (lease.waiters.length > 0) void this.#ask(balanceId, lease);
    }
  }

  async #grant(balanceId: string, lease: Lease, missing: bigint): ReturnType<LeaseServer['grant']> {
    const waiting = lease.waiters.reduce((sum, { needMicrocents }) => sum + needMicrocents, 0n);
    const want = wanted(lease) > waiting ? wanted(lease) : waiting;
    const input = { balanceId, missing, want, step: lease.needMicrocents, isFirst: !lease.isBegun };
    const { changes } = lease;
    const granted = await this.#options.leaseServer.grant(input);
    if (granted.leased > 0n) lease.changesGranted = changes;
    // A budget whose removal has not reached this process yet has no balance; it may be set again.
    lease.isBegun = granted.isThere;
    return granted;
  }

  /** Number of balances with a lease. */
  get size(): number {
    return this.#leases.size;
  }

  /** Returns and forgets idle leases. `leasesMax`: for a process that has the balances alone, which then keeps idle ones too. */
  sweep(nowMs = performance.now(), leasesMax = aloneMax): void {
    if (this.#options.alone === true) return this.#sweepAlone(nowMs, leasesMax);
    const idleSinceMs = nowMs - idleMs;
    for (const [balanceId, lease] of this.#leases) {
      lease.spendingPerSecond = (lease.spendingPerSecond + lease.spentMicrocents) / 2n;
      lease.spentMicrocents = 0n;
      if (lease.activeMs > idleSinceMs || lease.isAsking) continue;
      this.#forgetIdle(balanceId);
    }
  }

  /** Rotates: leases in use go to the end. */
  #sweepAlone(nowMs: number, leasesMax: number): void {
    let left = Math.min(aloneReturnedMax, this.#leases.size - leasesMax);
    let unseen = Math.min(aloneLookedMax, this.#leases.size);
    for (const [balanceId, lease] of this.#leases) {
      if (left <= 0 || unseen-- === 0) return;
      if (nowMs - lease.activeMs < aloneIdleMs || lease.isAsking || lease.waiters.length > 0) {
        this.#leases.delete(balanceId);
        this.#leases.set(balanceId, lease);
        continue;
      }
      left--;
      this.#hasReturnedAlone = true;
      this.#forgetIdle(balanceId);
    }
  }

  #forgetIdle(balanceId: string): void {
    void this.releaseUnused(balanceId);
    this.#leases.delete(balanceId);
    this.#options.free.drop(balanceId);
  }

  #leaseOf(balanceId: string): Lease {
    let lease = this.#leases.get(balanceId);
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
        changes: 0,
        changesGranted: -1,
      };
      this.#leases.set(balanceId, lease);
    }
    return lease;
  }
}

/**
 * Debits an account, by a transfer or by a lower credit limit. Processes may have idle parts of its credit, which are called in before the
 * debit is refused.
 */
export async function debiting<Value>(
  debit: () => Promise<Value>,
  callIn: (tries: number) => Promise<unknown>,
): Promise<Value> {
  for (let tries = 0; ; tries++) {
    try {
      return await debit();
    } catch (error) {
      const isShort = error instanceof StoreError && error.code === 'insufficient';
      if (!isShort || tries >= debitTriesMax) throw error;
      await callIn(tries);
    }
  }
}

/** The server has refused all of it. */
const wasNotWritten = (error: unknown): boolean =>
  error instanceof StoreError && (error.code === 'busy' || error.code === 'full');

function wanted({ needMicrocents, spendingPerSecond }: Lease): bigint {
  const forHolds = needMicrocents * holdsAhead;
  const forSpending = spendingPerSecond * spendingAheadSeconds;
  return forHolds > forSpending ? forHolds : forSpending;
}
