import { BlockList, isIP } from 'node:net';

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
  /** As the socket has it; `undefined` when the client is gone already. */
  mayComeFrom(address: string | undefined): boolean;
}

export const listMax = 100;
export const limitMax = 1_000_000_000_000;

export const isLimit = (value: number): boolean => Number.isInteger(value) && value >= 1 && value <= limitMax;

export function keyAccess({ endpoints, addresses, zdrOnly }: KeyLimits): KeyAccess {
  const allowed = addresses === undefined ? undefined : blockListOf(addresses);
  return {
    zdrOnly: zdrOnly ?? false,
    mayUse: (path) =>
      path === '/v1/models' ||
      (endpoints?.some((endpoint) => path === endpoint || path.startsWith(`${endpoint}/`)) ?? true),
    mayComeFrom: (address) => {
      if (allowed === undefined) return true;
      if (address === undefined) return false;
      // A socket that listens on both shows an IPv4 address inside an IPv6 one.
      const [, mapped] = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address) ?? [];
      const family = isIP(mapped ?? address);
      return family !== 0 && allowed.check(mapped ?? address, family === 4 ? 'ipv4' : 'ipv6');
    },
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

interface Range {
  readonly address: string;
  readonly family: 'ipv4' | 'ipv6';
  readonly prefix: number;
}

function rangeOf(text: string): Range | undefined {
  const [, address = '', prefix] = /^([0-9a-fA-F.:]{2,45})(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  if (version === 0) return undefined;
  const bits = version === 4 ? 32 : 128;
  const length = prefix === undefined ? bits : Number(prefix);
  return length > bits ? undefined : { address, family: version === 4 ? 'ipv4' : 'ipv6', prefix: length };
}

function blockListOf(addresses: readonly string[]): BlockList {
  const list = new BlockList();
  for (const text of addresses) {
    const range = rangeOf(text);
    // What cannot be read admits nobody.
    if (range !== undefined) list.addSubnet(range.address, range.prefix, range.family);
  }
  return list;
}

/** As the database has them. */
export const printLimits = (limits: KeyLimits): string | null =>
  Object.values(limits).every((value) => value === undefined) ? null : JSON.stringify(limits);

export const printAccountLimits = (limits: AccountLimits): string | null =>
  limits.concurrencyMax === undefined ? null : JSON.stringify(limits);

export const readAccountLimits = (text: string | null): AccountLimits =>
  text === null ? {} : (JSON.parse(text) as AccountLimits);

export const readLimits = (text: string | null): KeyLimits => (text === null ? {} : (JSON.parse(text) as KeyLimits));
