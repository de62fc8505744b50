import { ApiError, atCap } from '../errors.ts';
import type { ErrorDetails } from '../errors.ts';
import type { WindowRule, Windows } from './windows.ts';

/** What an account is sold: how many requests, and how fast. Whatever is left out is not limited. */
export interface Plan {
  readonly name: string;
  /** Requests that are included in each window: those of plan keys, which the plan pays for. */
  readonly quota?: { readonly requests: number; readonly windowMs: number } | undefined;
  /** Of all keys of the account together. */
  readonly requestsPerMinute?: number | undefined;
  readonly tokensPerMinute?: number | undefined;
  readonly concurrencyMax?: number | undefined;
}

/** Limits of one key, beside those of its account. */
export interface KeyRates {
  readonly concurrencyMax?: number | undefined;
  readonly requestsPerMinute?: number | undefined;
  readonly tokensPerMinute?: number | undefined;
}

/** What is known of whoever asks. */
export interface LimitedCaller {
  readonly account: {
    readonly id: string;
    /** Name of its plan. */
    readonly plan?: string | undefined;
    /** Instead of what its plan, or the configuration, says. */
    readonly concurrencyMax?: number | undefined;
  };
  readonly key: {
    readonly id: string;
    readonly rates?: KeyRates | undefined;
    /** Its requests are paid by the plan, not from credit. */
    readonly isPlanKey?: boolean | undefined;
  };
}

/** `generate` takes a slot and counts everywhere; `file` takes a slot, `count` none, and both count as requests only. */
export type LimitedWork = 'generate' | 'file' | 'count';

/** How a request ended that was let in. */
export interface Spent {
  /** Tokens of prompt and answer together. */
  readonly tokens: number;
  /** false: it failed by no fault of the client, so it is not one of those that the plan includes (money.md, "Plans"). */
  readonly isCounted: boolean;
}

/** A request that was let in. */
export interface Admitted {
  /** `RateLimit-*` of the limit that is nearest, as it is now; empty without limits. */
  headers(): Readonly<Record<string, string>>;
  /** Gives back what it had taken, once. Without `spent` it came to nothing. */
  end(spent?: Spent): void;
}

export interface LimitsOptions {
  readonly windows: Windows;
  /** Running requests of an account, where neither its plan nor the account itself says something else. */
  readonly concurrencyPerAccountMax: number;
  readonly plans: readonly Plan[];
  /** The time of day, for what people read. */
  readonly wall?: () => number;
}

const minuteMs = 60_000;

/**
 * Every limit on what one account or one key may ask for (specification §7.5 and part 8): requests that run, requests that
 * a plan includes, requests and tokens in a minute. A request is let in by all of them or counted by none.
 */
export class Limits {
  /** May change at any time; what runs goes on. */
  concurrencyPerAccountMax: number;
  readonly #windows: Windows;
  readonly #wall: () => number;
  #plans: ReadonlyMap<string, Plan>;
  /** Running requests by the id of the account, and by the ids of keys that have a cap of their own. */
  readonly #running = new Map<string, number>();
  #total = 0;

  constructor({ windows, concurrencyPerAccountMax, plans, wall = Date.now }: LimitsOptions) {
    this.#windows = windows;
    this.#wall = wall;
    this.concurrencyPerAccountMax = concurrencyPerAccountMax;
    this.#plans = byName(plans);
  }

  /** Hold from the next request on. */
  set plans(plans: readonly Plan[]) {
    this.#plans = byName(plans);
  }

  /** Running requests of all accounts. */
  get running(): number {
    return this.#total;
  }

  /** The plan that pays for the requests of this key; `undefined`: they are paid from credit. Throws `http_403`. */
  coveringPlan({ account, key }: LimitedCaller): string | undefined {
    if (key.isPlanKey !== true) return undefined;
    const plan = this.#planOf(account);
    if (plan !== undefined) return plan.name;
    throw new ApiError('http_403', 'This key is paid by a plan, and its account has none.');
  }

  /**
   * Lets a request in, or throws `concurrency_limit_exceeded`, `request_quota_exceeded` or `rate_limit_exceeded` 429: of all
   * limits that are met the one that takes longest, so that `Retry-After` is true. `tokens` is what it is likely to use.
   */
  admit(caller: LimitedCaller, work: LimitedWork, tokens = 0): Admitted {
    const { account, key } = caller;
    const plan = this.#planOf(account);
    const slots = work === 'count' ? [] : this.#slotsOf(caller, plan);
    const shares = plan === undefined && key.rates === undefined ? none : sharesOf(caller, plan, work, tokens);
    this.#check(slots, shares, plan);
    for (const { subject } of slots) this.#running.set(subject, (this.#running.get(subject) ?? 0) + 1);
    if (slots.length > 0) this.#total++;
    const taken = shares.map(({ rule, amount }) => ({ rule, amount, startsAt: this.#windows.add(rule, amount) }));
    let isOver = false;
    return {
      headers: () => this.#nearest(slots, shares),
      end: (spent = { tokens: 0, isCounted: false }) => {
        if (isOver) throw new Error('a request ends once');
        isOver = true;
        for (const { subject } of slots) this.#leave(subject);
        if (slots.length > 0) this.#total--;
        for (const one of taken) this.#settle(one, spent);
      },
    };
  }

  #planOf({ plan }: LimitedCaller['account']): Plan | undefined {
    return plan === undefined ? undefined : this.#plans.get(plan);
  }

  #slotsOf({ account, key }: LimitedCaller, plan: Plan | undefined): readonly Cap[] {
    const own = account.concurrencyMax ?? plan?.concurrencyMax;
    const slots: Cap[] = [
      { subject: account.id, max: own ?? this.concurrencyPerAccountMax, isSet: own !== undefined, who: 'The account' },
    ];
    const { concurrencyMax } = key.rates ?? {};
    if (concurrencyMax !== undefined)
      slots.push({ subject: key.id, max: concurrencyMax, isSet: true, who: 'This key' });
    return slots;
  }

  #check(slots: readonly Cap[], shares: readonly Share[], plan: Plan | undefined): void {
    let longest: { readonly seconds: number; readonly refusal: () => ApiError } | undefined;
    const refused = (seconds: number, refusal: () => ApiError): void => {
      if (longest === undefined || seconds > longest.seconds) longest = { seconds, refusal };
    };
    for (const cap of slots) {
      if ((this.#running.get(cap.subject) ?? 0) < cap.max) continue;
      // §7.5: whenever one of them ends, which nobody knows.
      refused(1, () => concurrencyExceeded(cap));
    }
    for (const { rule, amount, who } of shares) {
      if (this.#windows.used(rule) + amount <= rule.limit) continue;
      const restMs = this.#windows.restMs(rule);
      const seconds = wholeSeconds(restMs);
      refused(seconds, () =>
        rule.kind === 'quota'
          ? quotaExceeded(rule, seconds, this.#wall() + restMs, plan?.name)
          : rateExceeded(rule, seconds, who),
      );
    }
    if (longest !== undefined) throw longest.refusal();
  }

  /** What was taken by estimate becomes what was used. */
  #settle({ rule, amount, startsAt }: Taken, { tokens, isCounted }: Spent): void {
    const change = rule.kind === 'quota' ? (isCounted ? 0 : -1) : rule.kind === 'tokens' ? tokens - amount : 0;
    // A window that is over gets nothing back. What was used beyond the estimate counts where it is now.
    if (change > 0 || (change < 0 && startsAt === this.#windows.startOf(rule))) this.#windows.add(rule, change);
  }

  #leave(subject: string): void {
    const left = (this.#running.get(subject) ?? 0) - 1;
    if (left > 0) this.#running.set(subject, left);
    else this.#running.delete(subject);
  }

  #nearest(slots: readonly Cap[], shares: readonly Share[]): Readonly<Record<string, string>> {
    let nearest: { readonly share: number; readonly headers: () => Readonly<Record<string, string>> } | undefined;
    const consider = (limit: number, used: number, seconds: () => number): void => {
      const remaining = Math.max(0, limit - used);
      const share = remaining / limit;
      if (nearest === undefined || share < nearest.share)
        nearest = { share, headers: () => rateLimitHeaders(limit, remaining, seconds()) };
    };
    for (const { rule } of shares)
      consider(rule.limit, this.#windows.used(rule), () => wholeSeconds(this.#windows.restMs(rule)));
    for (const { subject, max, isSet } of slots) if (isSet) consider(max, this.#running.get(subject) ?? 0, () => 1);
    return nearest?.headers() ?? nothing;
  }
}

/** A cap on running requests. */
interface Cap {
  readonly subject: string;
  readonly max: number;
  /** false: it is the configuration's, for everybody. */
  readonly isSet: boolean;
  readonly who: string;
}

/** What a request takes of a window. */
interface Share {
  readonly rule: WindowRule;
  readonly amount: number;
  readonly who: string;
}

interface Taken extends Pick<Share, 'rule' | 'amount'> {
  readonly startsAt: number;
}

const none: readonly Share[] = [];
const nothing: Readonly<Record<string, string>> = {};

const byName = (plans: readonly Plan[]): ReadonlyMap<string, Plan> => new Map(plans.map((plan) => [plan.name, plan]));

function sharesOf(
  { account, key }: LimitedCaller,
  plan: Plan | undefined,
  work: LimitedWork,
  tokens: number,
): readonly Share[] {
  const shares: Share[] = [];
  const quota = work === 'generate' && key.isPlanKey === true ? plan?.quota : undefined;
  if (quota !== undefined) {
    const rule = { subject: account.id, kind: 'quota', lengthMs: quota.windowMs, limit: quota.requests } as const;
    shares.push({ rule, amount: 1, who: 'The account' });
  }
  const perMinute = (subject: string, who: string, rates: Pick<KeyRates, 'requestsPerMinute' | 'tokensPerMinute'>) => {
    const { requestsPerMinute, tokensPerMinute } = rates;
    if (requestsPerMinute !== undefined) {
      const rule = { subject, kind: 'requests', lengthMs: minuteMs, limit: requestsPerMinute } as const;
      shares.push({ rule, amount: 1, who });
    }
    if (tokensPerMinute !== undefined && work === 'generate') {
      const rule = { subject, kind: 'tokens', lengthMs: minuteMs, limit: tokensPerMinute } as const;
      // One that is larger than the limit has a window for itself: else it would wait for ever.
      shares.push({ rule, amount: Math.min(tokens, tokensPerMinute), who });
    }
  };
  if (plan !== undefined) perMinute(account.id, 'The account', plan);
  if (key.rates !== undefined) perMinute(key.id, 'This key', key.rates);
  return shares;
}

/** So many seconds later it is over. */
const wholeSeconds = (ms: number): number => Math.max(1, Math.ceil(ms / 1000));

const rateLimitHeaders = (limit: number, remaining: number, seconds: number): Readonly<Record<string, string>> => ({
  'ratelimit-limit': String(limit),
  'ratelimit-remaining': String(remaining),
  'ratelimit-reset': String(seconds),
});

function concurrencyExceeded({ max, who }: Cap): ApiError {
  const message = `${who} has ${max} requests running, as many as it may.`;
  return new ApiError('concurrency_limit_exceeded', message, atCap(max, 1));
}

function quotaExceeded({ limit }: WindowRule, seconds: number, endsAt: number, plan: string | undefined): ApiError {
  const extra = {
    request_limit: limit,
    window_end: new Date(endsAt).toISOString(),
    ...(plan === undefined ? {} : { plan_tier: plan }),
  };
  const message = `The account has used the ${limit} requests that its plan includes in this window.`;
  const details: ErrorDetails = { ...atCap(limit, seconds), extra };
  return new ApiError('request_quota_exceeded', message, details);
}

function rateExceeded({ kind, limit }: WindowRule, seconds: number, who: string): ApiError {
  const what = kind === 'tokens' ? `use ${limit} tokens` : `send ${limit} requests`;
  return new ApiError('rate_limit_exceeded', `${who} may ${what} a minute.`, atCap(limit, seconds));
}
