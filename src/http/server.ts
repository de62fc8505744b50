import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

import { modelCard, modelList } from '../catalog/card.ts';
import type { Receipt } from '../billing/hold.ts';
import { chat } from '../dialects/chat/chat.ts';
import { refuseUnparsed } from '../edge/refuse-unparsed.ts';
import { ApiError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Order } from '../pipeline/order.ts';
import type { InferenceRoute } from '../pipeline/route.ts';
import { errorOfCancel } from '../pipeline/cancellation.ts';
import type { CancelReason } from '../pipeline/cancellation.ts';
import { run } from '../pipeline/run.ts';
import type { RunServices } from '../pipeline/run.ts';
import type { Running } from '../pipeline/running.ts';
import { authenticate, requireCaller, serve, zdrRequired } from '../pipeline/serve.ts';
import type { Call, ServeServices } from '../pipeline/serve.ts';
import { requestIds } from '../ids/request-id.ts';
import { publicIdOf } from '../ids/uuid.ts';
import { BodyBudget, checkContentType, checkDeclaredLength, parseJson, readBody } from './body.ts';
import { respondStream, respondWhole, sendError, sendJson } from './respond.ts';
import type { Exchange, RespondOptions } from './respond.ts';

export interface InferenceHostOptions extends RespondOptions {
  /** Bodies of so many bytes and more are refused (specification part 8). */
  readonly bodyBytesMax: number;
  readonly bodiesInFlightBytesMax: number;
  /** Longest life of a request (contracts decision 23). */
  readonly requestDeadlineMs: number;
}

export interface InferenceHostServices extends ServeServices, Omit<RunServices, 'ended'> {
  readonly running: Running;
  readonly log: Log;
  /** Makes UUIDv7s, the ledger's keys. */
  readonly newId: () => Uint8Array;
  /** Whether new work is wanted: not while starting, and not while stopping. */
  ready(): boolean;
}

/** The API families (contracts §1.0, "Routes"); a further one is one line here and a folder in `dialects/`. */
const inferenceRoutes: ReadonlyMap<string, InferenceRoute> = new Map([
  [
    '/v1/chat/completions',
    { api: 'chat', dialect: chat, defaultMaxTokens: 'card', retryWithoutMaxTokens: true, unknownEffort: 'reject' },
  ],
]);

/** The inference host of the specification, on `node:http`. The caller listens and closes. */
export function createInferenceHost(services: InferenceHostServices, options: InferenceHostOptions): Server {
  const budget = new BodyBudget(options.bodiesInFlightBytesMax);
  const host: Host = { services, options, budget, streaming: new WeakSet() };
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    void handle(request, response, host);
  };
  const server = createServer(
    {
      headersTimeout: 10_000,
      requestTimeout: 300_000,
      connectionsCheckingInterval: 1_000,
      keepAliveTimeout: 65_000,
      maxHeaderSize: 16_384,
      // Refused in `checkHead`, in the envelope; Node's own answer has none.
      requireHostHeader: false,
    },
    onRequest,
  );
  // Without these Node says 100 before anybody has looked at the key, and a 417 without an envelope (reliability C9).
  server.on('checkContinue', onRequest).on('checkExpectation', onRequest);
  // More than a hundred headers are refused in `handle`; Node's own cap would drop the excess silently (reliability C8).
  server.maxHeadersCount = 0;
  server.on('clientError', (error, socket) => {
    // No other answer may be written into one that is under way.
    if (host.streaming.has(socket)) {
      socket.destroy();
      return;
    }
    const publicId = publicIdOf(services.newId());
    const refusal = refuseUnparsed(error, socket, publicId, options.accountUrl);
    if (refusal === undefined) return;
    const { status, code } = refusal;
    services.log.request({ id: null, publicId, method: '', status, errorCode: code, totalMs: 0 });
  });
  return server;
}

const headersMax = 100;

interface Host {
  readonly services: InferenceHostServices;
  readonly options: InferenceHostOptions;
  readonly budget: BodyBudget;
  /** Sockets in whose answer no other answer may be written. */
  readonly streaming: WeakSet<Duplex>;
}

/** One request, from its head to its last byte. Catches everything: whatever fails becomes an answer and a log line. */
async function handle(request: IncomingMessage, response: ServerResponse, host: Host): Promise<void> {
  const { services, options } = host;
  const startedAt = Date.now();
  const id = services.newId();
  const ids = requestIds(request.headers['x-request-id'], publicIdOf(id));
  const running = services.running.begin();
  const exchange: Exchange = { response, publicId: ids.publicId, running, error: undefined, isLogged: false };
  response.on('close', () => {
    if (!response.writableFinished) running.cancel('client-left');
    // A connection that outlives its answer could bring new work for as long as the stop waits.
    else if (!services.ready()) request.socket.end();
  });
  // The port is closed while stopping, but connections that were not idle are still there: for this answer only.
  if (!services.ready()) response.shouldKeepAlive = false;
  let route: InferenceRoute | undefined;
  let order: Order | undefined;
  try {
    checkHead(request);
    const path = pathOf(request);
    route = inferenceRoutes.get(path);
    if (route === undefined) {
      answerPlain(path, request, exchange, services);
      return;
    }
    if (request.method !== 'POST') throw methodNotAllowed('POST');
    if (!services.ready()) throw errorOfCancel('drain', undefined);
    // The order of contracts decision 10.
    checkContentType(request);
    const caller = requireCaller(authenticate(request.headers, services.directory));
    const zdr = zdrRequired(request.headers);
    checkDeclaredLength(request, options.bodyBytesMax);
    running.claim(caller.account.id, caller.key.id);
    if (request.headers.expect !== undefined && request.httpVersion === '1.1') response.writeContinue();
    order = await takeOrder(request, { id, route, caller, zdr, ...ids, startedAt, signal: running.signal }, host);
    await answer(order, exchange, host);
  } catch (error) {
    // Cancelled before there was an order: `run` tells the others.
    const told =
      running.signal.aborted && error === running.signal.reason
        ? errorOfCancel(error as CancelReason, order?.model.id)
        : error;
    if (!response.headersSent) sendError(exchange, told, options.accountUrl, route?.dialect);
    else response.destroy();
  } finally {
    running.end();
    // The last bytes wait for their reader no longer than the others did: Node would keep them for ever (reliability C3).
    if (response.writableEnded && !response.writableFinished) response.setTimeout(options.readerStallMs);
    // One line a request: those that had a hold have theirs already.
    if (!exchange.isLogged) logRefusal(request, exchange, order, startedAt, services.log);
  }
}

async function takeOrder(request: IncomingMessage, call: Call, { services, options, budget }: Host): Promise<Order> {
  const body = await readBody(request, options.bodyBytesMax, budget, call.signal);
  try {
    return await serve(parseJson(body), call, services);
  } finally {
    budget.give(body.length);
  }
}

async function answer(order: Order, exchange: Exchange, host: Host): Promise<void> {
  const { services, options } = host;
  const { running } = exchange;
  const { socket } = exchange.response;
  const deadline = setTimeout(() => running.cancel('deadline'), options.requestDeadlineMs);
  try {
    const head = {
      requestId: order.publicId,
      id: order.idHex,
      created: Math.floor(order.startedAt / 1000),
      model: order.model.id,
    };
    const ended = (receipt: Receipt): void => {
      exchange.isLogged = true;
      logAnswer(order, receipt, services.log);
    };
    const stream = run(order, { ...services, ended }, running.signal);
    const { dialect } = order.route;
    if (order.stream) {
      if (socket !== null) host.streaming.add(socket);
      await respondStream(exchange, dialect, head, stream, options);
    } else await respondWhole(exchange, dialect, head, stream);
  } finally {
    clearTimeout(deadline);
    if (socket !== null) host.streaming.delete(socket);
  }
}

/** Everything that is not inference: the catalog, health, and what does not exist. */
function answerPlain(
  path: string,
  request: IncomingMessage,
  exchange: Exchange,
  services: InferenceHostServices,
): void {
  switch (path) {
    case '/v1/models': {
      readOnly(request);
      // Specification §5.3: no key shows list prices, an invalid one is refused.
      authenticate(request.headers, services.directory);
      const now = Math.floor(Date.now() / 1000);
      sendJson(
        exchange,
        200,
        JSON.stringify(modelList(services.catalog.models.map((model) => modelCard(model, model.prices, now)))),
      );
      return;
    }
    case '/healthz':
      readOnly(request);
      sendJson(exchange, 200, '{"status":"ok"}');
      return;
    case '/readyz':
      readOnly(request);
      if (services.ready()) sendJson(exchange, 200, '{"status":"ready"}');
      else sendJson(exchange, 503, '{"status":"not ready"}', { 'retry-after': '1' });
      return;
    default:
      throw new ApiError('http_404', 'There is no such route.');
  }
}

function readOnly(request: IncomingMessage): void {
  if (request.method !== 'GET' && request.method !== 'HEAD') throw methodNotAllowed('GET, HEAD');
}

/** What the parser lets through and no route takes (reliability C7 to C9). */
function checkHead(request: IncomingMessage): void {
  if (request.httpVersionMajor !== 1) throw new ApiError('http_505', 'Speak HTTP/1.1.');
  if (request.rawHeaders.length > 2 * headersMax)
    throw new ApiError('http_431', `A request may have ${headersMax} headers.`);
  const { host, expect } = request.headers;
  if (host === undefined && request.httpVersionMinor > 0) throw new ApiError('http_400', 'The Host header is missing.');
  if (expect !== undefined && expect.toLowerCase() !== '100-continue')
    throw new ApiError('http_417', 'Only 100-continue can be expected.');
}

/** Route by the path alone: queries are ignored (contracts §1.0), and an absolute target is refused. */
function pathOf(request: IncomingMessage): string {
  const target = request.url ?? '/';
  if (!target.startsWith('/')) throw new ApiError('http_400', 'The request target must be a path.');
  const query = target.indexOf('?');
  return query < 0 ? target : target.slice(0, query);
}

const methodNotAllowed = (allow: string): ApiError =>
  new ApiError('http_405', `Use ${allow} here.`, { headers: { allow } });

function logAnswer(order: Order, receipt: Receipt, log: Log): void {
  log.answer({
    id: order.idHex,
    publicId: order.publicId,
    accountId: order.account.id,
    keyId: order.key.id,
    model: order.model.id,
    api: order.route.api,
    streamed: order.stream,
    ending: receipt.ending,
    errorCode: receipt.errorCode,
    promptTokens: receipt.promptTokens,
    cachedTokens: receipt.cachedTokens,
    completionTokens: receipt.completionTokens,
    reasoningTokens: receipt.reasoningTokens,
    costMicrocents: receipt.costMicrocents,
    backend: receipt.backend,
    firstTokenMs: receipt.firstTokenMs,
    totalMs: receipt.totalMs,
  });
}

/** What was refused before a hold. Health checks and the catalog, when they succeed, have no line. */
function logRefusal(
  request: IncomingMessage,
  exchange: Exchange,
  order: Order | undefined,
  startedAt: number,
  log: Log,
): void {
  if (exchange.error === undefined) return;
  log.request({
    id: order?.idHex ?? null,
    publicId: exchange.publicId,
    method: request.method ?? '',
    status: exchange.response.statusCode,
    errorCode: exchange.error.code,
    totalMs: Date.now() - startedAt,
  });
}
