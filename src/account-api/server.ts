import type { Server, ServerResponse } from 'node:http';

import { createEdge } from '../edge/edge.ts';
import type { EdgeLimits, Handler } from '../edge/edge.ts';
import { ApiError, errorBody } from '../errors.ts';
import { requestIds } from '../ids/request-id.ts';
import { mayReadMetrics } from './metrics-access.ts';
import type { MetricsAccess } from './metrics-access.ts';
import { errorIndexPage, errorPage, notFoundPage, topupPage } from './pages.ts';

export interface MetricsPage extends MetricsAccess {
  text(): string | Promise<string>;
}

/** The account host: today the pages that error answers link to. Plain text pages, no scripts, nothing about any account. */
export function createAccountHost(
  accountUrl: () => string,
  newRequestId: () => string,
  metrics: MetricsPage,
  limits: EdgeLimits,
): Server {
  const onRequest: Handler = (request, response) => {
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
    if (path === '/metrics') {
      if (mayReadMetrics(request, metrics)) void sendMetrics(metrics, response, publicId);
      else
        refuse(
          new ApiError(
            'http_403',
            'Metrics are shown to this computer only, or to whoever presents the token of TOKENHOUSE_METRICS_TOKEN.',
          ),
        );
      return;
    }
    const html = pageAt(path, accountUrl());
    send(response, html === undefined ? 404 : 200, 'text/html; charset=utf-8', html ?? notFoundPage(), publicId);
  };
  return createEdge(onRequest, { newRequestId, accountUrl }, limits);
}

async function sendMetrics(metrics: MetricsPage, response: ServerResponse, publicId: string): Promise<void> {
  send(response, 200, metricsType, await metrics.text(), publicId);
}

const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

function pageAt(path: string, accountUrl: string): string | undefined {
  const code = /^\/docs\/errors\/([a-z0-9_]+)$/.exec(path)?.[1];
  if (code !== undefined) return errorPage(code, accountUrl);
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
