import { isIPv6 } from 'node:net';
import { AddressRanges, plainAddress } from '../ip/ranges.ts';

/**
 * No models are served there: "this host", link-local (where clouds have their metadata), multicast and broadcast. Backends are
 * usually on a private network or this computer.
 */
const neverServers = new AddressRanges([
  '0.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/3',
  '::/128',
  'fe80::/10',
  'ff00::/8',
  'fd00:ec2::254/128',
]);

/** An address from outside in canonical form; undefined if no server can have it. */
export function serverAddress(text: string): string | undefined {
  const address = plainAddress(text);
  return address === undefined || neverServers.has(address) ? undefined : address;
}

/** A DNS name from outside, in lower case and without a trailing dot; undefined if it is not one. */
export function hostName(text: string): string | undefined {
  const name = text.replace(/\.$/, '').toLowerCase();
  return name.length <= 253 && /^[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*$/.test(name)
    ? name
    : undefined;
}

/** The template's URL with this address. `port` replaces the template's. */
export function urlAt(template: string, address: string, port?: number): string {
  const url = new URL(template);
  const host = isIPv6(address) ? `[${address}]` : address;
  const withPort = port ?? (url.port === '' ? undefined : Number(url.port));
  return `${url.protocol}//${host}${withPort === undefined ? '' : `:${withPort}`}${url.pathname.replace(/\/+$/, '')}`;
}

export const isPort = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 65_535;

/** Checks the URL of a server, from any source. Returns its canonical form, or what is wrong with it. */
export function serverUrlOf(text: unknown): { readonly url: string } | { readonly problem: string } {
  if (typeof text !== 'string') return { problem: 'it is not a text' };
  if (text.length > 2_000 || !/^[!-~]+$/.test(text))
    return { problem: 'it has characters that no URL has, or too many' };
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return { problem: 'it is not a URL with http or https' };
  const url = new URL(text);
  if (url.username !== '' || url.password !== '' || /[?#@]/.test(text))
    return { problem: 'it has a name, password, query or fragment' };
  const host = url.hostname.replace(/^\[|\]$/g, '');
  if (plainAddress(host) === undefined ? hostName(host) === undefined : serverAddress(host) === undefined)
    return { problem: 'no server can have this address' };
  return { url: `${url.origin}${url.pathname.replace(/\/+$/, '')}` };
}
