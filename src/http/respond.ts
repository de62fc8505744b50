import type { ServerResponse } from 'node:http';

import { chat } from '../dialects/chat/chat.ts';
import { keepAliveComment } from '../dialects/dialect.ts';
import type { Dialect, ResponseHead } from '../dialects/dialect.ts';
import { errorBody, toApiError } from '../errors.ts';
import type { ApiError } from '../errors.ts';
import type { GenerationBatch, GenerationStream } from '../generation/event.ts';
import { Fold } from '../generation/fold.ts';
import { prime } from '../pipeline/prime.ts';
import type { RunningRequest } from '../pipeline/running.ts';

export interface RespondOptions {
  /** Where the pages of error codes are. */
  readonly accountUrl: string;
  /** How long the head of a stream waits for the first token (contracts §1.0). */
  readonly primeMs: number;
  /** Silence after which a stream gets a comment. */
  readonly keepAliveMs: number;
  /** How long a client may stop reading before its stream is cut (reliability C3). */
  readonly readerStallMs: number;
}

/** One answer under way. */
export interface Exchange {
  readonly response: ServerResponse;
  readonly publicId: string;
  readonly running: RunningRequest;
  /** Why the answer is an error, for the log; set by `sendError` and `respondStream`. */
  error: ApiError | undefined;
  /** Its line is in the log, because it had a hold and its money is settled. */
  isLogged: boolean;
}

/** A whole answer: nothing goes out before the charge is durable. Failures are ordinary HTTP errors. */
export async function respondWhole(
  exchange: Exchange,
  dialect: Dialect,
  head: ResponseHead,
  stream: GenerationStream,
): Promise<void> {
  const fold = new Fold();
  for await (const batch of stream) fold.read(batch);
  sendJson(exchange, 200, dialect.encodeResponse(fold.generation(), head));
}

/** A stream (specification part 6). Throws only before its head is out; later failures are its last event. */
export async function respondStream(
  exchange: Exchange,
  dialect: Dialect,
  head: ResponseHead,
  stream: GenerationStream,
  options: RespondOptions,
): Promise<void> {
  const primed = await prime(stream, options.primeMs);
  const { response, running } = exchange;
  const { rest } = primed;
  const encoder = dialect.openStream(head);
  response.writeHead(200, headersOf(exchange, 'text/event-stream; charset=utf-8', { 'x-accel-buffering': 'no' }));
  const keepAlive = setTimeout(() => {
    response.write(keepAliveComment);
    keepAlive.refresh();
  }, options.keepAliveMs);
  try {
    if (primed.state === 'waiting') response.write(keepAliveComment);
    let next: IteratorResult<GenerationBatch> = await primed.first;
    while (next.done !== true) {
      const text = encoder.batch(next.value);
      if (text !== '' && !response.write(text) && !(await drained(exchange, options.readerStallMs))) return;
      keepAlive.refresh();
      next = await rest.next();
    }
    response.end(encoder.end());
  } catch (error) {
    const told = toApiError(error);
    exchange.error = told;
    // §7.9, contracts §1.0: the error is the stream's last event.
    if (!response.destroyed) response.end(encoder.error(errorBody(told, exchange.publicId, options.accountUrl)));
  } finally {
    clearTimeout(keepAlive);
    // Ends a stream that was not read to its end. Its signal is aborted first, because `return` waits for a pending `next`.
    if (!response.writableEnded) running.cancel('client-left');
    await rest.return?.();
  }
}

/** Waits until the client reads again; false when it does not, or is gone. */
function drained(exchange: Exchange, stallMs: number): Promise<boolean> {
  const { response, running } = exchange;
  if (response.destroyed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const settle = (goesOn: boolean): void => {
      clearTimeout(timer);
      response.off('drain', onDrain).off('close', onClose);
      running.signal.removeEventListener('abort', onAbort);
      resolve(goesOn);
    };
    const onDrain = (): void => settle(true);
    const onClose = (): void => settle(false);
    // A deadline, a revoked key or a stop ends the wait too; the stream then tells how.
    const onAbort = (): void => settle(true);
    const timer = setTimeout(() => {
      running.cancel('reader-stalled');
      settle(false);
      response.destroy();
    }, stallMs);
    response.on('drain', onDrain).on('close', onClose);
    running.signal.addEventListener('abort', onAbort, { once: true });
  });
}

/** An error before the head is out (specification §7.1). */
export function sendError(exchange: Exchange, error: unknown, accountUrl: string, dialect: Dialect = chat): void {
  const told = toApiError(error);
  exchange.error = told;
  const body = dialect.encodeError(errorBody(told, exchange.publicId, accountUrl));
  const retryAfter = told.retryAfterSeconds === undefined ? {} : { 'retry-after': String(told.retryAfterSeconds) };
  sendJson(exchange, told.status, body, { ...told.headers, ...retryAfter });
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

/** Contracts §1.0 and §0.16: both names of the request id, because the SDKs read different ones. */
function headersOf(exchange: Exchange, contentType: string, further: Readonly<Record<string, string>> = {}): string[] {
  return [
    'content-type',
    contentType,
    'cache-control',
    'no-cache',
    'x-request-id',
    exchange.publicId,
    'request-id',
    exchange.publicId,
    ...Object.entries(further).flat(),
  ];
}
