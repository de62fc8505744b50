import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

import { ApiError } from '../errors.ts';
import { keptIds, requestIds } from '../ids/request-id.ts';
import { BodyRate } from './body-rate.ts';
import type { BodyRateLimits } from './body-rate.ts';
import { checkHead } from './check-head.ts';
import { probe } from './half-close.ts';
import { refusalBytes } from './refusal.ts';

export interface ListenerLimits extends BodyRateLimits {
  /** From the connection, or the first byte of a request, to the end of its headers (reliability C1). */
  readonly headersTimeoutMs: number;
  /** From the first byte of a request to the end of its body (C2). */
  readonly bodyTimeoutMs: number;
  /** How long a connection without a request stays open (C10). */
  readonly keepAliveTimeoutMs: number;
  /** How long the last bytes of an answer wait for a client that does not read (C3). */
  readonly readerStallMs: number;
  /** Connections open at the same time; the system closes further ones immediately. */
  readonly connectionsMax: number;
  /** A connection is closed after this many requests, announced in its last answer (C10). */
  readonly requestsPerConnectionMax: number;
  /** Requests that may wait on one connection for the answer before theirs (C6). */
  readonly waitingPerConnectionMax: number;
  /** How often the time limits are checked: a connection may be closed this much late. */
  readonly checkEveryMs: number;
}

/** The defaults of both hosts; a host overrides them where it knows better. */
export const defaultListenerLimits: ListenerLimits = {
  headersTimeoutMs: 10_000,
  bodyTimeoutMs: 300_000,
  bodyBytesPerSecondMin: 8 * 1024,
  bodyRateWindowMs: 10_000,
  keepAliveTimeoutMs: 65_000,
  readerStallMs: 60_000,
  connectionsMax: 10_000,
  requestsPerConnectionMax: 1000,
  waitingPerConnectionMax: 8,
  checkEveryMs: 1000,
};

export interface ListenerServices {
  /** An id for a request without one from the client. */
  newRequestId(): string;
  /** Address of the error pages. */
  accountUrl(): string;
  /** Whether clients use https; a proxy terminates TLS. Browsers are then told to use nothing else (RFC 6797 §7.2). */
  isHttps(): boolean;
  /** Additional headers of a refusal, if the head of its request could be read. */
  refusalHeaders?(request: IncomingMessage): Readonly<Record<string, string>>;
  /** Called for each refusal by the listener itself. */
  refused?(error: ApiError, publicId: string, method: string): void;
}

/** Control of a handler over the connection of its request. */
export interface ListenerConnection {
  /**
   * Reads nothing more for up to a second after the answer, as its `Retry-After` asked of the client. A client that retries
   * immediately then waits where it costs nothing; refusing it each time would take CPU from other requests.
   */
  restAfterAnswer(): void;
  /**
   * Sets how filler is written into the answer once its head is sent. The listener uses it to find out whether a half-closed client
   * is still there; without it only the answer's own bytes can tell.
   */
  fillWith(write: () => void): void;
}

/** Answers one request. Its head has been checked, and no other request of its connection runs. */
export type Handler = (request: IncomingMessage, response: ServerResponse, connection: ListenerConnection) => void;

/**
 * The HTTP server of both hosts, with every guard on: limits of time, size and count, one running request per connection, no
 * request whose framing is in doubt, and no answer without the envelope (reliability C1 to C10, §3.3, I9). The caller listens and
 * closes.
 *
 * A client that half-closes the connection after its request gets its answer; one that closes it has left: its running request is
 * aborted (C5, `half-close.ts`).
 */
export function createListener(handler: Handler, services: ListenerServices, limits: ListenerLimits): Server {
  const listener: Listener = { handler, services, limits };
  const connections = new Map<Duplex, Connection>();
  let checks: NodeJS.Timeout | undefined;
  const checkAll = (): void => {
    const nowMs = performance.now();
    for (const connection of connections.values()) check(connection, nowMs, listener);
    if (connections.size > 0) return;
    clearInterval(checks);
    checks = undefined;
  };
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const connection = connections.get(request.socket);
    if (connection !== undefined) take(connection, { request, response }, listener);
  };
  const server = createServer(
    {
      headersTimeout: limits.headersTimeoutMs,
      requestTimeout: limits.bodyTimeoutMs,
      connectionsCheckingInterval: limits.checkEveryMs,
      keepAliveTimeout: limits.keepAliveTimeoutMs,
      maxHeaderSize: 16_384,
      // `checkHead` refuses it, in the envelope; Node's own answer has none.
      requireHostHeader: false,
    },
    onRequest,
  );
  // Not in Node's types: a FIN after the requests does not end the answers.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.maxConnections = limits.connectionsMax;
  // `checkHead` refuses more headers than allowed; Node's own cap would drop the excess silently (C8).
  server.maxHeadersCount = 0;
  // Without these Node answers 100 before the key has been checked, and a 417 without an envelope (C9).
  server.on('checkContinue', onRequest).on('checkExpectation', onRequest);
  server.on('connection', (socket) => {
    const connection = new Connection(socket);
    connections.set(socket, connection);
    checks ??= setInterval(checkAll, limits.checkEveryMs).unref();
    socket.on('end', () => halfClose(connection));
    socket.on('close', () => {
      connections.delete(socket);
      clearTimeout(connection.restTimer);
      connection.stopProbing?.();
    });
  });
  server.on('clientError', (error: Error & { readonly code?: string; readonly reason?: string }, socket) => {
    const connection = connections.get(socket);
    const isOurs = error.code === 'ERR_HTTP_REQUEST_TIMEOUT' || error.code?.startsWith('HPE_') === true;
    if (connection === undefined || !isOurs) socket.destroy();
    // Nothing after `Connection: close` is a request (RFC 9112 §9.6); the answer that says so is on its way.
    else if (error.code === 'HPE_CLOSED_CONNECTION' && !connection.isRefused) ignoreInput(connection);
    else refuse(connection, errorOfParser(error), listener);
  });
  server.on('connect', (request, socket) => {
    socket.on('error', () => socket.destroy());
    const connection = connections.get(socket);
    if (connection === undefined || connection.current !== undefined) socket.destroy();
    else refuse(connection, noTunnel(), listener, request);
  });
  return server;
}

interface Listener {
  readonly handler: Handler;
  readonly services: ListenerServices;
  readonly limits: ListenerLimits;
}

interface Turn {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

class Connection implements ListenerConnection {
  readonly socket: Socket;
  /** The running request, whose answer is incomplete or still being sent. */
  current: Turn | undefined;
  /** Whole requests that came before their turn (C6). */
  waiting: Turn[] = [];
  /** The request whose head came last. Its body may still arrive, even after its answer. */
  receiving: IncomingMessage | undefined;
  rate: BodyRate | undefined;
  requests = 0;
  ignored = 0;
  /** The pending answers are the last; later requests are not started. */
  isClosing = false;
  isRefused = false;
  isStallTimed = false;
  isToRest = false;
  restTimer: NodeJS.Timeout | undefined;
  fill: (() => void) | undefined;
  stopProbing: (() => void) | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  restAfterAnswer(): void {
    this.isToRest = true;
  }

  fillWith(write: () => void): void {
    this.fill = write;
  }
}

/**
 * Node starts the handlers of all requests in one packet. Here each waits for the answer before it. Reading continues meanwhile,
 * because that is how a client's departure is noticed; so only a little may wait, and the rest is not started: the answer before it
 * says that the connection closes, and RFC 9112 §9.3.2 has the client send it again.
 */
function take(connection: Connection, turn: Turn, listener: Listener): void {
  if (connection.isRefused) return;
  const { waiting } = connection;
  connection.receiving = turn.request;
  if (!connection.isClosing && connection.current === undefined && waiting.length === 0) {
    begin(connection, turn, listener);
    return;
  }
  const { waitingPerConnectionMax } = listener.limits;
  if (waiting.length + connection.ignored >= waitingPerConnectionMax) {
    // Node keeps what it has parsed until the connection closes, so it is closed now (I8).
    refuse(connection, new ApiError('http_400', 'Too many pipelined requests on one connection.'), listener);
  } else if (connection.isClosing || !isSmall(turn.request)) {
    closeAfterLast(connection);
    connection.ignored++;
    turn.request.resume();
  } else {
    waiting.push(turn);
  }
}

/** Less than Node reads ahead of a handler, so that a waiting body never stops the reading. */
const waitingBodyBytesMax = 8 * 1024;

function isSmall({ headers }: IncomingMessage): boolean {
  const { 'content-length': length = '0', 'transfer-encoding': coding } = headers;
  return coding === undefined && Number(length) <= waitingBodyBytesMax;
}

function closeAfterLast(connection: Connection): void {
  connection.isClosing = true;
  const last = connection.waiting.at(-1) ?? connection.current;
  if (last !== undefined && !last.response.headersSent) last.response.shouldKeepAlive = false;
}

/** A year, and for this name only: its subdomains are not ours. */
const onlyHttps = ['strict-transport-security', 'max-age=31536000'] as const;

function begin(connection: Connection, turn: Turn, listener: Listener): void {
  const { request, response } = turn;
  connection.current = turn;
  connection.requests++;
  if (connection.isStallTimed) {
    connection.isStallTimed = false;
    connection.socket.setTimeout(0);
  }
  // Node drops the rest of a packet after an upgrade request, which we do not accept.
  if (connection.requests >= listener.limits.requestsPerConnectionMax || request.headers.upgrade !== undefined) {
    connection.isClosing = true;
    response.shouldKeepAlive = false;
  }
  response.on('close', () => end(connection, listener));
  const error = checkHead(request);
  if (listener.services.isHttps()) response.setHeader(...onlyHttps);
  if (error === undefined) listener.handler(request, response, connection);
  else refuse(connection, error, listener, request);
}

/** Called when the answer has been passed to the system, or never will be. */
function end(connection: Connection, listener: Listener): void {
  const { socket } = connection;
  connection.current = undefined;
  connection.fill = undefined;
  connection.rate = undefined;
  if (connection.receiving?.complete === true) connection.receiving = undefined;
  if (connection.waiting.length > 0) process.nextTick(beginNext, connection, listener);
  else if (connection.isClosing && !connection.isRefused) socket.destroySoon();
  // After Node has released the request, because it then resumes reading.
  else if (connection.isToRest) setImmediate(rest, connection);
}

/** Called when the client has half-closed: answers its requests, and finds out whether it is still reading. */
function halfClose(connection: Connection): void {
  const { socket, current } = connection;
  // Node has closed an idle connection, and has refused an incomplete request.
  if (connection.isRefused || current === undefined) return;
  closeAfterLast(connection);
  // HTTP/1.0 has no interim answer to probe with.
  if (current.request.httpVersion === '1.0' && !current.response.writableEnded) socket.destroy();
  else probeFrom(connection);
}

function probeFrom(connection: Connection): void {
  connection.stopProbing = probe(connection.socket, () => {
    const { current, fill } = connection;
    if (current === undefined || current.response.writableEnded) return;
    if (current.response.headersSent) fill?.();
    else current.response.writeContinue();
  });
}

const restMs = 1000;

function rest(connection: Connection): void {
  const { socket } = connection;
  connection.isToRest = false;
  if (connection.current !== undefined || connection.receiving?.complete === false || socket.destroyed) return;
  // A listener takes the socket back from the parser, which would read past `pause`; the parser goes on through it.
  socket.on('data', ignore).off('data', ignore);
  socket.pause();
  connection.restTimer = setTimeout(() => socket.resume(), restMs);
}

const ignore = (): void => undefined;

/** Runs when the other listeners to the end of the previous answer have been called. */
function beginNext(connection: Connection, listener: Listener): void {
  // Not when the previous answer has said that the connection closes, or the client has left.
  if (!connection.socket.writable) return;
  const next = connection.waiting.shift();
  if (next !== undefined) begin(connection, next, listener);
}

/** Answers in place of the handlers and closes; or only closes, where an answer would be read as another request's. */
function refuse(connection: Connection, error: ApiError, listener: Listener, request?: IncomingMessage): void {
  // From the same packet, or from one that came before the client has read its answer.
  if (connection.isRefused) return;
  connection.isRefused = true;
  connection.waiting = [];
  const { socket, current, receiving } = connection;
  const isAnswering = current !== undefined && current.response.headersSent && !current.response.writableEnded;
  const isAnswered =
    receiving?.complete === false &&
    (current === undefined || (current.request === receiving && current.response.writableEnded));
  const hasSaidClose = current?.response.writableEnded === true && !current.response.shouldKeepAlive;
  if (!socket.writable || isAnswering) {
    socket.destroy();
    return;
  }
  // Not in the middle of a packet that the parser reads.
  process.nextTick(discardInput, socket, discardedBytesMax);
  if (isAnswered || hasSaidClose) {
    socket.destroySoon();
    return;
  }
  const own = listener.services.newRequestId();
  const ids = requestIds(request?.headers['x-request-id'], own);
  const accountUrl = listener.services.accountUrl();
  const refused = request ?? receiving;
  const further = refused === undefined ? undefined : listener.services.refusalHeaders?.(refused);
  const hasBody = request?.method !== 'HEAD';
  const bytes = refusalBytes(error, { publicId: ids.publicId, accountUrl, hasBody, further });
  const kept = keptIds(ids, request?.headers['service-zdr'], own);
  listener.services.refused?.(error, kept.publicId, request?.method ?? '');
  // A running handler notices immediately, because its connection closes.
  if (current !== undefined && current.request !== request) socket.end(bytes, () => socket.destroy());
  else {
    socket.end(bytes);
    linger(socket);
  }
}

const lingerMs = 2000;
const discardedBytesMax = 1024 * 1024;

/**
 * Closes when the client has, or soon: closing a socket with unread bytes resets the connection, and the client may lose the
 * answer (RFC 9112 §9.6).
 */
function linger(socket: Socket): void {
  const timer = setTimeout(() => socket.destroy(), lingerMs);
  timer.unref();
  socket.on('close', () => clearTimeout(timer));
  socket.on('end', () => socket.destroy());
}

/** Stops the parser: each request that it found would cost as much as an answered one. */
function discardInput(socket: Socket, bytesMax: number): void {
  if (socket.destroyed) return;
  let bytes = 0;
  socket.removeAllListeners('data');
  socket.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > bytesMax) socket.destroy();
  });
  socket.resume();
}

/** Running requests continue; only the end of the connection still matters. */
function ignoreInput(connection: Connection): void {
  const { socket } = connection;
  connection.isClosing = true;
  discardInput(socket, Infinity);
  socket.on('end', () => socket.destroy());
}

/** Checks the time limits that Node does not have. */
function check(connection: Connection, nowMs: number, listener: Listener): void {
  const { current, receiving, socket } = connection;
  // Node would keep the last bytes of an answer forever (C3).
  if (current?.response.writableEnded === true && !connection.isStallTimed) {
    connection.isStallTimed = true;
    socket.setTimeout(listener.limits.readerStallMs);
  }
  if (connection.isRefused) return;
  // A request that waits for its turn has no time limit.
  if (receiving === undefined || (current !== undefined && current.request !== receiving)) return;
  if (receiving.complete) {
    // Idle connections keep no state.
    if (current === undefined) connection.receiving = connection.rate = undefined;
    return;
  }
  if (connection.rate?.request !== receiving) connection.rate = new BodyRate(receiving, listener.limits, nowMs);
  else if (connection.rate.isTooSlow(nowMs)) {
    refuse(connection, new ApiError('http_408', 'The body arrives too slowly.'), listener);
  }
}

function errorOfParser({ code, reason }: { readonly code?: string; readonly reason?: string }): ApiError {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError('http_431', 'The headers of the request are too large.');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ApiError('http_408', 'The request did not arrive in time.');
    // The HTTP/2 preface.
    case 'HPE_PAUSED_H2_UPGRADE':
      return new ApiError('http_505', 'Speak HTTP/1.1.');
    case 'HPE_INVALID_VERSION':
      if (reason === 'Invalid HTTP version') return new ApiError('http_505', 'Speak HTTP/1.1.');
      break;
    case undefined:
    default:
  }
  return new ApiError('http_400', 'The request is not well-formed HTTP.');
}

const noTunnel = (): ApiError =>
  new ApiError('http_405', 'This server is not a proxy: send the path of the request only.', {
    headers: { allow: 'GET, HEAD, POST' },
  });
