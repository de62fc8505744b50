import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';

import { refuseUnparsed } from '../edge/refuse-unparsed.ts';
import { ApiError, errorBody } from '../errors.ts';
import { requestIds } from '../ids/request-id.ts';
import { errorIndexPage, errorPage, notFoundPage, topupPage } from './pages.ts';

/** The account host: today the pages that error answers link to. Plain text pages, no scripts, nothing about any account. */
export function createAccountHost(accountUrl: () => string, newRequestId: () => string): Server {
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const { publicId } = requestIds(request.headers['x-request-id'], newRequestId());
    const refuse = (error: ApiError): void => {
      const body = JSON.stringify({ error: errorBody(error, publicId, accountUrl()) });
      send(response, error.status, 'application/json', body, publicId, error.headers);
    };
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    if (path.startsWith('/v1/')) {
      refuse(new ApiError('http_404', 'There is no such route.'));
      return;
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      refuse(new ApiError('http_405', 'Use GET here.', { headers: { allow: 'GET, HEAD' } }));
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
  server.on('clientError', (error, socket) => refuseUnparsed(error, socket, newRequestId(), accountUrl()));
  return server;
}

function pageAt(path: string): string | undefined {
  const code = /^\/docs\/errors\/([a-z0-9_]+)$/.exec(path)?.[1];
  if (code !== undefined) return errorPage(code);
  if (path === '/docs/errors' || path === '/docs/errors/') return errorIndexPage();
  return path === '/topup' ? topupPage() : undefined;
}

function send(
  response: ServerResponse,
  status: number,
  type: string,
  body: string,
  publicId: string,
  further: Readonly<Record<string, string>> = {},
): void {
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
