import { plentyParts, wantedForMs } from '../../store/limit-leases.ts';
import type { LimitAnswer, LimitExchange, LimitName, LimitShare, WantedLimit } from '../../store/limit-leases.ts';
import { nameOf } from './counts.ts';
import type { Claim, LimitCounts, LimitRule, Taken, Taking } from './counts.ts';
import type { Windows } from './windows.ts';

interface Share extends LimitName {
  startsAt: number;
  held: number;
  /** When its holder had less than it needed. */
  wantedMs: number;
}

/**
 * Holds every limit whole: its own process takes from it at once, and it leases shares to others (money.md, "Limits across
 * replicas"). All in memory; the windows make their counts outlive the process. The statements of PostgreSQL
 * (store/postgres/limit-statements.ts) do the same, and a test compares them.
 */
export class LimitServer implements LimitCounts {
  readonly #windows: Windows;
  readonly #now: () => number;
  /** Running requests by subject: what is taken here and what is leased. */
  readonly #running = new Map<string, number>();
  /** By limit, then by holder. */
  readonly #shares = new Map<string, Map<string, Share>>();

  /** `now` is monotonic, in milliseconds. */
  constructor(windows: Windows, now: () => number = () => performance.now()) {
    this.#windows = windows;
    this.#now = now;
  }

  take<Of extends Claim>(claims: readonly Of[]): Taking<Of> {
    const lacking = claims.filter(({ rule, amount }) => this.used(rule) + amount > rule.limit);
    if (lacking.length > 0) return { lacking };
    const taken = claims.map(({ rule, amount }) => ({ rule, amount, startsAt: this.#add(rule, amount), epoch: 0 }));
    return { taken };
  }

  end({ rule, amount, startsAt }: Taken, change: number): void {
    if (rule.kind === 'running') this.#add(rule, -amount);
    else if (change > 0 || (change < 0 && startsAt === this.#startOf(rule))) this.#add(rule, change);
  }

  used(rule: LimitName): number {
    return rule.kind === 'running' ? (this.#running.get(rule.subject) ?? 0) : this.#windows.used(rule);
  }

  restMs(rule: LimitRule): number {
    return this.#windows.restMs(rule);
  }

  /** `LimitLeases.exchange` for one of several holders. */
  exchange(holder: string, asks: readonly LimitExchange[]): readonly LimitAnswer[] {
    return asks.map((ask) => this.#exchange(holder, ask));
  }

  /** The answer of `LimitLeases.wanted`. */
  wanted(holder: string): readonly WantedLimit[] {
    const wanted: WantedLimit[] = [];
    for (const shares of this.#shares.values()) {
      const own = shares.get(holder);
      if (own === undefined || own.held === 0) continue;
      const { subject, kind, lengthMs } = own;
      const contenders = [...shares.values()].filter((share) => share.held > 0 || this.#isWanted(share));
      if (contenders.some((share) => share !== own && this.#isWanted(share)))
        wanted.push({ subject, kind, lengthMs, contenders: contenders.length });
    }
    return wanted;
  }

  /** Everything that a holder has, for one that lost an answer. */
  sharesOf(holder: string): readonly LimitShare[] {
    return [...this.#shares.values()].flatMap((shares) => shares.get(holder) ?? []);
  }

  /** The holder is gone: its running requests have ended; what it had of windows stays counted. */
  drop(holder: string): void {
    for (const [name, shares] of this.#shares) {
      const share = shares.get(holder);
      if (share?.kind === 'running') this.#add(share, -share.held);
      this.#keep(name, shares, holder, undefined);
    }
  }

  #exchange(holder: string, ask: LimitExchange): LimitAnswer {
    const { limit, back, owed, least, need, want, leaves } = ask;
    const name = nameOf(ask);
    const shares = this.#shares.get(name) ?? new Map<string, Share>();
    const startsAt = this.#startOf(ask);
    const isNow = startsAt === ask.startsAt;
    const own = shares.get(holder);
    const had = own?.startsAt === startsAt ? own.held : 0;
    const returned = isNow ? Math.min(back, had) : 0;
    const room = limit - (this.used(ask) - returned + owed);
    const granted =
      isNow && room > 0 && room >= least
        ? Math.min(room, Math.max(need, Math.min(want, Math.floor(room / plentyParts))))
        : 0;
    this.#add(ask, owed + granted - returned);
    const held = leaves ? 0 : had - returned + owed + granted;
    const isShort = isNow && granted < need;
    const { subject, kind, lengthMs } = ask;
    const share = { subject, kind, lengthMs, startsAt, held, wantedMs: isShort ? this.#now() : -Infinity };
    this.#keep(name, shares, holder, held > 0 || isShort ? share : undefined);
    return { startsAt, granted, held, used: this.used(ask) };
  }

  #keep(name: string, shares: Map<string, Share>, holder: string, share: Share | undefined): void {
    if (share === undefined) shares.delete(holder);
    else shares.set(holder, share);
    if (shares.size === 0) this.#shares.delete(name);
    else this.#shares.set(name, shares);
  }

  #isWanted({ wantedMs }: Share): boolean {
    return this.#now() - wantedMs < wantedForMs;
  }

  /** Returns when the current window began. */
  #add(rule: LimitName, change: number): number {
    if (rule.kind !== 'running') return this.#windows.add(rule, change);
    const now = this.used(rule) + change;
    if (now > 0) this.#running.set(rule.subject, now);
    else this.#running.delete(rule.subject);
    return 0;
  }

  #startOf(rule: LimitName): number {
    return rule.kind === 'running' ? 0 : this.#windows.startOf(rule);
  }
}
