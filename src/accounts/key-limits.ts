import { AddressRanges, rangeOf } from '../platform/ip/ranges.ts';
import type { keyLimitsSchema, limitsChangeSchema } from './key-limits-schema.ts';
import type { Input } from './request-schema.ts';

/** The restrictions of a key, other than models. Stored as JSON beside the key; absent: unrestricted. */
export type KeyLimits = Input<typeof keyLimitsSchema>;
export type LimitsChange = Input<typeof limitsChangeSchema>;

export type KeyRates = Pick<KeyLimits, 'concurrencyMax' | 'requestsPerMinute' | 'tokensPerMinute'>;

/** Limits on all requests of an account, in addition to its plan and the configuration. Stored as JSON beside the account. */
export interface AccountLimits {
  /** Maximum concurrent requests. */
  readonly concurrencyMax?: number;
  /** Every request is treated as having `Service-ZDR: required`, regardless of its header and key. */
  readonly zdrRequired?: true;
  /** The service tier of requests that name none. */
  readonly tier?: string;
  /** The tiers that its requests may use besides `default`; absent: all. */
  readonly tiers?: readonly string[];
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

export const isLimit = (value: number): boolean => Number.isInteger(value) && value >= 1 && value <= limitMax;

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
export function keyRates({ concurrencyMax, requestsPerMinute, tokensPerMinute }: KeyLimits): KeyRates | undefined {
  if (concurrencyMax === undefined && requestsPerMinute === undefined && tokensPerMinute === undefined)
    return undefined;
  return { concurrencyMax, requestsPerMinute, tokensPerMinute };
}

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
  const rates = Object.values(keyRates(limits) ?? {}) as readonly (number | undefined)[];
  if (!rates.every((rate) => rate === undefined || isLimit(rate)))
    return `A limit must be a whole number from 1 to ${limitMax}.`;
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

/** Serializes to the database's format. */
export const printLimits = (limits: KeyLimits): string | null =>
  Object.values(limits).every((value) => value === undefined) ? null : JSON.stringify(limits);

export const readAccountLimits = (text: string | null): AccountLimits =>
  text === null ? {} : (JSON.parse(text) as AccountLimits);

export const readLimits = (text: string | null): KeyLimits => (text === null ? {} : (JSON.parse(text) as KeyLimits));
