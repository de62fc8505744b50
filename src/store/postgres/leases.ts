import { setTimeout as sleep } from 'node:timers/promises';
import { isOfBudget, readPurseId } from '../budget.ts';
import type { LeasedBalances } from '../ledger.ts';
import { StoreError } from '../store-error.ts';
import type { Session } from './connection.ts';
import { isWorthAnotherTry, sqlState, storeErrorOf } from './postgres-error.ts';
import { hexOf } from './settlements.ts';
import { beginPurse, giveBack, giveBackToBudget, grant, grantOfBudget } from './statements.ts';

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
const answerTimeoutMs = 2_000;
const conflictTriesMax = 5;
/** Replicas call to each other for idle remainders on this channel; admin events and poor accounts only, never per request. */
export const returnChannel = 'tokenhouse_return';

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
  /** The purse is there to be leased from: of a budget, the first to ask begins it. */
  isBegun: boolean;
}

export interface LeasesOptions {
  readonly session: Session;
  readonly replica: () => Uint8Array;
  readonly free: LeasedBalances;
}

/** What this replica may spend of each purse: leased ahead of need, given back when it is idle or others lack it. */
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

  /** Another replica lacks what may be idle here. */
  called(payload: string): void {
    const [replica, purseId = ''] = payload.split(' ');
    if (replica !== hexOf(this.#options.replica()) && this.#leases.has(purseId)) void this.returnFree(purseId);
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
    const { free, session, replica } = this.#options;
    const amount = free.freeMicrocents(purseId);
    if (amount <= 0n || !free.reserve(purseId, amount)) return Promise.resolve();
    // Without an answer nobody knows whether it is back in the purse; it is not spent here again, and what is stranded
    // goes back when this replica ends.
    const statement = isOfBudget(purseId) ? giveBackToBudget : giveBack;
    const returning = session.query(statement, [replica(), purseId, amount], answerTimeoutMs).then(
      () => {},
      () => {},
    );
    this.#returning.add(returning);
    return returning.finally(() => this.#returning.delete(returning));
  }

  /** Calls on all other replicas to give back what is idle of the purse. */
  async callOthers(purseId: string): Promise<void> {
    await this.#options.session.query(
      { name: 'call', text: `select pg_notify('${returnChannel}', $1)` },
      [`${hexOf(this.#options.replica())} ${purseId}`],
      answerTimeoutMs,
    );
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
          if (tries === 0) await this.callOthers(purseId);
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
      const failure = storeErrorOf(error);
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

  async #grant(
    purseId: string,
    lease: Lease,
    missing: bigint,
  ): Promise<{ readonly leased: bigint; readonly isElsewhere: boolean }> {
    const { session, replica } = this.#options;
    const waiting = lease.waiters.reduce((sum, { needMicrocents }) => sum + needMicrocents, 0n);
    const want = wanted(lease) > waiting ? wanted(lease) : waiting;
    for (let conflicts = 0; ; conflicts++) {
      const me = replica();
      try {
        if (!lease.isBegun) await this.#begin(purseId);
        const { rows } = await session.query<{ leased: bigint; isElsewhere: boolean; isThere: boolean }>(
          isOfBudget(purseId) ? grantOfBudget : grant,
          [me, purseId, missing, want, lease.needMicrocents],
          answerTimeoutMs,
        );
        // A budget that this replica has not yet heard the end of has no purse; it may be set again.
        lease.isBegun = rows[0]!.isThere || !isOfBudget(purseId);
        // Leased by an earlier life, whose slices have gone back.
        if (me !== replica()) continue;
        return rows[0]!;
      } catch (error) {
        if (!(isWorthAnotherTry(error) || isOfOldRow(error)) || conflicts >= conflictTriesMax) throw error;
        await sleep(Math.random() * 10 * 2 ** conflicts);
      }
    }
  }

  async #begin(purseId: string): Promise<void> {
    const { subject, per, startsAt, endsAt } = readPurseId(purseId);
    await this.#options.session.query(beginPurse, [purseId, subject, per, startsAt, endsAt], answerTimeoutMs);
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
        isBegun: !isOfBudget(purseId),
      };
      this.#leases.set(purseId, lease);
    }
    return lease;
  }
}

/**
 * A lease is of what the locked row has, maybe more than the row of the snapshot had: somebody has just given back or
 * topped up. PostgreSQL checks what the update makes of the old row before it finds the new one.
 */
const isOfOldRow = (error: unknown): boolean => sqlState(error) === '23514';

function wanted({ needMicrocents, spendingPerSecond }: Lease): bigint {
  const forHolds = needMicrocents * holdsAhead;
  const forSpending = spendingPerSecond * spendingAheadSeconds;
  return forHolds > forSpending ? forHolds : forSpending;
}
