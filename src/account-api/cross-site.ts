import type { IncomingMessage } from 'node:http';

import { ApiError } from '../errors.ts';

/**
 * Refuses what another site makes a browser send (reliability §3.6). A program sends neither header; a browser sends
 * `Sec-Fetch-Site` everywhere that it is secure, and `Origin` with everything that changes something.
 */
export function refuseCrossSite(request: IncomingMessage, accountUrl: string): void {
  if (request.method === 'GET' || request.method === 'HEAD') return;
  const { 'sec-fetch-site': site, origin } = request.headers;
  const isElsewhere =
    (site !== undefined && site !== 'same-origin' && site !== 'none') ||
    (origin !== undefined && !isOwn(origin, request, accountUrl));
  if (isElsewhere) throw new ApiError('http_403', 'Requests from pages of other sites are refused.');
}

/** By the public address, or on this computer by the one that was typed: `localhost` and `127.0.0.1` are one host. */
function isOwn(origin: string, { headers }: IncomingMessage, accountUrl: string): boolean {
  if (origin === new URL(accountUrl).origin) return true;
  const host = headers.host ?? '';
  return /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/i.test(host) && origin === `http://${host}`;
}
