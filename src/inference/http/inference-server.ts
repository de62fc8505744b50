import type { IncomingMessage, Server, ServerResponse } from 'node:http';

import { modelCard, modelList } from '../../catalog/card.ts';
import type { Caller, Directory } from '../../accounts/directory.ts';
import type { KeyLookUps } from '../../accounts/key-look-ups.ts';
import { presentedKey } from '../../accounts/presented-key.ts';
import { pricesAt } from '../../billing/account-prices.ts';
import type { Receipt } from '../../billing/hold.ts';
import { clientAddress } from '../../platform/http/client-address.ts';
import { createListener } from '../../platform/http/listener.ts';
import type { ListenerConnection, ListenerLimits } from '../../platform/http/listener.ts';
import { checkJson, valueOf } from '../../platform/http/json/parse.ts';
import type { JsonThreads } from '../../platform/http/json/threads.ts';
import { ApiError } from '../../platform/errors.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { Files } from '../files/files.ts';
import type { ImageFetcher } from '../images/fetcher.ts';
import type { Admission } from '../../billing/rate-limits/admission.ts';
import type { Admitted, Limits } from '../../billing/rate-limits/rate-limits.ts';
import type { Slot } from '../../billing/rate-limits/slot.ts';
import type { Log } from '../../platform/log.ts';
import type { RequestFigures, ServiceMetrics } from '../../platform/metrics/service-metrics.ts';
import { beginTrace } from '../../platform/telemetry/traces.ts';
import type { Recording } from '../../platform/telemetry/traces.ts';
import { DeadlinesByLength } from '../../platform/deadlines.ts';
import type { Order, RequestFacts } from '../pipeline/order.ts';
import type { Route } from '../pipeline/route.ts';
import { errorOfCancel } from '../pipeline/cancellation.ts';
import { checkAccess, usableModels } from '../pipeline/access.ts';
import { requireSomeCredit } from '../pipeline/early-credit.ts';
import type { Origin } from '../pipeline/access.ts';
import { promptBytes } from '../pipeline/request-images.ts';
import { idempotencyKeyOf } from '../pipeline/idempotency.ts';
import type { Idempotency, KeyedRequest } from '../pipeline/idempotency.ts';
import { keepingItems } from '../pipeline/stored-items.ts';
import type { KeptItems } from '../pipeline/stored-items.ts';
import type { Call, ServeServices } from '../pipeline/call.ts';
import { run } from '../pipeline/run.ts';
import type { Deliver, RunServices } from '../pipeline/run.ts';
import type { ActiveRequests } from '../pipeline/active-requests.ts';
import { authenticate, requireCaller, serve, serveCount, zdrRequired } from '../pipeline/serve.ts';
import type { AllowedOrigins, Lease, RuntimeConfig } from '../pipeline/runtime-config.ts';
import { keptIds, requestIds } from '../../platform/ids/request-id.ts';
import { publicIdOf } from '../../platform/ids/uuid.ts';
import { plainOperations } from '../openapi/plain-operations.ts';
import { PublishedDocument } from '../openapi/published.ts';
import { checkContentType, checkDeclaredLength, declaredLength, largeBodyBytes, readBody } from './body.ts';
import type { Body } from './body.ts';
import type { BodyBudget, BodyShare } from './body-budget.ts';
import { answerFiles, fileShape, isFilesPath } from './file-routes.ts';
import { answerPreflight, corsHeaders, isPreflight } from './cors.ts';
import { describedEndpoints } from './described.ts';
import { firstPage } from './first-page.ts';
import { noInferenceRoute } from './no-route.ts';
import { inferenceRoutes } from './routes.ts';
import { learning, VectorRoom } from './vector-room.ts';
import { respondKeyed } from './keyed.ts';
import type { RunKeyed } from './keyed.ts';
import { eventsOf, respondStream, respondWhole, sendError, sendJson, sendNotModified, sendPage } from './respond.ts';
import type { Exchange } from './respond.ts';

export interface InferenceHostOptions {
  /** Version of the program. */
  readonly version: string;
  /** Base URL of the pages about error codes. */
  readonly accountUrl: string;
  /** Whether clients call this host by https. */
  readonly isHttps: boolean;
  readonly listener: ListenerLimits;
}

export interface InferenceHostServices
  extends
    Pick<ServeServices, 'constraints' | 'promptCounts' | 'reasoningKeys' | 'fileParts'>,
    Pick<RunServices, 'billing'> {
  readonly directory: Directory;
  /** Reads the keys that are not in memory. */
  readonly keyLookUps: Pick<KeyLookUps, 'read'>;
  /** The current runtime config; each request keeps the one that it began with. */
  lease(): Lease;
  /** Keys, accounts and prices as known here, and whether they are up to date. */
  readonly feed: { readonly isStale: boolean; freshen(): Promise<boolean> };
  readonly bodyBudget: BodyBudget;
  readonly items: KeptItems;
  readonly idempotency: Idempotency;
  readonly imageFetcher: ImageFetcher;
  readonly files: Files;
  readonly running: ActiveRequests;
  readonly log: Log;
  readonly admission: Admission;
  readonly limits: Limits;
  readonly jsonThreads: JsonThreads;
  readonly metrics: ServiceMetrics;
  /** Undefined: no request is traced here. */
  readonly traces: Recording | undefined;
  /** Makes UUIDv7s, the ledger's keys. */
  readonly newId: () => Uint8Array;
  /** The time shared by all replicas: requests are dated and priced by it. */
  readonly now: () => number;
  /** Whether new work is accepted: not while starting, and not while stopping. */
  ready(): boolean;
  /** Whether a load balancer should send work here: it is accepted, changes are known in time, the store and the ledger answer. */
  isReady(): Promise<boolean>;
}

/** The inference host of the specification. The caller listens and closes. */
export function createInferenceHost(services: InferenceHostServices, options: InferenceHostOptions): Server {
  const { log, metrics } = services;
  const host: Host = {
    services,
    options,
    document: new PublishedDocument(),
    deadlines: new DeadlinesByLength(),
    vectorRoom: new VectorRoom(),
  };
  return createListener(
    (request, response, connection) => {
      if (isPreflight(request)) preflight(request, response, host);
      else void handle(request, response, connection, host);
    },
    {
      newRequestId: () => publicIdOf(services.newId()),
      accountUrl: () => options.accountUrl,
      isHttps: () => options.isHttps,
      refusalHeaders: (request) => corsHeaders(request, allowedOrigins(services), options.accountUrl),
      refused: ({ status, code }, publicId, method) => {
        metrics.http('unparsed', status);
        log.request({ id: null, publicId, method, status, errorCode: code, totalMs: 0 });
      },
    },
    options.listener,
  );
}

interface Host {
  readonly services: InferenceHostServices;
  readonly options: InferenceHostOptions;
  readonly document: PublishedDocument;
  readonly deadlines: DeadlinesByLength;
  readonly vectorRoom: VectorRoom;
}

/** The allowed origins in force now. */
function allowedOrigins({ lease }: InferenceHostServices): AllowedOrigins {
  const current = lease();
  try {
    return current.runtimeConfig.allowedOrigins;
  } finally {
    current.release();
  }
}

/** Runs before anything else: a preflight waits for nothing, takes no slot, and has no log line. */
function preflight(request: IncomingMessage, response: ServerResponse, { services, options }: Host): void {
  const { publicId } = requestIds(request.headers['x-request-id'], publicIdOf(services.newId()));
  if (!services.ready()) response.shouldKeepAlive = false;
  const { accountUrl } = options;
  const status = answerPreflight(request, response, allowedOrigins(services), { publicId, accountUrl });
  services.metrics.http('preflight', status);
}

/** A request in progress, and what it holds of this process until it ends. */
interface Arrival {
  readonly request: IncomingMessage;
  readonly connection: ListenerConnection;
  readonly exchange: Exchange;
  readonly lease: Lease;
  readonly id: Uint8Array;
  /** Its ids as they may be kept. */
  kept: ReturnType<typeof keptIds>;
  readonly startedAt: number;
  readonly elapsedMs: () => number;
  route: Route | undefined;
  order: Order | undefined;
  slot: Slot | undefined;
  /** Taken for a large body. */
  large: Slot | undefined;
  /** The memory of its body, and of what is made of it, until it ends. */
  share: BodyShare | undefined;
}

/** One request, from its head to its last byte. Catches everything: every failure becomes an answer and a log line. */
async function handle(
  request: IncomingMessage,
  response: ServerResponse,
  connection: ListenerConnection,
  host: Host,
): Promise<void> {
  const { services } = host;
  const arrival = arrived(request, response, connection, host);
  try {
    const path = pathOf(request);
    const route = inferenceRoutes.get(path);
    arrival.route = route;
    if (isFilesPath(path)) await answerFilePath(path, arrival, services);
    else if (route !== undefined) {
      arrival.exchange.trace = beginTrace(request.headers, services.traces);
      await answerInference(route, arrival, host);
    } else {
      if (path === '/v1/models') await answerModels(arrival, services);
      else await answerPlain(path, request, arrival.exchange, arrival.lease, host);
    }
  } catch (error) {
    answerError(error, arrival, host);
  } finally {
    end(arrival, services);
  }
}

function arrived(
  request: IncomingMessage,
  response: ServerResponse,
  connection: ListenerConnection,
  { services, options }: Host,
): Arrival {
  const startedAt = services.now();
  const elapsedMs = stopwatch();
  const id = services.newId();
  const own = publicIdOf(id);
  const ids = requestIds(request.headers['x-request-id'], own);
  const kept = keptIds(ids, request.headers['service-zdr'], own);
  const running = services.running.begin();
  const lease = services.lease();
  response.on('close', () => {
    if (!response.writableFinished) running.cancel('client-left');
    // A connection that outlives its answer could bring new work while the stop waits.
    else if (!services.ready()) request.socket.end();
  });
  // The port is closed while stopping, but connections that were not idle are still open: for this answer only.
  if (!services.ready()) response.shouldKeepAlive = false;
  const exchange: Exchange = {
    response,
    connection,
    publicId: ids.publicId,
    keptId: kept.publicId,
    cors: corsHeaders(request, lease.runtimeConfig.allowedOrigins, options.accountUrl),
    running,
    admitted: undefined,
    repeatOf: undefined,
    fallbackFrom: undefined,
    error: undefined,
    trace: undefined,
    receipt: undefined,
    receivedMs: performance.now(),
    engineMs: 0,
  };
  return {
    request,
    connection,
    exchange,
    lease,
    id,
    kept,
    startedAt,
    elapsedMs,
    route: undefined,
    order: undefined,
    slot: undefined,
    large: undefined,
    share: undefined,
  };
}

async function answerFilePath(path: string, arrival: Arrival, services: InferenceHostServices): Promise<void> {
  const { request, exchange, lease } = arrival;
  if (!services.ready()) throw errorOfCancel('drain', undefined);
  await caughtUp(request, services);
  const { limits } = lease.runtimeConfig;
  const authenticated = async (): Promise<Caller> => requireCaller(await callerOf(arrival, services));
  await answerFiles(path, { request, exchange, limits, authenticate: authenticated }, services);
}

/** The order of contracts decision 10, up to the body. */
async function answerInference(route: Route, arrival: Arrival, host: Host): Promise<void> {
  const { request, exchange, lease, startedAt, elapsedMs, id } = arrival;
  const { services } = host;
  const { admission } = services;
  if (request.method !== 'POST') throw methodNotAllowed('POST');
  if (!services.ready()) throw errorOfCancel('drain', undefined);
  checkContentType(request);
  if (services.feed.isStale) await caughtUp(request, services);
  const found = callerOf(arrival, services);
  const caller = requireCaller(found instanceof Promise ? await found : found);
  const { account, key } = caller;
  const zdr = zdrRequired(request.headers, caller);
  const idempotencyKey = route.kind === 'generate' ? idempotencyKeyOf(request.headers) : undefined;
  checkDeclaredLength(request, lease.runtimeConfig.limits.bodyBytesMax);
  const bodyBytes = declaredLength(request);
  admission.check(bodyBytes, largeBodyBytes);
  if (bodyBytes !== undefined && bodyBytes > largeBodyBytes)
    await requireSomeCredit({ ...caller, route, idempotencyKey }, lease.runtimeConfig.catalog, services);
  const share = (arrival.share = services.bodyBudget.share(account.id));
  if (bodyBytes !== undefined) share.expect(bodyBytes);
  if (request.headers.expect !== undefined && request.httpVersion === '1.1') exchange.response.writeContinue();
  const idHex = Buffer.from(id).toString('hex');
  const { publicId, clientId } = arrival.kept;
  const facts: RequestFacts = { id, idHex, publicId, clientId, startedAt, elapsedMs, account, key, zdr };
  await answerBody(route, facts, idempotencyKey, share, arrival, host);
}

/** Reads the body, decides on it, and answers. */
async function answerBody(
  route: Route,
  facts: RequestFacts,
  idempotencyKey: string | undefined,
  share: BodyShare,
  arrival: Arrival,
  host: Host,
): Promise<void> {
  const { request, exchange, lease } = arrival;
  const { services } = host;
  const { admission } = services;
  const { signal } = exchange.running;
  const { headers } = request;
  // A body without a declared length shows its size only here.
  const admitLarge = (): Promise<void> | undefined => {
    arrival.large ??= admission.takeLarge(largeBodyBytes + 1, largeBodyBytes);
    return declaredLength(request) === undefined
      ? requireSomeCredit({ ...facts, route, idempotencyKey }, lease.runtimeConfig.catalog, services)
      : undefined;
  };
  const body = await readBody(request, lease.runtimeConfig.limits.bodyBytesMax, share, signal, admitLarge);
  exchange.receivedMs = performance.now();
  // Held from here to the last byte: clients that send slowly take no slot.
  arrival.slot = admission.take();
  let keyed: KeyedRequest | undefined;
  if (idempotencyKey !== undefined && route.kind === 'generate') {
    const keyedBody = { route, zdr: facts.zdr, headers, blocks: body.blocks };
    keyed = await services.idempotency.read(idempotencyKey, facts.account.id, keyedBody);
  }
  const json = body.length > largeBodyBytes ? await parseLarge(body, share, signal, services) : parseSmall(body, share);
  const waited = (engineMs: number): void => void (exchange.engineMs += engineMs);
  /** Of files that the request names. */
  let fileBytes = 0;
  const holdBytes = (bytes: number): void => {
    share.take(bytes);
    fileBytes += bytes;
  };
  const prepared = ({ request: { prompt } }: Order): void => {
    // What has been made of the files stays, their bytes do not.
    if (fileBytes > 0) share.give(Math.max(0, fileBytes - promptBytes(prompt)));
  };
  const admitted = (by: Admitted): void => void (exchange.admitted = by);
  const callOn = <On extends Route>(on: On): Call<On> => ({
    facts,
    route: on,
    headers,
    signal,
    lease,
    waited,
    holdBytes,
    admitted,
  });
  if (route.kind === 'count') {
    sendJson(exchange, 200, await serveCount(json, callOn(route), services));
    return;
  }
  const order = (arrival.order = await serve(json, callOn(route), services));
  host.vectorRoom.take(order, share, services.bodyBudget);
  lease.narrow(order.model.id, order.model.fallback);
  await answer(order, keyed, prepared, arrival, host);
}

function answerError(error: unknown, { request, connection, exchange, route, order }: Arrival, host: Host): void {
  const { cancelled } = exchange.running;
  // Cancelled before there was an order: `run` reports the other cancellations.
  const reported = cancelled !== undefined && error === cancelled ? errorOfCancel(cancelled, order?.model.id) : error;
  if (order === undefined && host.services.admission.isShedding) connection.restAfterAnswer();
  const wire = isFilesPath(pathOf(request)) ? fileShape(request) : route?.dialect;
  if (!exchange.response.headersSent) sendError(exchange, reported, host.options.accountUrl, wire);
  else exchange.response.destroy();
}

function end(arrival: Arrival, services: InferenceHostServices): void {
  const { request, exchange, lease, order, slot, large, share, elapsedMs } = arrival;
  slot?.release();
  large?.release();
  share?.end();
  exchange.running.end();
  lease.release();
  // One line per request: those that had a hold have theirs already.
  if (exchange.receipt === undefined) {
    if (exchange.error !== undefined) logRefusal(request, exchange, order, elapsedMs(), services.log);
    else if (exchange.repeatOf !== undefined && order !== undefined)
      logReplay(exchange, exchange.repeatOf, order, elapsedMs(), services.log);
  }
  measure(arrival, services.metrics);
}

/**
 * The caller, if a key is presented: at once where it is in memory, else when it has been read. From here on what happens to the
 * key or its account reaches the request: nothing is awaited between finding the key live and saying whose request it is.
 */
function callerOf(arrival: Arrival, services: InferenceHostServices): Caller | undefined | Promise<Caller | undefined> {
  const { request, exchange, lease } = arrival;
  const origin = originOf(request, lease.runtimeConfig);
  const find = (): Caller | 'cold' | undefined => {
    const caller = authenticate(request.headers, services.directory);
    if (typeof caller !== 'object') return caller;
    if (caller.account.zdrRequired === true) forgetChosenId(arrival);
    checkAccess(caller, origin);
    exchange.running.claim(caller.account.id, caller.key.id);
    return caller;
  };
  const found = find();
  return found === 'cold' ? coldCaller(request, origin, find, services) : found;
}

/** As for a request with `Service-ZDR: required`, which this one is for its account: nothing chosen by the client is kept. */
function forgetChosenId(arrival: Arrival): void {
  const own = publicIdOf(arrival.id);
  arrival.kept = keptIds(arrival.kept, 'required', own);
  arrival.exchange.keptId = own;
}

/** The database may fall silent while a key is read, and the key go out of memory before it speaks again. */
const coldTriesMax = 3;

async function coldCaller(
  request: IncomingMessage,
  { address }: Origin,
  find: () => Caller | 'cold' | undefined,
  services: InferenceHostServices,
): Promise<Caller | undefined> {
  for (let tries = 0; tries < coldTriesMax; tries++) {
    await services.keyLookUps.read(presentedKey(request.headers) ?? '', address);
    if (services.feed.isStale) await caughtUp(request, services);
    const found = find();
    if (found !== 'cold') return found;
  }
  throw databaseSilent();
}

/**
 * This process lets no one in from memory alone when it may have missed a revoked key: it looks once more, or refuses (money, "A
 * database that does not answer").
 */
async function caughtUp({ headers }: IncomingMessage, { feed }: InferenceHostServices): Promise<void> {
  if (!feed.isStale || presentedKey(headers) === undefined || (await feed.freshen())) return;
  throw databaseSilent();
}

const databaseSilent = (): ApiError =>
  new ApiError('internal_error', 'The database does not answer.', { retryAfterSeconds: 1 });

/** At once; a large body would block everybody else (reliability C12). */
function parseSmall({ blocks, length }: Body, share: BodyShare): unknown {
  const [only] = blocks;
  const bytes = blocks.length === 1 && only !== undefined ? only : Buffer.concat(blocks, length);
  share.parsed(checkJson(bytes));
  return valueOf(bytes.toString('utf8'));
}

async function parseLarge({ blocks }: Body, share: BodyShare, signal: StopSignal, services: InferenceHostServices) {
  const { value, structuralCharacters } = await services.jsonThreads.parse(blocks, signal);
  share.parsed(structuralCharacters);
  return value;
}

/** `keep` is called with the order that is left when the request has been prepared. */
async function answer(
  order: Order,
  keyed: KeyedRequest | undefined,
  keep: (order: Order) => void,
  arrival: Arrival,
  host: Host,
): Promise<void> {
  const { services, options } = host;
  const { exchange, lease } = arrival;
  const { limits } = lease.runtimeConfig;
  const { running } = exchange;
  const deadline = host.deadlines.of(limits.requestDeadlineMs).begin(() => running.cancel('deadline'));
  try {
    const head = {
      requestId: exchange.publicId,
      id: order.idHex,
      created: Math.floor(order.startedAt / 1000),
      model: order.model.id,
      signer: services.reasoningKeys.for(order.account.id),
      now: () => Math.floor((order.startedAt + order.elapsedMs()) / 1000),
    };
    const ended = (receipt: Receipt, engineMs: number): void => {
      exchange.receipt = receipt;
      exchange.engineMs += engineMs;
      services.log.answer(receipt);
    };
    const { billing, limits: callerLimits, promptCounts, metrics } = services;
    const images = {
      fetcher: services.imageFetcher,
      settings: lease.runtimeConfig.images,
      budget: arrival.share ?? services.bodyBudget,
    };
    const chunkGaps = (modelId: string) => metrics.chunkGaps(modelId);
    const admitted = (by: Admitted): void => void (exchange.admitted = by);
    const { poolOf } = lease;
    const { trace: spans } = exchange;
    const falls =
      order.model.fallback === undefined
        ? undefined
        : (to: Order): void => {
            arrival.order = to;
            head.model = to.model.id;
            exchange.fallbackFrom = to.model.id === order.model.id ? undefined : order.model.id;
          };
    const prepared = (by: Order): void => {
      arrival.order = by;
      keep(by);
    };
    const events = { admitted, prepared, ended, falls };
    const runServices = { billing, limits: callerLimits, promptCounts, images, poolOf, ...events, chunkGaps, spans };
    const kept = (deliver: Deliver): Deliver =>
      keepingItems(order, head, services.items, learning(order, host.vectorRoom, deliver));
    const respond = { ...limits, accountUrl: options.accountUrl, deadlines: host.deadlines };
    if (keyed !== undefined) {
      const runKeyed: RunKeyed = (signal, settling, deliver) =>
        run(order, { ...runServices, settling }, signal, kept(deliver));
      await respondKeyed(order, keyed, exchange, head, services.idempotency, runKeyed, respond);
      return;
    }
    const begin = (deliver: Deliver): Promise<void> => run(order, runServices, running.signal, kept(deliver));
    const { format } = order;
    if (order.stream) await respondStream(exchange, eventsOf(format, head, begin), respond);
    else await respondWhole(exchange, format, head, begin);
  } finally {
    deadline.end();
  }
}

async function answerModels(arrival: Arrival, services: InferenceHostServices): Promise<void> {
  const { request, exchange, lease } = arrival;
  await caughtUp(request, services);
  readOnly(request);
  // Specification §5.3: without a key list prices are shown, an invalid key is refused.
  const caller = await callerOf(arrival, services);
  const now = services.now();
  const cards = usableModels(caller, lease.runtimeConfig.catalog, now).map((model) =>
    modelCard(model, pricesAt(model, caller?.account.rates, now), Math.floor(now / 1000)),
  );
  sendJson(exchange, 200, JSON.stringify(modelList(cards)));
}

/** Everything that is not inference: health, and what does not exist. At once: what follows a request may be no HTTP. */
function answerPlain(
  path: string,
  request: IncomingMessage,
  exchange: Exchange,
  { runtimeConfig }: Lease,
  { services, options, document }: Host,
): void | Promise<void> {
  switch (path) {
    case '/healthz':
      readOnly(request);
      sendJson(exchange, 200, '{"status":"ok"}');
      return;
    case '/readyz':
      readOnly(request);
      return services.isReady().then((isReady) => {
        if (isReady) sendJson(exchange, 200, '{"status":"ready"}');
        else sendJson(exchange, 503, '{"status":"not ready"}', { 'retry-after': '1' });
      });
    case '/openapi.json': {
      readOnly(request);
      const { text, etag } = document.of(runtimeConfig.limits, {
        version: options.version,
        endpoints: describedEndpoints,
        operations: plainOperations,
        models: usableModels(undefined, runtimeConfig.catalog, services.now()),
        accountUrl: options.accountUrl,
        bodyBytesMax: runtimeConfig.limits.bodyBytesMax,
      });
      if (request.headers['if-none-match'] === etag) sendNotModified(exchange, { etag });
      else sendJson(exchange, 200, text, { etag });
      return;
    }
    default:
      if (path === '/' && isRead(request) && request.headers.accept?.includes('text/html') === true)
        sendPage(exchange, firstPage(options.accountUrl));
      else throw noInferenceRoute(path, options.accountUrl);
  }
}

function readOnly(request: IncomingMessage): void {
  if (!isRead(request)) throw methodNotAllowed('GET, HEAD');
}

const isRead = ({ method }: IncomingMessage): boolean => method === 'GET' || method === 'HEAD';

/** Routes are found by the path alone: queries are ignored (contracts §1.0). */
function pathOf(request: IncomingMessage): string {
  const target = request.url ?? '/';
  const query = target.indexOf('?');
  return query < 0 ? target : target.slice(0, query);
}

const originOf = (request: IncomingMessage, { trustedProxies }: RuntimeConfig): Origin => ({
  path: pathOf(request),
  address: clientAddress(request, trustedProxies),
});

const methodNotAllowed = (allow: string): ApiError =>
  new ApiError('http_405', `Use ${allow} here.`, { headers: { allow } });

/** Once per request, when it has ended: a few microseconds. No label is the client's choice (reliability §4). */
function measure({ request, exchange, route, order, id }: Arrival, metrics: ServiceMetrics): void {
  const { response, receipt, error, trace } = exchange;
  const status = response.headersSent ? response.statusCode : 0;
  metrics.http(route?.api ?? plainRoute(pathOf(request)), status);
  if (route === undefined) return;
  const { receivedMs, engineMs } = exchange;
  const figures: RequestFigures = {
    api: route.api,
    model: order?.model.id ?? '',
    streamed: order?.stream ?? false,
    status,
    code: (receipt === undefined ? error?.code : receipt.errorCode) ?? '',
    answer: receipt,
    ownMs: performance.now() - receivedMs - engineMs,
  };
  metrics.request(figures);
  trace?.end({
    method: request.method ?? '',
    route: pathOf(request),
    operation: route.operation,
    requestId: publicIdOf(id),
    accountId: order?.account.id,
    keyId: order?.key.id,
    figures,
  });
}

/** One of a few names, whatever path was requested. */
function plainRoute(path: string): string {
  if (isFilesPath(path)) return 'files';
  return path === '/v1/models' || path === '/healthz' || path === '/readyz' || path === '/openapi.json'
    ? path.slice(path.lastIndexOf('/') + 1)
    : 'other';
}

/** Logs refusals before a hold. Successful health checks and catalog requests have no line. */
function logRefusal(
  request: IncomingMessage,
  exchange: Exchange,
  order: Order | undefined,
  totalMs: number,
  log: Log,
): void {
  log.request({
    id: order?.idHex ?? null,
    publicId: exchange.keptId,
    method: request.method ?? '',
    status: exchange.response.statusCode,
    errorCode: exchange.error?.code ?? null,
    totalMs,
  });
}

function logReplay({ keptId, response }: Exchange, replayOf: string, order: Order, totalMs: number, log: Log): void {
  log.replay({
    id: order.idHex,
    publicId: keptId,
    // §4.2.6: nothing chosen by a client.
    replayOf: order.request.retain ? replayOf : null,
    accountId: order.account.id,
    keyId: order.key.id,
    model: order.model.id,
    api: order.route.api,
    streamed: order.stream,
    status: response.statusCode,
    totalMs,
  });
}

/** Whole milliseconds since now, by a monotonic clock (reliability S5). */
function stopwatch(): () => number {
  const begun = performance.now();
  return () => Math.round(performance.now() - begun);
}
