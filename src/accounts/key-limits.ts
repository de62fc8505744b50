import { AddressRanges, rangeOf } from '../platform/ip/ranges.ts';

/** What a key is kept to, beyond its models. Stored as JSON beside the key; absent: not kept to any. */
export interface KeyLimits {
  /** Paths of the inference host, such as `/v1/messages`, each with what lies below it. The model list is open to every key. */
  readonly endpoints?: readonly string[] | undefined;
  /** Addresses that requests may come from: single ones, or ranges such as `10.0.0.0/8`. */
  readonly addresses?: readonly string[] | undefined;
  /** Only requests with `Service-ZDR: required`. */
  readonly zdrOnly?: boolean | undefined;
  /** The plan of its account pays for its requests (money.md, "Plans"). */
  readonly planKey?: boolean | undefined;
  /** Requests that run at the same time. */
  readonly concurrencyMax?: number | undefined;
  readonly requestsPerMinute?: number | undefined;
  /** Of prompts and answers together. */
  readonly tokensPerMinute?: number | undefined;
}

export type KeyRates = Pick<KeyLimits, 'concurrencyMax' | 'requestsPerMinute' | 'tokensPerMinute'>;

/** Limits that an account has instead of those of its plan or of the configuration. Stored as JSON beside the account. */
export interface AccountLimits {
  /** Requests that run at the same time. */
  readonly concurrencyMax?: number | undefined;
}

/** The same, ready to be asked for every request. */
export interface KeyAccess {
  readonly zdrOnly: boolean;
  mayUse(path: string): boolean;
  /** The client's, as the socket or a trusted proxy has it; `undefined` when it is gone already. */
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

/** `undefined`: none is set. */
export function keyRates({ concurrencyMax, requestsPerMinute, tokensPerMinute }: KeyLimits): KeyRates | undefined {
  if (concurrencyMax === undefined && requestsPerMinute === undefined && tokensPerMinute === undefined)
    return undefined;
  return { concurrencyMax, requestsPerMinute, tokensPerMinute };
}

/** What is wrong with a list of endpoints or addresses, or with a limit, in words; `undefined`: nothing. */
export function faultOfLimits({ endpoints = [], addresses = [], ...limits }: KeyLimits): string | undefined {
  const rates = Object.values(keyRates(limits) ?? {}) as readonly (number | undefined)[];
  if (!rates.every((rate) => rate === undefined || isLimit(rate)))
    return `A limit is a whole number from 1 to ${limitMax}.`;
  if (endpoints.length > listMax || addresses.length > listMax) return `At most ${listMax} of each can be named.`;
  const endpoint = endpoints.find((path) => !/^\/v1(\/[a-z_]{1,32}){1,4}$/.test(path));
  if (endpoint !== undefined) return `"${endpoint}" is no endpoint; write a path such as /v1/messages.`;
  const address = addresses.find((each) => rangeOf(each) === undefined);
  return address === undefined
    ? undefined
    : `"${address}" is neither an address nor a range of them; write for example 192.0.2.7, 10.0.0.0/8 or 2001:db8::/32.`;
}

/** As the database has them. */
export const printLimits = (limits: KeyLimits): string | null =>
  Object.values(limits).every((value) => value === undefined) ? null : JSON.stringify(limits);

export const printAccountLimits = (limits: AccountLimits): string | null =>
  limits.concurrencyMax === undefined ? null : JSON.stringify(limits);

export const readAccountLimits = (text: string | null): AccountLimits =>
  text === null ? {} : (JSON.parse(text) as AccountLimits);

export const readLimits = (text: string | null): KeyLimits => (text === null ? {} : (JSON.parse(text) as KeyLimits));
