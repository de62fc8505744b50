import type { LimitExchange, LimitName } from '../../store/limit-leases.ts';
import type { StoreError } from '../../store/store-error.ts';
import { nameOf } from './counts.ts';
import type { Claim, LimitRule, Taking } from './counts.ts';
import { windowStart } from './windows.ts';

/** This process's share of one limit. */
export interface Pool extends LimitName {
  readonly name: string;
  startsAt: number;
  /** The rule's limit as of the last request. */
  ruleLimit: number;
  /** The lowest limit that all shares together were seen to respect; under a lower one, the held share does not count. */
  limit: number;
  /** Leased, used or not. */
  held: number;
  /** Above `held`: used beyond the lease, and not yet reported. */
  used: number;
  /** No longer part of `held`; returned with the next exchange. */
  returning: number;
  /** What all others had at the limit server's last answer. */
  others: number;
  /** Claims that have not ended. */
  open: number;
  /** Whether the limit server may have a share of this process. */
  isListed: boolean;
  activeMs: number;
  readonly waiters: Set<Waiter>;
  /** The amount that the last request took. */
  unit: number;
  spent: number;
  perSecond: number;
  dryUntilMs: number;
  /** Remaining tries before the waiting requests are refused; the next is not before `tryAtMs`. */
  tries: number;
  tryAtMs: number;
  /** When others were last notified of the shortage. */
  lackingMs: number;
  refusal: Refusal | undefined;
  contention: Contention | undefined;
}

/** A request that waits until it can take all of its claims. */
export interface Waiter {
  readonly claims: readonly Claim[];
  readonly sinceMs: number;
  resolve(taking: Taking<Claim>): void;
  reject(error: StoreError): void;
}

/** What is refused from memory, and until when: this amount or more, under this limit or a lower one. */
interface Refusal {
  readonly untilMs: number;
  readonly amount: number;
  readonly limit: number;
}

/** Until when others want a share of the running requests, and how much this process keeps meanwhile. */
interface Contention {
  readonly untilMs: number;
  readonly part: number;
}

/** A share of a window covers this many requests, or this much use, whichever is more. */
const requestsAhead = 16;
const useAheadSeconds = 2;
/** Shares that no request has used for this long are returned. */
const idleMs = 10_000;

/** Returns the share of a limit of which this process has nothing yet. */
export function newPool(name: string, { subject, kind, lengthMs, limit }: LimitRule): Pool {
  return {
    ...{ name, subject, kind, lengthMs, startsAt: 0, ruleLimit: limit, limit: Infinity },
    ...{ held: 0, used: 0, returning: 0, others: 0, open: 0, isListed: false },
    ...{ activeMs: performance.now(), waiters: new Set() },
    ...{ unit: 1, spent: 0, perSecond: 0, dryUntilMs: 0, tries: 0, tryAtMs: 0, lackingMs: -Infinity },
    ...{ refusal: undefined, contention: undefined },
  };
}

/** Returns what a share asks of the limit server and returns to it; `undefined`: nothing. */
export function exchangeOf(pool: Pool, nowMs: number, isClosed: boolean): LimitExchange | undefined {
  const { subject, kind, lengthMs, ruleLimit: limit } = pool;
  // The slot of a request that still runs is not given up.
  const leaves = (isIdle(pool, nowMs) || isClosed) && (kind !== 'running' || pool.used === 0);
  // Under a lower limit only the limit server knows whether the held share may be used.
  if (leaves || limit < pool.limit) {
    const free = freeOf(pool);
    pool.returning += free;
    pool.held -= free;
  }
  const isPausing = nowMs < pool.tryAtMs;
  const amounts = isPausing ? [] : amountsOf(pool);
  const free = freeOf(pool);
  const [first = 0] = amounts;
  const sum = amounts.reduce((total, amount) => total + amount, 0);
  const least = first === 0 ? 0 : Math.max(1, first - free);
  const need = first === 0 ? 0 : Math.max(least, sum - free);
  const isAhead = kind !== 'running' && !leaves && !isPausing && pool.dryUntilMs < nowMs && free * 2 < aheadOf(pool);
  const want = Math.max(need, isAhead ? Math.ceil(aheadOf(pool)) - free : 0);
  const owed = Math.max(0, pool.used - pool.held);
  const back = pool.returning;
  if (back === 0 && owed === 0 && want === 0 && !leaves) return undefined;
  pool.returning = 0;
  return { subject, kind, lengthMs, startsAt: pool.startsAt, limit, back, owed, least, need, want, leaves };
}

/** Starts the next window; a lease ends with its window. */
export function rollWindow(pool: Pool, clockMs: number): void {
  const { subject, lengthMs, startsAt } = pool;
  const now = windowStart(subject, lengthMs, clockMs);
  // Another process may already be in the next window: then all are.
  if (startsAt === now || startsAt === now + lengthMs) return;
  beginWindow(pool, now);
}

export function beginWindow(pool: Pool, startsAt: number): void {
  const fresh = { held: 0, used: 0, returning: 0, others: 0, limit: Infinity, refusal: undefined, dryUntilMs: 0 };
  Object.assign(pool, fresh, { startsAt, tries: 0, tryAtMs: 0, lackingMs: -Infinity });
}

export function isIdle({ open, waiters, activeMs }: Pool, nowMs: number): boolean {
  return open === 0 && waiters.size === 0 && activeMs < nowMs - idleMs;
}

export function freeOf({ held, used }: Pool): number {
  return Math.max(0, held - used);
}

/** How much of a window should be leased ahead. */
export const aheadOf = ({ unit, perSecond }: Pool): number =>
  Math.max(requestsAhead * unit, useAheadSeconds * perSecond);

/** The amounts that waiters need here, in their order. */
function amountsOf(pool: Pool): readonly number[] {
  const amounts: number[] = [];
  for (const { claims } of pool.waiters)
    for (const { rule, amount } of claims) if (nameOf(rule) === pool.name) amounts.push(amount);
  const sum = amounts.reduce((total, amount) => total + amount, 0);
  // They wait for another limit.
  return pool.ruleLimit >= pool.limit && freeOf(pool) >= sum ? [] : amounts;
}
