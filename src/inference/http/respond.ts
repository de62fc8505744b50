import type { ServerResponse } from 'node:http';

import type { Deadline, DeadlinesByLength } from '../../platform/deadlines.ts';

import type { Receipt } from '../../billing/hold.ts';
import { chat } from '../dialects/chat/chat.ts';
import { keepAliveComment } from '../dialects/dialect.ts';
import type { AnswerFormat, Dialect, ResponseHead, StreamEncoder } from '../dialects/dialect.ts';
import type { ListenerConnection } from '../../platform/http/listener.ts';
import { errorBody, toApiError } from '../../platform/errors.ts';
import type { ApiError, ErrorBody } from '../../platform/errors.ts';
import { Fold } from '../../generation/fold.ts';
import { pageHeaders } from '../../platform/html.ts';
import type { Admitted } from '../../billing/rate-limits/rate-limits.ts';
import type { Emit } from '../pipeline/recording.ts';
import type { Deliver } from '../pipeline/run.ts';
import type { ActiveRequest } from '../pipeline/active-requests.ts';
import { EventWriter } from './event-writer.ts';
import type { RequestLimits } from '../pipeline/runtime-config.ts';
import type { RequestTrace } from '../../platform/telemetry/request-trace.ts';

export interface RespondOptions extends Pick<RequestLimits, 'primeMs' | 'keepAliveMs' | 'readerStallMs'> {
  /** Base URL of the pages about error codes. */
  readonly accountUrl: string;
  readonly deadlines: DeadlinesByLength;
}

/** One answer in progress. */
export interface Exchange {
  readonly response: ServerResponse;
  readonly connection: Pick<ListenerConnection, 'fillWith'>;
  readonly publicId: string;
  /** The request's id in the log. */
  keptId: string;
  /** CORS headers: which pages may read the answer. */
  readonly cors: Readonly<Record<string, string>>;
  readonly running: ActiveRequest;
  /** Set when all limits of the account and its key have admitted it. */
  admitted: Admitted | undefined;
  /** Sent instead of its own id: the id of the request whose answer it repeats (`Idempotency-Key`). */
  repeatOf: string | undefined;
  /** The model that was asked for, where another one serves. */
  fallbackFrom: string | undefined;
  /** Why the answer is an error, for the log; set by `sendError` and `respondStream`. */
  error: ApiError | undefined;
  /** Where the request is traced. */
  trace: RequestTrace | undefined;
  /** Set when it had a hold and its money is settled: then its log line has been written. */
  receipt: Receipt | undefined;
  /** When the whole request had arrived, and how long it has waited for engines since; by `performance.now()`. */
  receivedMs: number;
  engineMs: number;
}

/** Runs an answer: hands its batches to `deliver` until it is over, or throws. */
export type Run = (deliver: Deliver) => Promise<void>;

/** A whole answer: nothing goes out before the charge is durable. Failures are ordinary HTTP errors. */
export async function respondWhole(
  exchange: Exchange,
  format: AnswerFormat,
  head: ResponseHead,
  run: Run,
): Promise<void> {
  const fold = new Fold();
  await run((batch) => {
    fold.read(batch);
    return true;
  });
  sendJson(exchange, 200, format.encodeResponse(fold.generation(), head));
}

/** The texts of a stream. */
export interface EventSource {
  /** Hands the texts to `emit`, except for the last, with which it resolves. */
  run(emit: Emit): Promise<string>;
  /** The text to send instead when it rejects. */
  error(error: ErrorBody): string;
}

export function eventsOf(format: AnswerFormat, head: ResponseHead, run: Run): EventSource {
  // Opened with the first batch: until then another model may come to serve, and the head names it.
  let encoder: StreamEncoder | undefined;
  return {
    run: async (emit) => {
      await run((batch) => emit((encoder ??= format.openStream(head)).batch(batch)));
      return (encoder ??= format.openStream(head)).end();
    },
    error: (error) => (encoder ??= format.openStream(head)).error(error),
  };
}

/**
 * A stream (specification part 6). Its head goes out with the first batch, so that a failure before the first token is an
 * ordinary HTTP error with its own status (contracts §1.0), or after `primeMs` without a batch, with a comment. Throws only
 * before its head is out; later failures are its last event.
 */
export async function respondStream(exchange: Exchange, events: EventSource, options: RespondOptions): Promise<void> {
  const { response } = exchange;
  let writer: EventWriter | undefined;
  let writtenMs = 0;
  const keepAliveLimit = options.deadlines.of(options.keepAliveMs);
  const open = (): EventWriter => {
    response.writeHead(200, headersOf(exchange, 'text/event-stream; charset=utf-8', { 'x-accel-buffering': 'no' }));
    const opened = new EventWriter(response);
    writer = opened;
    exchange.connection.fillWith(() => void opened.write(keepAliveComment));
    silence.end();
    silence = keepAliveLimit.begin(keepAlive);
    return opened;
  };
  /** Fills silence. Compares the time of the last write, because rescheduling a timer costs more than storing a time. */
  const keepAlive = (): void => {
    if (performance.now() - writtenMs >= options.keepAliveMs) {
      writer?.write(keepAliveComment);
      writtenMs = performance.now();
    }
    silence = keepAliveLimit.begin(keepAlive, Math.max(1, options.keepAliveMs - (performance.now() - writtenMs)));
  };
  let silence: Deadline = options.deadlines.of(options.primeMs).begin(() => {
    open().write(keepAliveComment);
    writtenMs = performance.now();
  });
  try {
    const last = await events.run((text) => {
      const out = writer ?? open();
      // Events that a format leaves out, such as thinking, are silence on the connection.
      if (text !== '') writtenMs = performance.now();
      return text === '' || out.write(text) || drained(exchange, out, options.readerStallMs);
    });
    if (!response.destroyed) {
      if (writer === undefined) open();
      response.end(last);
    }
  } catch (error) {
    if (writer === undefined) throw error;
    const reported = toApiError(error);
    exchange.error = reported;
    // §7.9, contracts §1.0: the error is the stream's last event.
    if (!response.destroyed) response.end(events.error(errorBody(reported, exchange.publicId, options.accountUrl)));
  } finally {
    silence.end();
  }
}

/** Waits until the client reads again; `false` when it does not, or is gone. */
function drained(exchange: Exchange, { source }: EventWriter, stallMs: number): Promise<boolean> {
  const { response, running } = exchange;
  if (response.destroyed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const settle = (goesOn: boolean): void => {
      clearTimeout(timer);
      source.off('drain', onDrain);
      response.off('close', onClose);
      running.signal.removeEventListener('abort', onAbort);
      resolve(goesOn);
    };
    const onDrain = (): void => settle(true);
    const onClose = (): void => settle(false);
    // A deadline, a revoked key or a stop ends the wait too; the stream then reports it.
    const onAbort = (): void => settle(true);
    const timer = setTimeout(() => {
      running.cancel('reader-stalled');
      settle(false);
      response.destroy();
    }, stallMs);
    source.on('drain', onDrain);
    response.on('close', onClose);
    running.signal.addEventListener('abort', onAbort, { once: true });
  });
}

/** An error before the head is out (specification §7.1). */
export function sendError(
  exchange: Exchange,
  error: unknown,
  accountUrl: string,
  dialect: Pick<Dialect, 'encodeError'> = chat,
): void {
  const reported = toApiError(error);
  exchange.error = reported;
  // A refusal itself says which limit it met; any other error says nothing about limits.
  exchange.admitted = undefined;
  const body = dialect.encodeError(errorBody(reported, exchange.publicId, accountUrl));
  // §7.5: every 429 says when to come back; without that some clients do not retry at all.
  const seconds = reported.retryAfterSeconds ?? (reported.status === 429 ? 1 : undefined);
  const retryAfter = seconds === undefined ? {} : { 'retry-after': String(seconds) };
  const reset = reported.status === 429 ? { 'ratelimit-remaining': '0', 'ratelimit-reset': String(seconds) } : {};
  // Claude Code tries a 401 for three minutes before it shows it, unless it is told that this does not help.
  const noRetry = reported.status === 401 ? { 'x-should-retry': 'false' } : {};
  sendJson(exchange, reported.status, body, { ...reset, ...reported.headers, ...retryAfter, ...noRetry });
}

export function sendJson(
  exchange: Exchange,
  status: number,
  body: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  const { response } = exchange;
  if (response.destroyed || response.headersSent) return;
  response.writeHead(status, [
    ...headersOf(exchange, 'application/json', headers),
    'content-length',
    String(Buffer.byteLength(body)),
  ]);
  response.end(body);
}

/** HTML, for a browser. */
export function sendPage(exchange: Exchange, body: string): void {
  const { response } = exchange;
  if (response.destroyed || response.headersSent) return;
  const { 'content-type': type, ...guards } = pageHeaders;
  response.writeHead(200, [...headersOf(exchange, type, guards), 'content-length', String(Buffer.byteLength(body))]);
  response.end(body);
}

/** The client has the current version: no body and no content length. */
export function sendNotModified(
  { response, publicId, cors }: Exchange,
  headers: Readonly<Record<string, string>>,
): void {
  if (response.destroyed || response.headersSent) return;
  response.writeHead(304, {
    ...cors,
    'cache-control': 'no-cache',
    'x-request-id': publicId,
    'request-id': publicId,
    ...headers,
  });
  response.end();
}

/** Contracts §1.0 and §0.16: both names of the request id, because the SDKs read different ones. */
export function headersOf(
  exchange: Exchange,
  contentType: string,
  further: Readonly<Record<string, string>> = {},
): string[] {
  const { repeatOf, fallbackFrom, publicId, cors } = exchange;
  const id = repeatOf ?? publicId;
  return [
    'content-type',
    contentType,
    'cache-control',
    'no-cache',
    'x-request-id',
    id,
    'request-id',
    id,
    ...Object.entries(cors).flat(),
    ...(exchange.admitted === undefined ? [] : Object.entries(exchange.admitted.headers()).flat()),
    ...(repeatOf === undefined ? [] : ['idempotent-replayed', 'true']),
    ...(fallbackFrom === undefined ? [] : ['service-fallback-from', fallbackFrom]),
    ...Object.entries(further).flat(),
  ];
}
