import { nameOf } from '../../../src/billing/rate-limits/counts.ts';
import { WholeLimits } from '../../../src/billing/rate-limits/whole-limits.ts';
import type { Windows } from '../../../src/billing/rate-limits/windows.ts';
import { plentyParts, wantedForMs } from '../../../src/store/limit-leases.ts';
import type {
  LimitAnswer,
  LimitExchange,
  LimitName,
  LimitShare,
  WantedLimit,
} from '../../../src/store/limit-leases.ts';

interface Share extends LimitName {
  startsAt: number;
  held: number;
  /** When its holder had less than it needed. */
  wantedMs: number;
}

/**
 * The rules by which PostgreSQL leases limits (store/postgres/limit-statements.ts), in memory: what a client of leases is tested
 * against many times a second, and what the statements are compared with.
 */
export class LimitServer extends WholeLimits {
  readonly #now: () => number;
  /** By limit, then by holder. */
  readonly #shares = new Map<string, Map<string, Share>>();

  /** `now` is monotonic, in milliseconds. */
  constructor(windows: Windows, now: () => number = () => performance.now()) {
    super(windows);
    this.#now = now;
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
      if (share?.kind === 'running') this.add(share, -share.held);
      this.#keep(name, shares, holder, undefined);
    }
  }

  #exchange(holder: string, ask: LimitExchange): LimitAnswer {
    const { limit, back, owed, least, need, want, leaves } = ask;
    const name = nameOf(ask);
    const shares = this.#shares.get(name) ?? new Map<string, Share>();
    const startsAt = this.startOf(ask);
    const isNow = startsAt === ask.startsAt;
    const own = shares.get(holder);
    const had = own?.startsAt === startsAt ? own.held : 0;
    const returned = isNow ? Math.min(back, had) : 0;
    const room = limit - (this.used(ask) - returned + owed);
    const granted =
      isNow && room > 0 && room >= least
        ? Math.min(room, Math.max(need, Math.min(want, Math.floor(room / plentyParts))))
        : 0;
    this.add(ask, owed + granted - returned);
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
}
