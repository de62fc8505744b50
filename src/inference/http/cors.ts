import type { IncomingMessage, ServerResponse } from 'node:http';

import { ApiError, errorBody } from '../../platform/errors.ts';

/**
 * Which pages may call the inference host from a browser (Fetch standard, "CORS protocol"). A key is all that lets anybody in, and a
 * page has to have it; cookies are neither set nor read, so `access-control-allow-credentials` is never sent.
 */

/** Of `server.inference.allow_origins`. Pages of this computer may always: whoever serves them could as well ask themselves. */
export type AllowedOrigins = ReadonlySet<string>;

const loopback = /^https?:\/\/(?:(?:[a-z0-9-]+\.)*localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;

/** Answers differ by who asks: no cache gives that for one origin to another. */
const vary = { vary: 'origin' } as const;

/** Everything that we set and a script may want; the other headers a browser shows without being told. */
export const exposedHeaders: readonly string[] = [
  'x-request-id',
  'request-id',
  'retry-after',
  'ratelimit-limit',
  'ratelimit-remaining',
  'ratelimit-reset',
  'idempotent-replayed',
  'x-should-retry',
  'content-disposition',
  'allow',
  'etag',
];
const exposed = exposedHeaders.join(', ');

const allowedFor = (origin: string, allowed: AllowedOrigins): string | undefined => {
  if (allowed.has('*')) return '*';
  return allowed.has(origin.toLowerCase()) || loopback.test(origin) ? origin : undefined;
};

/** What any answer to this request carries: also an error, and one that no route has seen. */
export function corsHeaders({ headers }: IncomingMessage, allowed: AllowedOrigins): Readonly<Record<string, string>> {
  const origin = headers.origin === undefined ? undefined : allowedFor(headers.origin, allowed);
  if (origin === undefined) return vary;
  return { ...vary, 'access-control-allow-origin': origin, 'access-control-expose-headers': exposed };
}

/** A browser asks whether a page may ask. */
export const isPreflight = ({ method, headers }: IncomingMessage): boolean =>
  method === 'OPTIONS' && headers.origin !== undefined && headers['access-control-request-method'] !== undefined;

/** Longer is no use: Chromium remembers it for so long at most. */
const rememberedSeconds = 7200;

/**
 * Answers a preflight, without a look at anything but the configuration: it comes without a key, and before each kind of
 * request. Which methods and headers a route takes, it says itself when it is asked. Returns the status.
 */
export function answerPreflight(
  request: IncomingMessage,
  response: ServerResponse,
  allowed: AllowedOrigins,
  { publicId, accountUrl }: { readonly publicId: string; readonly accountUrl: string },
): number {
  const cors = corsHeaders(request, allowed);
  const common = { ...cors, 'x-request-id': publicId, 'request-id': publicId };
  if (cors['access-control-allow-origin'] === undefined) {
    const error = new ApiError('http_403', 'This origin is not among `server.inference.allow_origins`.');
    const body = JSON.stringify({ error: errorBody(error, publicId, accountUrl) });
    response.writeHead(error.status, {
      ...common,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    });
    response.end(body);
    return error.status;
  }
  const requested = request.headers['access-control-request-headers'];
  response.writeHead(204, {
    ...common,
    vary: 'origin, access-control-request-headers',
    'access-control-allow-methods': 'GET, HEAD, POST, DELETE',
    ...(requested === undefined ? {} : { 'access-control-allow-headers': requested }),
    'access-control-max-age': String(rememberedSeconds),
  });
  response.end();
  return 204;
}
