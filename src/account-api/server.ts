import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

import { ApiError, errorBody } from '../errors.ts';
import { requestIds } from '../http/request-id.ts';
import { errorIndexPage, errorPage, notFoundPage, topupPage } from './pages.ts';

/** The account host: today the pages that error answers link to. Plain text pages, no scripts, nothing about any account. */
export function createAccountHost(accountUrl: () => string): Server {
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const { publicId } = requestIds(request.headers['x-request-id']);
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    if (path.startsWith('/v1/')) {
      const missing = new ApiError('http_404', 'There is no such route.');
      send(response, 404, 'application/json', JSON.stringify({ error: errorBody(missing, publicId, accountUrl()) }), publicId);
      return;
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      const refused = new ApiError('http_405', 'Use GET here.');
      send(response, 405, 'application/json', JSON.stringify({ error: errorBody(refused, publicId, accountUrl()) }), publicId, { allow: 'GET, HEAD' });
      return;
    }
    if (path === '/healthz') {
      send(response, 200, 'application/json', '{"status":"ok"}', publicId);
      return;
    }
    const html = pageAt(path);
    send(response, html === undefined ? 404 : 200, 'text/html; charset=utf-8', html ?? notFoundPage(), publicId);
  };
  // Node's own answers to a missing Host and to an Expect have no envelope; to these pages both mean nothing.
  const server = createServer(
    { headersTimeout: 10_000, requestTimeout: 30_000, maxHeaderSize: 16_384, requireHostHeader: false },
    onRequest,
  );
  server.on('checkContinue', onRequest).on('checkExpectation', onRequest);
  server.on('clientError', (error, socket) => refuseUnparsed(error, socket, accountUrl()));
  return server;
}

/** What Node's parser refuses has the envelope and a request id too (reliability I9). */
function refuseUnparsed(error: Error & { readonly code?: string }, socket: Duplex, accountUrl: string): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const { publicId } = requestIds(undefined);
  const refusal =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? new ApiError('http_431', 'The headers of the request are too large.')
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new ApiError('http_408', 'The request did not arrive in time.')
        : new ApiError('http_400', 'The request is not well-formed HTTP.');
  const body = JSON.stringify({ error: errorBody(refusal, publicId, accountUrl) });
  socket.end(
    `HTTP/1.1 ${refusal.status} Refused\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n` +
      `x-request-id: ${publicId}\r\nrequest-id: ${publicId}\r\nconnection: close\r\n\r\n${body}`,
  );
}

function pageAt(path: string): string | undefined {
  const code = /^\/docs\/errors\/([a-z0-9_]+)$/.exec(path)?.[1];
  if (code !== undefined) return errorPage(code);
  if (path === '/docs/errors' || path === '/docs/errors/') return errorIndexPage();
  return path === '/topup' ? topupPage() : undefined;
}

function send(response: ServerResponse, status: number, type: string, body: string, publicId: string, further: Readonly<Record<string, string>> = {}): void {
  response.writeHead(status, {
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-cache',
    'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'x-request-id': publicId,
    'request-id': publicId,
    ...further,
  });
  response.end(body);
}
