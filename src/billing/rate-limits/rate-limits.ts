import { ApiError, atCap } from '../../platform/errors.ts';
import type { ErrorDetails } from '../../platform/errors.ts';
import { StoreError } from '../../store/store-error.ts';
import { Conversations } from './conversations.ts';
import type { OpenTurn } from './conversations.ts';
import type { Claim, LimitCounts, LimitRule, Taken, Taking } from './counts.ts';
import { claimsOfRates, rateExceeded, wholeSeconds } from './rates.ts';
import type { Amounts, LimitClaim, Rates, ScopedRates } from './rates.ts';

/** What an account is sold: how many requests, and how fast. Omitted limits do not apply. */
export interface Plan extends Pick<Rates, 'requestsPerMinute' | 'tokensPerMinute'> {
  readonly name: string;
  /** Requests included in each window: those of plan keys, which the plan pays for. */
  readonly quota?: { readonly requests: number; readonly windowMs: number } | undefined;
  readonly concurrencyMax?: number | undefined;
  /** Its share of the slots beside that of other accounts, where requests wait; 1 when left out. */
  readonly weight?: number | undefined;
}

/** Known facts about the caller. */
export interface LimitedCaller {
  readonly account: {
    readonly id: string;
    /** The name of its plan. */
    readonly plan?: string | undefined;
    /** Each overrides the plan and the configuration. */
    readonly limits?: ScopedRates | undefined;
  };
  readonly key: {
    readonly id: string;
    /** In addition to those of its account. */
    readonly rates?: ScopedRates | undefined;
    /** Whether the plan, not credit, pays for its requests. */
    readonly isPlanKey?: boolean | undefined;
  };
  /** The model that it asks for. */
  readonly model?: { readonly id: string } | undefined;
}

/**
 * `generate` takes a slot and counts everywhere; `line` (of a batch) takes none, because it waits for slots that nobody wants; `file` takes
 * a slot, `count` takes none, and both count as requests only.
 */
export type LimitedWork = 'generate' | 'line' | 'file' | 'count';

const generates = (work: LimitedWork): boolean => work === 'generate' || work === 'line';

/** How an admitted request ended. */
export interface Spent {
  /** Prompt and completion tokens together. */
  readonly tokens: number;
  /** Left out: nothing. */
  readonly costMicrocents?: bigint;
  /** false: it failed through no fault of the client, so it does not count towards the plan's requests (money.md, "Plans"). */
  readonly isCounted: boolean;
}

/** An admitted request. */
export interface Admitted {
  /** Current `RateLimit-*` headers of the nearest limit; empty without limits. */
  headers(): Readonly<Record<string, string>>;
  /**
   * Claims this many tokens in total, if more than estimated before the prompt was read. Throws `rate_limit_exceeded` 429, or rejects with
   * it, like `admit`.
   */
  raise(tokens: number): void | Promise<void>;
  /** Returns what it had taken, once. Omit `spent` if the request came to nothing. */
  end(spent?: Spent): void;
}

/** What a generation is likely to spend, and on which conversation. */
export interface Spending<Caller> {
  microcentsLikely(caller: Caller): number;
  /** A hash of its prompt up to its first answer and to each later message; none: it is of no conversation. */
  turns(caller: Caller): readonly number[];
}

export interface LimitsOptions {
  /** Counts of this process alone, or of all processes that share a database. */
  readonly counts: LimitCounts;
  /** Maximum running requests of an account, unless its plan or the account itself sets another limit. */
  readonly concurrencyPerAccountMax: number;
  readonly plans: readonly Plan[];
  /** The wall clock, for displayed times. */
  readonly wall?: () => number;
}

/**
 * Every limit on the requests of one account or one key (specification §7.5 and part 8): running requests, requests included in a plan,
 * requests, tokens and spending in a time, of all models or of one. A request is admitted by all of them or counted by none.
 */
export class Limits {
  /** May change at any time; running requests go on. */
  concurrencyPerAccountMax: number;
  readonly conversations = new Conversations();
  readonly #counts: LimitCounts;
  readonly #wall: () => number;
  #plans: ReadonlyMap<string, Plan>;
  #running = 0;

  constructor({ counts, concurrencyPerAccountMax, plans, wall = Date.now }: LimitsOptions) {
    this.#counts = counts;
    this.#wall = wall;
    this.concurrencyPerAccountMax = concurrencyPerAccountMax;
    this.#plans = byName(plans);
  }

  /** Apply from the next request on. */
  set plans(plans: readonly Plan[]) {
    this.#plans = byName(plans);
  }

  /** Running requests of all accounts, in this process. */
  get running(): number {
    return this.#running;
  }

  /** An account's share of the slots beside that of others, where requests wait. */
  weightOf(account: LimitedCaller['account']): number {
    return this.#planOf(account)?.weight ?? 1;
  }

  /** The plan that pays for the requests of this key; undefined: credit does. Throws `http_403`. */
  coveringPlan({ account, key }: LimitedCaller): string | undefined {
    if (key.isPlanKey !== true) return undefined;
    const plan = this.#planOf(account);
    if (plan !== undefined) return plan.name;
    throw new ApiError('http_403', 'The plan of the account pays for this key, but the account has no plan.');
  }

  /**
   * Admits a request, or throws `concurrency_limit_exceeded`, `request_quota_exceeded` or `rate_limit_exceeded` 429: of all limits reached
   * the one that takes longest, so that `Retry-After` is true. Then `insufficient_credits` 402, if its conversation has nothing left.
   * `tokens` is its estimated use; `spending` is asked only where that is limited.
   *
   * Synchronous if this process can decide alone; otherwise a promise, which rejects with the same errors, and with `internal_error` 500
   * when the limit server does not answer.
   */
  admit<Caller extends LimitedCaller>(
    caller: Caller,
    work: LimitedWork,
    tokens = 0,
    spending?: Spending<Caller>,
  ): Admitted | Promise<Admitted> {
    const { account, key } = caller;
    const plan = this.#planOf(account);
    const slots = work === 'count' || work === 'line' ? [] : this.#slotsOf(caller, plan);
    const shares =
      plan === undefined && key.rates === undefined && account.limits === undefined
        ? none
        : sharesOf(caller, plan, work, {
            tokens,
            microcents: () => spending?.microcentsLikely(caller) ?? 0,
            used: (rule) => this.#counts.used(rule),
          });
    const areExpected = shares.every(isExpected);
    const claims = shares.length === 0 ? slots : [...(areExpected ? shares : shares.filter(isExpected)), ...slots];
    return after(this.#counts.take(claims), (taking) => {
      if ('lacking' in taking) throw this.#refusal(taking.lacking, plan);
      const taken = areExpected ? taking.taken : [...taking.taken, ...shares.filter(isUnexpected).map(unexpectedCost)];
      const sessionCents = key.rates?.sessionCents;
      if (sessionCents === undefined || spending === undefined)
        return this.#admitted(claims, taken, plan, { work, turn: undefined });
      try {
        const turns = spending.turns(caller);
        const turn = this.conversations.begin(turns, sessionCents, spending.microcentsLikely(caller));
        return this.#admitted(claims, taken, plan, { work, turn });
      } catch (error) {
        for (const one of taking.taken) this.#counts.end(one, changeOf(one, nothingSpent, work));
        throw error;
      }
    });
  }

  #admitted(
    claims: readonly LimitClaim[],
    taken: readonly Taken[],
    plan: Plan | undefined,
    { work, turn }: { readonly work: LimitedWork; readonly turn: OpenTurn | undefined },
  ): Admitted {
    const isRunning = claims.some(({ rule }) => rule.kind === 'running');
    if (isRunning) this.#running++;
    let isOver = false;
    const raised: Taken[] = [];
    return {
      headers: () => this.#nearest(claims),
      raise: (tokens) => {
        const more = claims.flatMap((claim) => moreTokens(claim, tokens));
        if (more.length === 0) return;
        return after(this.#counts.take(more), (later) => {
          if ('lacking' in later) throw this.#refusal(later.lacking, plan);
          raised.push(...later.taken);
        });
      },
      end: (spent = nothingSpent) => {
        if (isOver) throw new Error('a request ends once');
        isOver = true;
        if (isRunning) this.#running--;
        for (const one of taken) this.#counts.end(one, changeOf(one, spent, work));
        turn?.end(Number(spent.costMicrocents ?? 0n));
        // The first claim accounts for the actual use.
        for (const one of raised) this.#counts.end(one, -one.amount);
      },
    };
  }

  #planOf({ plan }: LimitedCaller['account']): Plan | undefined {
    return plan === undefined ? undefined : this.#plans.get(plan);
  }

  #slotsOf({ account, key }: LimitedCaller, plan: Plan | undefined): readonly LimitClaim[] {
    const own = account.limits?.concurrencyMax ?? plan?.concurrencyMax;
    const slots = [slotOf(account.id, own ?? this.concurrencyPerAccountMax, own !== undefined, 'The account')];
    const { concurrencyMax } = key.rates ?? {};
    if (concurrencyMax !== undefined) slots.push(slotOf(key.id, concurrencyMax, true, 'This key'));
    return slots;
  }

  /** The refusal for the limit that takes longest. */
  #refusal(lacking: readonly LimitClaim[], plan: Plan | undefined): ApiError {
    let longest: { readonly seconds: number; readonly refusal: () => ApiError } | undefined;
    for (const claim of lacking) {
      const { rule, who } = claim;
      // §7.5: a slot is free as soon as any of them ends, which cannot be predicted.
      const restMs = rule.kind === 'running' ? 0 : this.#counts.restMs(rule);
      const seconds = wholeSeconds(restMs);
      if (longest !== undefined && seconds <= longest.seconds) continue;
      const refusal = (): ApiError => {
        if (rule.kind === 'running') return concurrencyExceeded(rule, who);
        if (rule.kind === 'quota') return quotaExceeded(rule, seconds, this.#wall() + restMs, plan?.name);
        return rateExceeded(claim, seconds);
      };
      longest = { seconds, refusal };
    }
    return longest!.refusal();
  }

  #nearest(claims: readonly LimitClaim[]): Readonly<Record<string, string>> {
    let nearest: { readonly share: number; readonly headers: () => Readonly<Record<string, string>> } | undefined;
    for (const { rule, isSet } of claims) {
      if (!isSet) continue;
      const { limit } = rule;
      const remaining = Math.max(0, limit - this.#counts.used(rule));
      const share = remaining / limit;
      if (nearest !== undefined && share >= nearest.share) continue;
      const seconds = rule.kind === 'running' ? 1 : wholeSeconds(this.#counts.restMs(rule));
      nearest = { share, headers: () => rateLimitHeaders(limit, remaining, seconds) };
    }
    return nearest?.headers() ?? nothing;
  }
}

/** What the claim is short of this many tokens; like the claim itself, never more than the limit. */
function moreTokens(claim: LimitClaim, tokens: number): readonly LimitClaim[] {
  const { rule, amount } = claim;
  const more = rule.kind === 'tokens' ? Math.min(tokens, rule.limit) - amount : 0;
  return more > 0 ? [{ ...claim, amount: more }] : [];
}

/** Continues synchronously if the counts decide alone. */
function after<Of extends Claim, Value>(
  taking: Taking<Of> | Promise<Taking<Of>>,
  then: (taking: Taking<Of>) => Value,
): Value | Promise<Value> {
  if (!(taking instanceof Promise)) return then(taking);
  return taking.then(then, (error: unknown) => {
    throw error instanceof StoreError ? silent(error) : error;
  });
}

const slotOf = (subject: string, limit: number, isSet: boolean, who: LimitClaim['who']): LimitClaim => ({
  rule: { subject, kind: 'running', lengthMs: 0, limit },
  amount: 1,
  isSet,
  who,
});

/** Replaces the estimate with the actual use. */
function changeOf(
  { rule, amount }: Taken,
  { tokens, costMicrocents = 0n, isCounted }: Spent,
  work: LimitedWork,
): number {
  switch (rule.kind) {
    case 'running':
      return 0;
    case 'requests':
      // A line that came to nothing is tried again by the service, not by its client.
      return work === 'line' && !isCounted ? -1 : 0;
    case 'quota':
      return isCounted ? 0 : -1;
    case 'tokens':
      return tokens - amount;
    case 'cost':
      return Number(costMicrocents) - amount;
  }
}

const none: readonly LimitClaim[] = [];
const isExpected = ({ amount }: LimitClaim): boolean => amount > 0;
const isUnexpected = (claim: LimitClaim): boolean => !isExpected(claim);

/** Nothing was taken, so nothing is given back; a cost counts in the window in which it is known. */
const unexpectedCost = ({ rule }: LimitClaim): Taken => ({ rule, amount: 0, startsAt: -1, epoch: -1 });
const nothing: Readonly<Record<string, string>> = {};
const nothingSpent: Spent = { tokens: 0, isCounted: false };

const byName = (plans: readonly Plan[]): ReadonlyMap<string, Plan> => new Map(plans.map((plan) => [plan.name, plan]));

function sharesOf(
  { account, key, model }: LimitedCaller,
  plan: Plan | undefined,
  work: LimitedWork,
  amounts: Amounts,
): readonly LimitClaim[] {
  const shares: LimitClaim[] = [];
  const isGeneration = generates(work);
  const quota = isGeneration && key.isPlanKey === true ? plan?.quota : undefined;
  if (quota !== undefined) {
    const rule = { subject: account.id, kind: 'quota', lengthMs: quota.windowMs, limit: quota.requests } as const;
    shares.push({ rule, amount: 1, who: 'The account', isSet: true });
  }
  const isOf = { modelId: model?.id, amounts: isGeneration ? amounts : undefined };
  claimsOfRates({ ...isOf, subject: account.id, who: 'The account' }, account.limits, plan, shares);
  claimsOfRates({ ...isOf, subject: key.id, who: 'This key' }, key.rates, undefined, shares);
  return shares;
}

/** Nothing is admitted while it is unknown what the other processes have admitted. */
const silent = (cause: StoreError): ApiError =>
  new ApiError('internal_error', 'The rate limits cannot be read at the moment.', { retryAfterSeconds: 1, cause });

const rateLimitHeaders = (limit: number, remaining: number, seconds: number): Readonly<Record<string, string>> => ({
  'ratelimit-limit': String(limit),
  'ratelimit-remaining': String(remaining),
  'ratelimit-reset': String(seconds),
});

function concurrencyExceeded({ limit }: LimitRule, who: string): ApiError {
  const message = `${who} has ${limit} running requests, which is its limit.`;
  return new ApiError('concurrency_limit_exceeded', message, atCap(limit, 1));
}

function quotaExceeded({ limit }: LimitRule, seconds: number, endsAt: number, plan: string | undefined): ApiError {
  const extra = {
    request_limit: limit,
    window_end: new Date(endsAt).toISOString(),
    ...(plan === undefined ? {} : { plan_tier: plan }),
  };
  const message = `The account has used all ${limit} requests that its plan includes in this window.`;
  const details: ErrorDetails = { ...atCap(limit, seconds), extra };
  return new ApiError('request_quota_exceeded', message, details);
}
