import { AddressRanges, rangeOf } from '../platform/ip/ranges.ts';
import type { AccountAlias } from './account-aliases.ts';
import type { keyLimitsSchema } from './key-limits-schema.ts';
import type { Input } from './request-schema.ts';

/** The restrictions of a key, other than models. Stored as JSON beside the key; absent: unrestricted. */
export type KeyLimits = Input<typeof keyLimitsSchema>;

const rateNames = [
  'requestsPerMinute',
  'tokensPerMinute',
  'requestsPerDay',
  'tokensPerDay',
  'centsPerFiveMinutes',
  'centsPerDay',
] as const;
export type Rates = Pick<KeyLimits, (typeof rateNames)[number]>;

/** What is counted of a key or an account, prepared for each request. */
export interface ScopedRates extends Rates {
  /** Maximum concurrent requests. */
  readonly concurrencyMax?: number | undefined;
  /** Limits of single models in addition, by ids in lower case. */
  readonly byModel?: ReadonlyMap<string, Rates> | undefined;
  /** What one conversation may cost. */
  readonly sessionCents?: number | undefined;
}

/** The same as stored. */
export type RateLimits = Rates & Pick<KeyLimits, 'concurrencyMax' | 'byModel'>;

/** Limits on all requests of an account, in addition to its plan and the configuration. Stored as JSON beside the account. */
export interface AccountLimits extends RateLimits {
  /** Every request is treated as having `Service-ZDR: required`, regardless of its header and key. */
  readonly zdrRequired?: true;
  /** The service tier of requests that name none. */
  readonly tier?: string;
  /** The tiers that its requests may use besides `default`; absent: all. */
  readonly tiers?: readonly string[];
  /** Its own names for models. */
  readonly aliases?: readonly AccountAlias[];
}

/** null removes a limit; omitted limits stay. */
export type AccountLimitsChange = { readonly [Limit in keyof AccountLimits]: AccountLimits[Limit] | null };

/** The restrictions, prepared for checking every request. */
export interface KeyAccess {
  readonly zdrOnly: boolean;
  mayUse(path: string): boolean;
  /** The client's address, from the socket or a trusted proxy; undefined if the client has already disconnected. */
  mayComeFrom(address: string | undefined): boolean;
}

export const listMax = 100;
export const limitMax = 1_000_000_000_000;
/** Ninety million dollars: in microcents still exact as a number. */
export const limitCentsMax = 9_000_000_000;

const limitCentsRule = `A limit of spending must be a whole number of cents from 1 to ${limitCentsMax}.`;

const isLimitCents = (cents = 1): boolean => isLimit(cents) && cents <= limitCentsMax;

const isLimit = (value = 1): boolean => Number.isInteger(value) && value >= 1 && value <= limitMax;

export function keyAccess({ endpoints, addresses, zdrOnly }: KeyLimits): KeyAccess {
  const allowed = addresses === undefined ? undefined : new AddressRanges(addresses);
  return {
    zdrOnly: zdrOnly ?? false,
    mayUse: (path) =>
      path === '/v1/models' ||
      (endpoints?.some((endpoint) => path === endpoint || path.startsWith(`${endpoint}/`)) ?? true),
    mayComeFrom: (address) => allowed === undefined || (address !== undefined && allowed.has(address)),
  };
}

/** undefined if there are none. */
export function scopedRates(limits: RateLimits & Pick<KeyLimits, 'sessionCents'>): ScopedRates | undefined {
  const { concurrencyMax, sessionCents } = limits;
  const ofModels = Object.entries(limits.byModel ?? {}).map(([id, rates]) => [id, ratesIn(rates ?? {})] as const);
  const byModel = ofModels.length === 0 ? undefined : new Map(ofModels);
  const rates = ratesIn(limits);
  const isNone = concurrencyMax === undefined && byModel === undefined && sessionCents === undefined;
  if (isNone && Object.keys(rates).length === 0) return undefined;
  return { concurrencyMax, ...rates, byModel, sessionCents };
}

/** Without those that are null or absent. */
export const ratesIn = (limits: { readonly [Name in keyof Rates]: Rates[Name] | null }): Rates =>
  Object.fromEntries(rateNames.flatMap((name) => (typeof limits[name] === 'number' ? [[name, limits[name]]] : [])));

export const tierNames = ['priority', 'default', 'flex'] as const;
type TierName = (typeof tierNames)[number];

/** Describes what is wrong with service tiers; undefined if nothing is. */
export function faultOfTiers({ tier = 'default', tiers = [] }: Pick<KeyLimits, 'tier' | 'tiers'>): string | undefined {
  const wrong = [tier, ...tiers].find((each) => !(tierNames as readonly string[]).includes(each));
  return wrong === undefined ? undefined : `"${wrong}" is not a service tier; write ${tierNames.join(', ')}.`;
}

/** The tiers of a key or an account, prepared for each request. */
export const tiersOf = ({
  tier,
  tiers,
}: Pick<KeyLimits, 'tier' | 'tiers'>): {
  readonly tier: TierName | undefined;
  readonly tiers: ReadonlySet<string> | undefined;
} => ({
  tier: tierNames.find((each) => each === tier),
  tiers: tiers === undefined ? undefined : new Set(tiers),
});

/** Describes what is wrong with a list of endpoints or addresses, or with a limit; undefined if nothing is. */
export function faultOfLimits({ endpoints = [], addresses = [], ...limits }: KeyLimits): string | undefined {
  const rateFault = faultOfRates(limits);
  if (rateFault !== undefined) return rateFault;
  if (!isLimitCents(limits.sessionCents)) return limitCentsRule;
  const tierFault = faultOfTiers(limits);
  if (tierFault !== undefined) return tierFault;
  if (endpoints.length > listMax || addresses.length > listMax)
    return `A key can have at most ${listMax} paths and ${listMax} addresses.`;
  const endpoint = endpoints.find((path) => !/^\/v1(\/[a-z_]{1,32}){1,4}$/.test(path));
  if (endpoint !== undefined) return `"${endpoint}" is not an endpoint; write a path such as /v1/messages.`;
  const address = addresses.find((each) => rangeOf(each) === undefined);
  return address === undefined
    ? undefined
    : `"${address}" is neither an IP address nor a range; write for example 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32.`;
}

/** The same for what is counted of a key or an account. */
export function faultOfRates({ concurrencyMax = 1, byModel = {}, ...all }: RateLimits): string | undefined {
  const ids = Object.keys(byModel);
  if (ids.length > listMax) return `There can be limits of at most ${listMax} models.`;
  const unnamed = ids.find((id) => !/^[^\s\p{Lu}]{1,128}$/u.test(id));
  if (unnamed !== undefined) return `"${unnamed}" is not the id of a model in lower case.`;
  for (const rates of [all, ...Object.values(byModel)]) {
    const { centsPerFiveMinutes = 1, centsPerDay = 1, ...counts } = ratesIn(rates ?? {});
    if (![concurrencyMax, ...Object.values(counts)].every((value) => isLimit(value)))
      return `A limit must be a whole number from 1 to ${limitMax}.`;
    if (![centsPerFiveMinutes, centsPerDay].every((cents) => isLimitCents(cents))) return limitCentsRule;
  }
  return undefined;
}

/** Serializes to the database's format. */
export const printLimits = (limits: KeyLimits): string | null =>
  Object.values(limits).every((value) => value === undefined) ? null : JSON.stringify(limits);

export const readAccountLimits = (text: string | null): AccountLimits =>
  text === null ? {} : (JSON.parse(text) as AccountLimits);

export const readLimits = (text: string | null): KeyLimits => (text === null ? {} : (JSON.parse(text) as KeyLimits));
