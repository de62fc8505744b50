import type { IncomingMessage, ServerResponse } from 'node:http';

import { ApiError, errorBody } from '../../platform/errors.ts';
import { hostNameOf } from '../../platform/http/host-name.ts';
import type { AllowedOrigins } from '../pipeline/runtime-config.ts';

/**
 * Which pages may call the inference host from a browser (Fetch standard, "CORS protocol"). Only the key grants access, and a page needs to
 * have it; cookies are neither set nor read, so `access-control-allow-credentials` is never sent.
 */

/** Pages of this computer may always call: their server could just as well call itself. */
const loopback = /^https?:\/\/(?:(?:[a-z0-9-]+\.)*localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i;

/** Answers differ by origin: no cache may serve one origin's answer to another. */
const vary = { vary: 'origin' } as const;

/** All headers that we set and a script may need; browsers expose the others by default. */
export const exposedHeaders: readonly string[] = [
  'x-request-id',
  'request-id',
  'retry-after',
  'ratelimit-limit',
  'ratelimit-remaining',
  'ratelimit-reset',
  'idempotent-replayed',
  'service-fallback-from',
  'x-tokenhouse-warning',
  'x-should-retry',
  'content-disposition',
  'allow',
  'etag',
];
const exposed = exposedHeaders.join(', ');

function allowedFor(
  origin: string,
  host: string | undefined,
  { listed, hasConsoleBeside }: AllowedOrigins,
  accountUrl: string,
): string | undefined {
  if (listed.has('*')) return '*';
  if (listed.has(origin.toLowerCase()) || loopback.test(origin)) return origin;
  return hasConsoleBeside && isBeside(origin, host, accountUrl) ? origin : undefined;
}

/** Whether a page is served by the account host under the same host name as this host: a name stands for one computer. */
function isBeside(origin: string, host: string | undefined, accountUrl: string): boolean {
  const name = hostNameOf(host);
  if (name === undefined) return false;
  const { port } = new URL(accountUrl);
  return origin === new URL(`http://${name}${port === '' ? '' : `:${port}`}`).origin;
}

/** Returns the headers of every answer to this request, including errors and answers that no route has handled. */
export function corsHeaders(
  { headers }: IncomingMessage,
  allowed: AllowedOrigins,
  accountUrl: string,
): Readonly<Record<string, string>> {
  const origin =
    headers.origin === undefined ? undefined : allowedFor(headers.origin, headers.host, allowed, accountUrl);
  if (origin === undefined) return vary;
  return { ...vary, 'access-control-allow-origin': origin, 'access-control-expose-headers': exposed };
}

/** Whether a browser is asking if a page may send a request. */
export const isPreflight = ({ method, headers }: IncomingMessage): boolean =>
  method === 'OPTIONS' && headers.origin !== undefined && headers['access-control-request-method'] !== undefined;

/** A longer time has no effect: Chromium caches it for at most this long. */
const rememberedSeconds = 7200;

/**
 * Answers a preflight from the configuration alone: it comes without a key, and before each kind of request. The route itself refuses
 * methods and headers that it does not accept. Returns the status.
 */
export function answerPreflight(
  request: IncomingMessage,
  response: ServerResponse,
  allowed: AllowedOrigins,
  { publicId, accountUrl }: { readonly publicId: string; readonly accountUrl: string },
): number {
  const cors = corsHeaders(request, allowed, accountUrl);
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
