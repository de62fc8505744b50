import type { IncomingMessage } from 'node:http';

import { ApiError } from '../platform/errors.ts';

/**
 * Refuses what another site makes a browser send (reliability §3.6), by the rules of Go's `http.CrossOriginProtection`. A browser
 * itself reports where a request comes from: `Sec-Fetch-Site`, which no script can set, decides wherever it is present. Browsers
 * omit it towards plain `http://` that is not this computer, and old ones everywhere: then `Origin` decides. A program sends
 * neither, and has no cookies that another site could use.
 */
export function refuseCrossSite(request: IncomingMessage, accountUrl: string): void {
  if (request.method === 'GET' || request.method === 'HEAD' || request.method === 'OPTIONS') return;
  const { 'sec-fetch-site': site, origin } = request.headers;
  const isOurs =
    site === undefined
      ? origin === undefined || isOwn(origin, request.headers.host, accountUrl)
      : site === 'same-origin' || site === 'none';
  if (!isOurs) throw new ApiError('http_403', 'Requests from pages of other sites are not allowed.');
}

/**
 * Compares with the public address, which a proxy may have replaced in `Host` (decision 019: nothing else from a proxy is read), or
 * with the one that was typed. The scheme of the latter is unknown, because a proxy may have terminated TLS.
 */
function isOwn(origin: string, host: string | undefined, accountUrl: string): boolean {
  const own = new URL(accountUrl);
  if (origin === own.origin) return true;
  const typed = hostOf(origin);
  return typed !== undefined && typed === host?.toLowerCase() && typed !== own.host;
}

/** `undefined` for `null`, the origin of pages without one, such as files and sandboxed frames. */
function hostOf(origin: string): string | undefined {
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  return url !== undefined && url.host !== '' && url.origin === origin.toLowerCase() ? url.host : undefined;
}
