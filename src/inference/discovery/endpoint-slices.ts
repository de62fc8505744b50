import { isIPv6 } from 'node:net';
import type { Discovered } from '../../config/discovered.ts';
import { isPort, serverAddress, urlAt } from '../../platform/outbound/server-url.ts';
import { SourceError } from './source.ts';

/** The parts of an EndpointSlice (discovery.k8s.io/v1) that matter here. */
export interface EndpointSlice {
  readonly name: string;
  readonly addresses: readonly string[];
  readonly ports: readonly { readonly name: string; readonly port: number }[];
}

/** Kubernetes puts 100 endpoints into a slice, and allows 1,000. */
const endpointsMax = 1_000;
const portsMax = 100;

/** Reads a slice from the API; `undefined` if it does not have the right form. */
export function readSlice(value: unknown): EndpointSlice | undefined {
  const slice = objectOf(value);
  const name = objectOf(slice['metadata'])['name'];
  if (typeof name !== 'string') return undefined;
  // FQDN, the third type, is deprecated, and nothing creates it.
  const isKnown = slice['addressType'] === 'IPv4' || slice['addressType'] === 'IPv6';
  return {
    name,
    addresses: isKnown ? listOf(slice['endpoints']).slice(0, endpointsMax).flatMap(readyAddress) : [],
    ports: listOf(slice['ports'])
      .slice(0, portsMax)
      .flatMap((each) => {
        const { port, name: portName = '', protocol = 'TCP' } = objectOf(each);
        return isPort(port) && protocol === 'TCP' ? [{ name: String(portName ?? ''), port }] : [];
      }),
  };
}

/**
 * Returns the first address of a ready endpoint. Unknown readiness counts as ready. All addresses of an endpoint are the same pod;
 * consumers take the first.
 */
function readyAddress(endpoint: unknown): readonly string[] {
  const { addresses, conditions } = objectOf(endpoint);
  const { ready, terminating } = objectOf(conditions);
  const [first] = listOf(addresses);
  if (ready === false || terminating === true || typeof first !== 'string') return [];
  const address = serverAddress(first);
  return address === undefined ? [] : [address];
}

/**
 * The servers of all slices of a service. A service with both kinds of addresses has each pod twice; IPv4 is used then. Throws
 * `SourceError` if it has several ports and none is named.
 */
export function serversOf(
  slices: Iterable<EndpointSlice>,
  url: string,
  portName: string | undefined,
): readonly Discovered[] {
  const found = [...slices].flatMap(({ addresses, ports }) => {
    if (addresses.length === 0) return [];
    const named = portName === undefined ? ports : ports.filter(({ name }) => name === portName);
    if (named.length === 0)
      throw new SourceError(
        portName === undefined ? 'the service has no port' : `the service has no port "${portName}"`,
      );
    if (named.length > 1)
      throw new SourceError(
        `the service has several ports (${named.map(({ name }) => name.slice(0, 63)).join(', ')}); name one as discover.port`,
      );
    return addresses.map((address) => ({ address, port: named[0]!.port }));
  });
  const isDual = found.some(({ address }) => !isIPv6(address));
  const urls = found
    .filter(({ address }) => !isDual || !isIPv6(address))
    .map(({ address, port }) => urlAt(url, address, port));
  return [...new Set(urls)].sort().map((each) => ({ url: each }));
}

export const objectOf = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : {};

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
