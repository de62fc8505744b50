import { dollars } from '../../platform/dollars.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import { ofModel } from '../../store/limit-leases.ts';
import type { WindowCount } from '../../store/repositories/limit-windows.ts';
import type { Claim, LimitRule } from './counts.ts';

/** What may be used in a time. Omitted limits do not apply. */
export interface Rates {
  readonly requestsPerMinute?: number | undefined;
  /** Prompt and completion tokens together. */
  readonly tokensPerMinute?: number | undefined;
  readonly requestsPerDay?: number | undefined;
  readonly tokensPerDay?: number | undefined;
  readonly centsPerFiveMinutes?: number | undefined;
  readonly centsPerDay?: number | undefined;
}

/** The limits of a key or an account: of all its requests, and in addition of those for one model. */
export interface ScopedRates extends Rates {
  readonly concurrencyMax?: number | undefined;
  /** By ids in lower case. */
  readonly byModel?: ReadonlyMap<string, Rates> | undefined;
  /** What one conversation of a key may cost. */
  readonly sessionCents?: number | undefined;
}

/** A claim on one limit, with what its refusal says. */
export interface LimitClaim extends Claim {
  readonly who: 'The account' | 'This key';
  /** The model that the limit is for; undefined: all. */
  readonly modelId?: string | undefined;
  /** false: not worth a header, because it is the configuration's limit for every account, or money. */
  readonly isSet: boolean;
}

/** What a generation is likely to use. */
export interface Amounts {
  readonly tokens: number;
  readonly microcents: () => number;
  /** What is used of a limit, as far as known here. */
  readonly used: (rule: LimitRule) => number;
}

interface Scope {
  readonly subject: string;
  readonly who: LimitClaim['who'];
  readonly modelId: string | undefined;
  /** undefined: it counts as a request only. */
  readonly amounts: Amounts | undefined;
}

const minuteMs = 60_000;
const dayMs = 86_400_000;
/** As a number, which is exact for every limit of spending that can be set. */
export const microcentsPerCent = 1_000_000;

/** What each limit counts, in windows of which length, and how much one of its unit is. */
export const rateWindows = {
  requestsPerMinute: ['requests', minuteMs, 1],
  tokensPerMinute: ['tokens', minuteMs, 1],
  requestsPerDay: ['requests', dayMs, 1],
  tokensPerDay: ['tokens', dayMs, 1],
  centsPerFiveMinutes: ['cost', 5 * minuteMs, microcentsPerCent],
  centsPerDay: ['cost', dayMs, microcentsPerCent],
} as const satisfies Readonly<Record<keyof Rates, readonly [WindowCount['kind'], number, number]>>;
const windows = Object.entries(rateWindows) as readonly (readonly [
  keyof Rates,
  (typeof rateWindows)[keyof typeof rateWindows],
])[];

/** Adds the claims of a request on the limits of a key or an account, of all its models and of the one that it asks for. */
export function claimsOfRates(
  scope: Scope,
  own: ScopedRates | undefined,
  plan: Rates | undefined,
  into: LimitClaim[],
): void {
  const { subject, modelId } = scope;
  if (own !== undefined || plan !== undefined) claimAll(scope, subject, undefined, own, plan, into);
  if (own?.byModel === undefined || modelId === undefined) return;
  const id = modelId.toLowerCase();
  const ofIt = own.byModel.get(id);
  if (ofIt !== undefined) claimAll(scope, ofModel(subject, id), modelId, ofIt, undefined, into);
}

function claimAll(
  { who, amounts }: Scope,
  subject: string,
  modelId: string | undefined,
  own: Rates | undefined,
  plan: Rates | undefined,
  into: LimitClaim[],
): void {
  for (const [name, [kind, lengthMs, unit]] of windows) {
    const units = own?.[name] ?? plan?.[name];
    if (units === undefined) continue;
    const rule = { subject, kind, lengthMs, limit: units * unit };
    const amount = kind === 'requests' ? 1 : amounts === undefined ? 0 : amountOf(rule, amounts);
    // Of a model that is free too: another one may serve, for a price.
    if (amount > 0 || (kind === 'cost' && amounts !== undefined))
      into.push({ rule, amount, who, modelId, isSet: kind !== 'cost' });
  }
}

/**
 * A request larger than the limit gets a window to itself; otherwise it would wait for ever. For money the last request takes what is left,
 * and may cost more: what is left is never too little to be spent, and a program that repeats itself passes its limit by one request.
 */
function amountOf(rule: LimitRule, { tokens, microcents, used }: Amounts): number {
  if (rule.kind !== 'cost') return Math.max(1, Math.min(tokens, rule.limit));
  const left = rule.limit - used(rule);
  // Where nothing is left, another process may give some back: for one request, not for all that wait for it.
  return Math.min(microcents(), left > 0 ? left : rule.limit);
}

/** Rounds up to whole seconds. */
export const wholeSeconds = (ms: number): number => Math.ceil(ms / 1000);

/** Returns the 429 of a limit that is used up: whose it is, for which model, of what, and when it begins anew. */
export function rateExceeded({ rule, who, modelId }: LimitClaim, seconds: number): ApiError {
  const { kind, limit, lengthMs } = rule;
  const cap = kind === 'cost' ? limit / microcentsPerCent : limit;
  const what =
    kind === 'cost'
      ? `spend ${dollars(BigInt(limit))}`
      : kind === 'tokens'
        ? `use ${limit} tokens`
        : `send ${limit} requests`;
  const where = modelId === undefined ? '' : ` ${kind === 'requests' ? 'to' : 'on'} the model '${modelId}'`;
  const extra = {
    limit_of: who === 'This key' ? 'key' : 'account',
    ...(modelId === undefined ? {} : { limit_model: modelId }),
    limit_unit: kind === 'cost' ? 'cents' : kind,
    limit_window_seconds: lengthMs / 1000,
  };
  const per = lengthMs === dayMs ? 'a day' : lengthMs === minuteMs ? 'a minute' : 'in five minutes';
  const loop = lengthMs === 5 * minuteMs ? ' If that is a surprise, look whether the program repeats itself.' : '';
  const message = `${who} may ${what}${where} ${per}. It can go on in ${seconds} s.${loop}`;
  return new ApiError('rate_limit_exceeded', message, { ...atCap(cap, seconds), extra });
}
