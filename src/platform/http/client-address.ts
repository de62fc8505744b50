import type { IncomingMessage } from 'node:http';

import { plainAddress } from '../ip/ranges.ts';
import type { AddressRanges } from '../ip/ranges.ts';

/** Real proxy chains are not longer. */
const proxiesMax = 32;
/** `[`, an IPv6 address, `]`, a port. */
const elementLengthMax = 53;
const portMax = 65_535;

/**
 * Where a request comes from: the peer of its connection; or, when that is a trusted proxy, the right-most address of
 * `X-Forwarded-For` that is not one (decision 019). `undefined` when the client is gone already.
 *
 * Each proxy adds its own client on the right. So what is to the left of the first stranger was written by that stranger, and is
 * ignored. If an element before that is unreadable, the peer counts as the client.
 */
export function clientAddress(
  request: Pick<IncomingMessage, 'headers'> & {
    readonly socket: { readonly remoteAddress?: string | undefined };
  },
  trustedProxies: AddressRanges | undefined,
): string | undefined {
  const peer = request.socket.remoteAddress;
  if (trustedProxies === undefined || peer === undefined) return peer;
  const lines = trustedProxies.has(peer) ? request.headers['x-forwarded-for'] : undefined;
  return firstStranger(lines, trustedProxies) ?? plainAddress(peer) ?? peer;
}

/** From the right. */
function firstStranger(lines: string | string[] | undefined, trustedProxies: AddressRanges): string | undefined {
  // Node joins several lines in order.
  if (typeof lines !== 'string') return undefined;
  let end = lines.length;
  for (let proxies = 0; end >= 0 && proxies < proxiesMax; proxies++) {
    const comma = end === 0 ? -1 : lines.lastIndexOf(',', end - 1);
    const address = addressOf(lines.slice(comma + 1, end));
    if (address === undefined || !trustedProxies.has(address)) return address;
    end = comma;
  }
  return undefined;
}

const shape = /^(?:(\d+\.\d+\.\d+\.\d+)(?::(\d{1,5}))?|\[([\da-f.]*:[\da-f:.]*)\](?::(\d{1,5}))?|([\da-f:.]+))$/i;

/** An address, possibly with a port; in the form of IPv6 with a port it is in brackets. */
function addressOf(element: string): string | undefined {
  const text = element.trim();
  if (text.length > elementLengthMax) return undefined;
  const [, four, portOfFour, six, portOfSix, bare] = shape.exec(text) ?? [];
  if (Number(portOfFour ?? portOfSix ?? 0) > portMax) return undefined;
  const address = four ?? six ?? bare;
  return address === undefined ? undefined : plainAddress(address);
}
