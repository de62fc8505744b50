import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';

import { createListener } from '../platform/http/listener.ts';
import type { ListenerLimits, Handler } from '../platform/http/listener.ts';
import { ApiError, errorBody, toApiError } from '../platform/errors.ts';
import { pageHeaders } from '../platform/html.ts';
import { noAccountRoute } from '../inference/http/no-route.ts';
import { requestIds } from '../platform/ids/request-id.ts';
import type { AddressRanges } from '../platform/ip/ranges.ts';
import { AccountApi } from './api.ts';
import type { BuiltAnswer } from './built-files.ts';
import { Console } from './console.ts';
import { DocsSite } from './docs-site.ts';
import { accountDocument } from './openapi-document.ts';
import { mayReadMetrics } from './metrics-access.ts';
import type { MetricsAccess } from './metrics-access.ts';
import { errorIndexPage, errorPage, homePage, notFoundPage, topupPage } from './pages.ts';
import type { AccountRoute } from './route.ts';
import { accountRoutes } from './routes.ts';
import type { AccountServices } from './services.ts';

export interface MetricsPage extends MetricsAccess {
  text(): string | Promise<string>;
}

/** What the account host needs to answer, besides its pages. */
export interface AccountHostOptions {
  /** Version of the program. */
  readonly version: string;
  readonly newRequestId: () => string;
  readonly metrics: MetricsPage;
  readonly limits: ListenerLimits;
  /** The proxies currently trusted for a client's address; `undefined`: none. */
  readonly trustedProxies: () => AddressRanges | undefined;
  /** Address of the inference host, without `/v1`, for a client that called this host by this `Host`; undefined while unknown. */
  readonly inferenceUrl: (host: string | undefined) => string | undefined;
  /** The folder in which the web console has been built, or will be. */
  readonly consoleFolder: string;
  /** The folder in which the documentation has been built, or will be. */
  readonly docsFolder: string;
  /** Whether the service accepts work, and its database answers. */
  readonly isReady: () => Promise<boolean>;
  /** Called when an answer failed because of an internal error. */
  readonly failed: (error: unknown, publicId: string) => void;
}

/** The account host: the API of accounts below `/v1`, the web console, the documentation, and the pages of the error codes. */
export function createAccountHost(
  services: AccountServices,
  options: AccountHostOptions,
  routes: readonly AccountRoute[] = accountRoutes,
): Server {
  const { newRequestId, metrics, limits } = options;
  const { accountUrl } = services;
  const api = new AccountApi(routes, services, limits, options.trustedProxies);
  const document = documentOf(routes, options.version);
  const webConsole = new Console(options.consoleFolder, options.inferenceUrl);
  const docs = new DocsSite(options.docsFolder);
  const onRequest: Handler = (request, response) => {
    const { publicId } = requestIds(request.headers['x-request-id'], newRequestId());
    const refuse = (error: ApiError): void => sendRefusal(error, response, publicId, accountUrl());
    const failed = (error: unknown): void => {
      const mapped = toApiError(error);
      if (mapped.code === 'internal_error') options.failed(error, publicId);
      refuse(mapped);
    };
    const target = request.url ?? '/';
    const mark = target.indexOf('?');
    const path = mark < 0 ? target : target.slice(0, mark);
    const query = mark < 0 ? '' : target.slice(mark + 1);
    const asked: Asked = { request, response, path, query, publicId, refuse, failed };
    // A page from the database: the API's limits are its own.
    if (path.startsWith('/v1/') || path === '/heads') {
      const elsewhere = noAccountRoute(path, options.inferenceUrl(request.headers.host));
      if (elsewhere === undefined) api.answer({ request, response, path, query, publicId }).catch(failed);
      else refuse(elsewhere);
      return;
    }
    const isRead = request.method === 'GET' || request.method === 'HEAD';
    if (!isRead || !services.config().server.account.console) {
      answerOthers(asked);
      return;
    }
    webConsole.answer(path, request.headers).then((answer) => {
      if (answer === undefined) answerOthers(asked);
      else sendBuilt(answer, asked);
    }, failed);
  };
  /** Answers what is neither API nor console. */
  const answerOthers = (asked: Asked): void => {
    const { request, response, path, query, publicId, refuse, failed } = asked;
    const elsewhere = noAccountRoute(path, options.inferenceUrl(request.headers.host));
    if (elsewhere !== undefined) {
      refuse(elsewhere);
      return;
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      refuse(new ApiError('http_405', 'Use GET here.', { headers: { allow: 'GET, HEAD' } }));
      return;
    }
    switch (path) {
      case '/healthz':
        send(response, 200, 'application/json', '{"status":"ok"}', publicId);
        return;
      case '/readyz':
        options.isReady().then((isReady) => sendReadiness(isReady, response, publicId), failed);
        return;
      case '/openapi.json':
        send(response, 200, 'application/json', document(accountUrl()), publicId);
        return;
      case '/metrics':
        if (mayReadMetrics(request, metrics)) void sendMetrics(metrics, response, publicId);
        else refuse(metricsRefused());
        return;
    }
    const html = pageAt(path, accountUrl());
    if (html === undefined)
      docs
        .answer(path, query, request.headers)
        .then((answer = nothingAt(path, request.headers)) => sendBuilt(answer, asked), failed);
    else send(response, 200, htmlType, html, publicId);
  };
  /** What is where a browser gets a page of the console: programs follow `topup_url` too, and the console may be off or not built. */
  const nothingAt = (path: string, { accept }: IncomingHttpHeaders): BuiltAnswer => {
    const isForBrowsers = services.config().server.account.console && accept?.includes('text/html') === true;
    const standIn = isForBrowsers ? webConsole.standIn() : plainPages.get(path);
    return standIn ?? nothingThere;
  };
  const isHttps = (): boolean => accountUrl().startsWith('https:');
  return createListener(onRequest, { newRequestId, accountUrl, isHttps }, limits);
}

/** The same as on the inference host. */
function sendReadiness(isReady: boolean, response: ServerResponse, publicId: string): void {
  if (isReady) send(response, 200, 'application/json', '{"status":"ready"}', publicId);
  else send(response, 503, 'application/json', '{"status":"not ready"}', publicId, { 'retry-after': '1' });
}

const metricsRefused = (): ApiError =>
  new ApiError(
    'http_403',
    'Metrics are for requests from this computer, or with the token of TOKENHOUSE_METRICS_TOKEN.',
  );

interface Asked {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly path: string;
  readonly query: string;
  readonly publicId: string;
  readonly refuse: (error: ApiError) => void;
  readonly failed: (error: unknown) => void;
}

/** The API's document as text, printed again when the address of this host changes. */
function documentOf(routes: readonly AccountRoute[], version: string): (accountUrl: string) => string {
  let printed: { readonly url: string; readonly text: string } | undefined;
  return (accountUrl) => {
    if (printed?.url !== accountUrl)
      printed = { url: accountUrl, text: JSON.stringify(accountDocument({ version, routes, accountUrl })) };
    return printed.text;
  };
}

function sendRefusal(error: ApiError, response: ServerResponse, publicId: string, accountUrl: string): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const { status, retryAfterSeconds } = error;
  const wait = retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) };
  const headers = { ...wait, ...error.headers };
  const body = JSON.stringify({ error: errorBody(error, publicId, accountUrl) });
  send(response, status, 'application/json', body, publicId, headers);
}

const htmlType = pageHeaders['content-type'];

async function sendMetrics(metrics: MetricsPage, response: ServerResponse, publicId: string): Promise<void> {
  send(response, 200, metricsType, await metrics.text(), publicId);
}

const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

const nothingThere: BuiltAnswer = { status: 404, headers: {}, body: notFoundPage() };
const plainPages: ReadonlyMap<string, BuiltAnswer> = new Map([
  ['/', { status: 200, headers: {}, body: homePage() }],
  ['/topup', { status: 200, headers: {}, body: topupPage() }],
]);

const sendBuilt = ({ status, body, headers }: BuiltAnswer, { response, publicId }: Asked): void =>
  send(response, status, htmlType, body, publicId, headers);

function pageAt(path: string, accountUrl: string): string | undefined {
  const code = /^\/docs\/errors\/([a-z0-9_]+)$/.exec(path)?.[1];
  if (code !== undefined) return errorPage(code, accountUrl);
  return path === '/docs/errors' || path === '/docs/errors/' ? errorIndexPage() : undefined;
}

function send(
  response: ServerResponse,
  status: number,
  type: string,
  body: string | Uint8Array,
  publicId: string,
  further: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, {
    ...pageHeaders,
    'content-type': type,
    // RFC 9110 §8.6: a 304 has no length, as it would not be that of the content.
    ...(status === 304 ? {} : { 'content-length': Buffer.byteLength(body) }),
    'cache-control': 'no-cache',
    'x-request-id': publicId,
    'request-id': publicId,
    ...further,
  });
  response.end(body);
}
