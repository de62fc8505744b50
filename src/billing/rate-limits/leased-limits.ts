import { setImmediate as nextTurn } from 'node:timers/promises';

import type {
  LimitAnswer,
  LimitExchange,
  LimitLeases,
  LimitName,
  LimitShare,
  WantedLimit,
} from '../../store/limit-leases.ts';
import { withDeadline } from '../../platform/deadline.ts';
import { StoreError } from '../../store/store-error.ts';
import { nameOf } from './counts.ts';
import type { Claim, LimitCounts, LimitRule, Taken, Taking } from './counts.ts';
import {
  aheadOf,
  beginWindow,
  exchangeOf,
  freeOf,
  isIdle,
  newPool,
  rollWindow,
  type Pool,
  type Waiter,
} from './limit-pool.ts';

/** Maximum limits in one exchange; the rest wait for the next. */
const exchangedAtOnceMax = 500;
/** How often to ask what other processes need. It bounds how long they can be refused something idle here. */
const lookEveryMs = 100;
/** How long this process keeps to its part of a limit after a poll that found others short of it. */
const contendedMs = 3 * lookEveryMs;
/** Number of tries while others may have idle capacity, with a pause in which they poll. */
const triesMax = 5;
const pauseMs = 60;
/** After this time the others have returned what was idle when they were asked, and need not be waited for again. */
const askedForMs = 1_000;
/** A refusal is repeated from memory for this long, so that a storm costs nothing. */
const refusalMs = 250;
/** Delay before asking again for capacity ahead of need, after there was none. */
const dryMs = 1_000;
/** If the limit server does not answer in this time, the request is refused. */
const waitMaxMs = 2_000;
/** While requests wait, how often to check for overdue ones. */
const tickMs = 50;
const sweepEveryMs = 1_000;
/** Time limit for the returns at shutdown. */
const closeMaxMs = 2_000;

interface Asked {
  readonly pool: Pool;
  readonly exchange: LimitExchange;
  /** The value of `used` when the exchange was sent. */
  readonly used: number;
}

export interface LeasedLimitsOptions {
  readonly leases: LimitLeases;
  /** Monotonic milliseconds since 1970, as nearly the same for all processes as possible. */
  readonly now: () => number;
  /** Called when running requests' slots were given to others, because this process has expired. */
  readonly lost?: () => void;
}

/**
 * Limits that are leased in shares from a limit server common to several processes (money.md, "Limits across replicas"). A held share is
 * taken immediately; when it is used up, one round trip serves all waiting requests.
 *
 * A process that runs short makes the others return idle shares, tries a few times, and refuses. A slot that becomes free while others want
 * one is returned if this process has more than its part; otherwise the next request here takes it.
 */
export class LeasedLimits implements LimitCounts {
  readonly #options: LeasedLimitsOptions;
  readonly #pools = new Map<string, Pool>();
  /** Pools with something to report to the limit server. */
  readonly #due = new Set<Pool>();
  readonly #waiters = new Set<Waiter>();
  readonly #timers: NodeJS.Timeout[];
  #tick: NodeJS.Timeout | undefined;
  #working: Promise<void> | undefined;
  #looking: Promise<void> | undefined;
  /** Incremented when all leases were lost: earlier amounts are not returned. */
  #epoch = 1;
  #closed = false;

  constructor(options: LeasedLimitsOptions) {
    this.#options = options;
    options.leases.listen({
      restored: (shares) => this.#restore(shares),
      lost: () => {
        this.#forget();
        options.lost?.();
      },
    });
    this.#timers = [
      setInterval(() => this.#look(), lookEveryMs).unref(),
      setInterval(() => this.#sweep(), sweepEveryMs).unref(),
    ];
  }

  /** Number of limits with a share here. */
  get size(): number {
    return this.#pools.size;
  }

  take<Of extends Claim>(claims: readonly Of[]): Taking<Of> | Promise<Taking<Of>> {
    const nowMs = performance.now();
    const pools = claims.map(({ rule }) => this.#poolOf(rule));
    const lacking = claims.filter((claim, index) => {
      const pool = pools[index]!;
      pool.ruleLimit = claim.rule.limit;
      pool.activeMs = nowMs;
      return !this.#has(claim, pool);
    });
    if (lacking.length === 0) return { taken: this.#takeAll(claims, pools) };
    const refused = lacking.filter((claim) => this.#isRefused(claim, nowMs));
    if (refused.length > 0) return { lacking: refused };
    if (this.#closed) return Promise.reject(new StoreError('failed', 'the limits are closed'));
    return new Promise<Taking<Claim>>((resolve, reject) => {
      const waiter: Waiter = { claims, sinceMs: nowMs, resolve, reject };
      this.#waiters.add(waiter);
      this.#enter(waiter);
    }) as Promise<Taking<Of>>; // the same claims that were passed in
  }

  end({ rule, amount, startsAt, epoch }: Taken, change: number): void {
    const pool = epoch === this.#epoch || change > 0 ? this.#poolOf(rule) : undefined;
    if (pool === undefined) return;
    if (epoch === this.#epoch) pool.open--;
    pool.activeMs = performance.now();
    if (rule.kind === 'running') {
      if (epoch === this.#epoch) this.#leave(pool, amount);
    } else if (change > 0 || (epoch === this.#epoch && startsAt === pool.startsAt)) {
      pool.used += change;
      pool.spent += change;
      if (change > 0) this.#note(pool);
      else this.#serve(pool.waiters);
    }
  }

  used(rule: LimitRule): number {
    const pool = this.#poolOf(rule);
    return pool.others + pool.used;
  }

  restMs(rule: LimitRule): number {
    return Math.max(1, this.#poolOf(rule).startsAt + rule.lengthMs - this.#options.now());
  }

  /** Returns everything unused. Later claims are refused. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const timer of this.#timers) clearInterval(timer);
    clearTimeout(this.#tick);
    for (const waiter of this.#waiters) this.#reject(waiter, new StoreError('failed', 'the limits are closed'));
    for (const pool of this.#pools.values()) this.#note(pool);
    await withDeadline(this.#rest(), closeMaxMs, () => {});
    this.#due.clear();
  }

  async #rest(): Promise<void> {
    while (this.#working !== undefined) await this.#working;
  }

  // Shares held here.

  #poolOf({ subject, kind, lengthMs, limit }: LimitRule): Pool {
    const name = nameOf({ subject, kind, lengthMs });
    let pool = this.#pools.get(name);
    if (pool === undefined) {
      pool = newPool(name, { subject, kind, lengthMs, limit });
      this.#pools.set(name, pool);
    }
    if (kind !== 'running') rollWindow(pool, this.#options.now());
    return pool;
  }

  #has({ rule, amount }: Claim, pool = this.#poolOf(rule)): boolean {
    return pool.held - pool.used >= amount && rule.limit >= pool.limit && this.#isTrusted(rule);
  }

  #takeAll(claims: readonly Claim[], pools = claims.map(({ rule }) => this.#poolOf(rule))): readonly Taken[] {
    return claims.map(({ rule, amount }, index) => {
      const pool = pools[index]!;
      pool.used += amount;
      pool.open++;
      if (rule.kind !== 'running') {
        pool.unit = amount;
        pool.spent += amount;
        if (freeOf(pool) * 2 < aheadOf(pool) && pool.dryUntilMs < pool.activeMs) this.#note(pool);
      }
      return { rule, amount, startsAt: pool.startsAt, epoch: this.#epoch };
    });
  }

  #isRefused({ rule, amount }: Claim, nowMs: number): boolean {
    const pool = this.#poolOf(rule);
    const { refusal } = pool;
    return (
      refusal !== undefined &&
      nowMs < refusal.untilMs &&
      rule.limit <= refusal.limit &&
      amount - freeOf(pool) >= refusal.amount &&
      this.#isTrusted(rule)
    );
  }

  #isTrusted({ kind }: LimitName): boolean {
    return kind !== 'running' || performance.now() < this.#options.leases.trustedUntilMs;
  }

  /** Ends a running request. */
  #leave(pool: Pool, amount: number): void {
    pool.used -= amount;
    const { contention } = pool;
    const isOverPart =
      contention !== undefined && performance.now() < contention.untilMs && pool.held > contention.part;
    if (isOverPart || pool.ruleLimit < pool.limit) this.#releaseUnused(pool, amount);
    else this.#serve(pool.waiters);
  }

  #releaseUnused(pool: Pool, amount: number): void {
    if (amount <= 0) return;
    pool.held -= amount;
    pool.returning += amount;
    this.#note(pool);
  }

  // Waiting requests.

  #enter(waiter: Waiter): void {
    for (const claim of waiter.claims) {
      const pool = this.#poolOf(claim.rule);
      pool.waiters.add(waiter);
      if (!this.#has(claim)) this.#note(pool);
    }
    this.#tick ??= setTimeout(() => this.#wait(), tickMs);
  }

  #quit(waiter: Waiter): void {
    this.#waiters.delete(waiter);
    for (const { rule } of waiter.claims) this.#pools.get(nameOf(rule))?.waiters.delete(waiter);
  }

  #reject(waiter: Waiter, error: StoreError): void {
    this.#quit(waiter);
    waiter.reject(error);
  }

  /** Serves each waiter that can take all of its claims, first come, first served. */
  #serve(waiters: Iterable<Waiter>): void {
    for (const waiter of [...waiters]) {
      if (!waiter.claims.every((claim) => this.#has(claim))) continue;
      this.#quit(waiter);
      waiter.resolve({ taken: this.#takeAll(waiter.claims) });
    }
  }

  #wait(): void {
    this.#tick = undefined;
    const nowMs = performance.now();
    this.#serve(this.#waiters);
    for (const waiter of this.#waiters) {
      if (nowMs - waiter.sinceMs > waitMaxMs)
        this.#reject(waiter, new StoreError('failed', 'the limits do not answer'));
      else for (const claim of waiter.claims) if (!this.#has(claim)) this.#note(this.#poolOf(claim.rule));
    }
    if (this.#waiters.size > 0) this.#tick = setTimeout(() => this.#wait(), tickMs);
  }

  // Exchanges with the limit server.

  #note(pool: Pool): void {
    this.#due.add(pool);
    this.#start();
  }

  /** Runs in the next turn of the event loop, so that everything from one turn is asked together. */
  #start(): void {
    this.#working ??= nextTurn()
      .then(() => this.#work())
      .finally(() => {
        this.#working = undefined;
        if (this.#due.size > 0) this.#start();
      });
  }

  async #work(): Promise<void> {
    while (this.#due.size > 0) {
      let asked: readonly Asked[] = [];
      let answers: readonly LimitAnswer[];
      try {
        answers = await this.#options.leases.exchange(() => {
          asked = this.#collect();
          return asked.map((one) => one.exchange);
        });
      } catch {
        // Exchanges in flight are restored before the next one; `#wait` rejects waiters that have waited too long.
        if (this.#closed) return this.#due.clear();
        for (const { pool } of asked) this.#due.add(pool);
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
        continue;
      }
      if (asked.length === 0) return; // only paused ones: `#wait` handles them later
      const short = asked.filter((one, index) => this.#apply(one, answers[index]!));
      for (const { pool } of asked) this.#serve(pool.waiters);
      for (const one of short) this.#refuse(one);
    }
  }

  #collect(): readonly Asked[] {
    const asked: Asked[] = [];
    const nowMs = performance.now();
    for (const pool of this.#due) {
      if (asked.length >= exchangedAtOnceMax) break;
      this.#due.delete(pool);
      if (this.#pools.get(pool.name) !== pool) continue;
      if (pool.kind !== 'running') rollWindow(pool, this.#options.now());
      const exchange = exchangeOf(pool, nowMs, this.#closed);
      if (exchange !== undefined) asked.push({ pool, exchange, used: pool.used });
    }
    return asked;
  }

  /** Applies an answer; true: it was less than the waiters need. */
  #apply({ pool, exchange, used }: Asked, answer: LimitAnswer): boolean {
    if (this.#pools.get(pool.name) !== pool) return false;
    pool.isListed = true;
    if (answer.startsAt !== exchange.startsAt) {
      // If the server is ahead of this process, all continue in its window. If it is slightly behind, ask again.
      if (answer.startsAt > pool.startsAt) {
        beginWindow(pool, answer.startsAt);
        pool.used = pool.held = answer.held;
        pool.others = answer.used - answer.held;
      } else pool.tryAtMs = performance.now() + pauseMs;
      if (pool.waiters.size > 0) this.#due.add(pool);
      return false;
    }
    if (pool.startsAt !== exchange.startsAt) {
      // The window is over.
      if (pool.waiters.size > 0) this.#due.add(pool);
      return false;
    }
    if (exchange.leaves) {
      pool.used -= used;
      pool.isListed = false;
      if (pool.waiters.size === 0 && pool.used === 0) this.#pools.delete(pool.name);
    }
    pool.held = answer.held - pool.returning;
    pool.others = answer.used - answer.held;
    pool.limit = answer.used <= exchange.limit ? exchange.limit : Infinity;
    if (exchange.want > exchange.need && answer.granted <= exchange.need) pool.dryUntilMs = performance.now() + dryMs;
    return answer.granted < exchange.need;
  }

  /** Handles a shortage: tries again while others may return something, or refuses the remaining waiters. */
  #refuse({ pool, exchange }: Asked): void {
    const nowMs = performance.now();
    if (!this.#isTrusted(pool)) {
      pool.tryAtMs = nowMs + pauseMs; // `#wait` handles it later
      return;
    }
    // The others poll many times meanwhile, and the next try finds anything they return.
    const isFirst = nowMs - pool.lackingMs > askedForMs;
    pool.lackingMs = nowMs;
    if (isFirst && pool.others > 0) pool.tries = triesMax;
    if (pool.tries > 0) {
      pool.tries--;
      pool.tryAtMs = nowMs + pauseMs * (0.75 + Math.random() / 2);
      setTimeout(() => this.#note(pool), pool.tryAtMs - nowMs).unref();
      return;
    }
    pool.refusal = { untilMs: nowMs + refusalMs, amount: exchange.least, limit: exchange.limit };
    for (const waiter of [...pool.waiters]) {
      const lacking = waiter.claims.filter((claim) => this.#isRefused(claim, nowMs) && !this.#has(claim));
      if (lacking.length === 0) continue;
      this.#quit(waiter);
      waiter.resolve({ lacking });
    }
    if (pool.waiters.size > 0) this.#due.add(pool);
  }

  // What the others need, and what is idle here.

  #look(): void {
    if (this.#pools.size === 0) return;
    this.#looking ??= this.#options.leases
      .wanted()
      .then(
        (wanted) => this.#share(wanted),
        () => {}, // the next poll tries again
      )
      .finally(() => (this.#looking = undefined));
  }

  #share(wanted: readonly WantedLimit[]): void {
    const nowMs = performance.now();
    for (const { contenders, ...name } of wanted) {
      const pool = this.#pools.get(nameOf(name));
      if (pool === undefined) continue;
      if (pool.kind === 'running') {
        pool.contention = { untilMs: nowMs + contendedMs, part: Math.floor(pool.ruleLimit / contenders) };
      } else rollWindow(pool, this.#options.now());
      pool.dryUntilMs = nowMs + dryMs;
      if (pool.waiters.size === 0) this.#releaseUnused(pool, freeOf(pool));
    }
  }

  #sweep(): void {
    const nowMs = performance.now();
    for (const pool of this.#pools.values()) {
      if (pool.kind !== 'running') rollWindow(pool, this.#options.now());
      pool.perSecond = (pool.perSecond + Math.max(0, pool.spent)) / 2;
      pool.spent = 0;
      if (!isIdle(pool, nowMs)) continue;
      if (pool.isListed) this.#note(pool);
      else this.#pools.delete(pool.name);
    }
  }

  // What happens to shares when an answer was lost, or this process has expired.

  /** Adopts the shares held according to the server. Those not in memory are returned, like anything idle. */
  #restore(shares: readonly LimitShare[]): void {
    const unseen = new Set(this.#pools.values());
    for (const share of shares) {
      const isKnown = this.#pools.has(nameOf(share));
      const pool = this.#poolOf({ ...share, limit: 0 });
      pool.isListed = true;
      if (!isKnown) pool.activeMs = -Infinity;
      if (pool.kind !== 'running' && pool.startsAt !== share.startsAt) continue;
      unseen.delete(pool);
      pool.held = share.held;
      pool.returning = 0;
      if (isKnown) continue;
      pool.used = pool.kind === 'running' ? 0 : share.held;
    }
    for (const pool of unseen) {
      pool.held = Math.min(pool.held, Math.max(0, pool.used));
      pool.returning = 0;
    }
    for (const pool of this.#pools.values()) if (pool.waiters.size > 0 || pool.used > pool.held) this.#due.add(pool);
  }

  #forget(): void {
    this.#epoch++;
    this.#pools.clear();
    this.#due.clear();
    for (const waiter of this.#waiters) this.#enter(waiter);
  }
}
