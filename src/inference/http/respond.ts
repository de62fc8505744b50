import type { Deadline } from '../../platform/deadlines.ts';

import { chat } from '../dialects/chat/chat.ts';
import { keepAliveComment } from '../dialects/dialect.ts';
import type { Dialect, ResponseHead, StreamEncoder } from '../dialects/dialect.ts';
import { errorBody, toApiError } from '../../platform/errors.ts';
import type { ErrorBody } from '../../platform/errors.ts';
import { Fold } from '../../generation/fold.ts';
import { pageHeaders } from '../../platform/html.ts';
import { warningHeader } from '../../platform/warnings.ts';
import { isClosing } from '../pipeline/meter.ts';
import type { Order } from '../pipeline/order.ts';
import type { Emit } from '../pipeline/recording.ts';
import type { Wait } from '../pipeline/wait-queue.ts';
import { EventWriter } from './event-writer.ts';
import type { Exchange } from './exchange.ts';
import { runOrder } from './run-order.ts';
import type { Generating } from './run-order.ts';

/** Sends a whole answer: nothing is sent before the charge is durable. Failures are ordinary HTTP errors. */
export async function respondWhole(order: Order, head: ResponseHead, exchange: Generating): Promise<void> {
  const fold = new Fold();
  await runOrder(order, head, exchange, (batch) => {
    fold.read(batch);
    return true;
  });
  sendJson(exchange, 200, order.format.encodeResponse(fold.generation(), head));
}

/** The texts of a stream. */
export interface EventSource {
  /** Hands the texts to `emit`, except for the last, which it resolves to. */
  run(emit: Emit): Promise<string>;
  /** The text to send instead when it rejects. */
  error(error: ErrorBody): string;
  /** Notes for the head whose answer this is; false: it is not known yet, and the head waits for it. */
  origin?(): boolean;
}

export function respondEvents(order: Order, head: ResponseHead, exchange: Generating): Promise<void> {
  const { format } = order;
  // Opened with the first batch: until then another model may take over, and the head names the model.
  let encoder: StreamEncoder | undefined;
  const events: EventSource = {
    run: async (emit) => {
      let closing = '';
      await runOrder(order, head, exchange, (batch) => {
        const text = (encoder ??= format.openStream(head)).batch(batch);
        if (!isClosing(batch)) return emit(text);
        // The end follows in the same turn, so both are one write and one packet.
        closing = text;
        return true;
      });
      return closing + (encoder ??= format.openStream(head)).end();
    },
    error: (error) => (encoder ??= format.openStream(head)).error(error),
  };
  return respondStream(exchange, events);
}

/**
 * Sends a stream (specification part 6). Its head is sent with the first batch, so that a failure before the first token is an ordinary
 * HTTP error with its own status (contracts §1.0); or after `primeMs` without a batch, with a comment. Throws only before its head is sent;
 * later failures become its last event.
 */
export async function respondStream(exchange: Exchange, events: EventSource): Promise<void> {
  const { response, host } = exchange;
  const { primeMs, keepAliveMs, readerStallMs } = exchange.lease.runtimeConfig.limits;
  let writer: EventWriter | undefined;
  let writtenMs = 0;
  const keepAliveLimit = host.deadlines.of(keepAliveMs);
  const open = (): EventWriter => {
    response.writeHead(200, headersOf(exchange, 'text/event-stream; charset=utf-8', { 'x-accel-buffering': 'no' }));
    const opened = new EventWriter(response);
    writer = opened;
    exchange.connection.fillWith(() => void opened.write(keepAliveComment));
    silence.end();
    silence = keepAliveLimit.begin(keepAlive);
    return opened;
  };
  /** Writes a comment after a silence. Compares the time of the last write, because rescheduling a timer costs more than storing a time. */
  const keepAlive = (): void => {
    if (performance.now() - writtenMs >= keepAliveMs) {
      writer?.write(commentOf(exchange));
      writtenMs = performance.now();
    }
    silence = keepAliveLimit.begin(keepAlive, Math.max(1, keepAliveMs - (performance.now() - writtenMs)));
  };
  const primeLimit = host.deadlines.of(primeMs);
  const prime = (): void => {
    if (events.origin?.() === false) {
      silence = primeLimit.begin(prime);
      return;
    }
    open().write(commentOf(exchange));
    writtenMs = performance.now();
  };
  let silence: Deadline = primeLimit.begin(prime);
  try {
    const last = await events.run((text) => {
      const out = writer ?? open();
      // Events that a format omits, such as reasoning, are silence on the connection.
      if (text !== '') writtenMs = performance.now();
      return text === '' || out.write(text) || drained(exchange, out, readerStallMs);
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
    if (!response.destroyed)
      response.end(events.error(errorBody(reported, exchange.repeatOf ?? exchange.sentId, host.options.accountUrl)));
  } finally {
    silence.end();
  }
}

/** While the request waits for a slot, the comment says how long that is expected to take, or that the model is being loaded for it. */
function commentOf({ waits }: Exchange): string {
  const wait = waits?.at(-1);
  if (wait?.isOver !== false) return keepAliveComment;
  const { ahead, expectedMs, waitedMs, isForStart } = wait;
  const why = isForStart ? ' until the model is loaded' : '';
  const left = expectedMs === undefined ? '' : `, ${Math.max(1, Math.ceil((expectedMs - waitedMs) / 1_000))} s left`;
  return `: waiting for ${Math.round(waitedMs / 1_000)} s${why}, ${ahead.tiers + ahead.own + ahead.others} were in front${left}\n\n`;
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

/** Sends an error before the head was sent (specification §7.1). */
export function sendError(exchange: Exchange, error: unknown, dialect: Pick<Dialect, 'encodeError'> = chat): void {
  const reported = toApiError(error);
  exchange.error = reported;
  // A refusal states itself which limit was hit; any other error says nothing about limits.
  exchange.admitted = undefined;
  const body = dialect.encodeError(errorBody(reported, exchange.sentId, exchange.host.options.accountUrl));
  // §7.5: every 429 has a retry time; without one some clients do not retry at all.
  const seconds = reported.retryAfterSeconds ?? (reported.status === 429 ? 1 : undefined);
  const retryAfter = seconds === undefined ? {} : { 'retry-after': String(seconds) };
  const reset = reported.status === 429 ? { 'ratelimit-remaining': '0', 'ratelimit-reset': String(seconds) } : {};
  // Claude Code retries a 401 for three minutes before it shows it, unless the answer says not to.
  const noRetry = reported.status === 401 ? { 'x-should-retry': 'false' } : {};
  sendJson(exchange, reported.status, body, { ...reset, ...reported.headers, ...retryAfter, ...noRetry });
}

/** A wait for a slot that is worth a header. */
const waitMsShown = 1_000;

function addWait(waits: readonly Wait[], list: string[]): void {
  const waitedMs = waits.reduce((sum, wait) => sum + wait.waitedMs, 0);
  if (waitedMs >= waitMsShown) list.push('service-queue-ms', String(waitedMs));
}

export function sendJson(
  exchange: Exchange,
  status: number,
  body: string,
  headers: Readonly<Record<string, string>> = nothing,
): void {
  const { response } = exchange;
  if (response.destroyed || response.headersSent) return;
  const list = headersOf(exchange, 'application/json', headers);
  list.push('content-length', String(Buffer.byteLength(body)));
  response.writeHead(status, list);
  response.end(body);
}

/** Sends HTML, for a browser. */
export function sendPage(exchange: Exchange, body: string): void {
  const { response } = exchange;
  if (response.destroyed || response.headersSent) return;
  const { 'content-type': type, ...guards } = pageHeaders;
  response.writeHead(200, [...headersOf(exchange, type, guards), 'content-length', String(Buffer.byteLength(body))]);
  response.end(body);
}

/** The client has the current version: sends no body and no content length. */
export function sendNotModified({ response, sentId, cors }: Exchange, headers: Readonly<Record<string, string>>): void {
  if (response.destroyed || response.headersSent) return;
  response.writeHead(304, {
    ...cors,
    'cache-control': 'no-cache',
    'x-request-id': sentId,
    'request-id': sentId,
    ...headers,
  });
  response.end();
}

/** Contracts §1.0 and §0.16: both names of the request id, because SDKs read different ones. */
export function headersOf(
  exchange: Exchange,
  contentType: string,
  further: Readonly<Record<string, string>> = nothing,
): string[] {
  const { repeatOf, fallbackFrom, sentId, cors, admitted, waits } = exchange;
  const id = repeatOf ?? sentId;
  const list = ['content-type', contentType, 'cache-control', 'no-cache', 'x-request-id', id, 'request-id', id];
  add(cors, list);
  if (admitted !== undefined) add(admitted.headers(), list);
  if (repeatOf !== undefined) list.push('idempotent-replayed', 'true');
  if (fallbackFrom !== undefined) list.push('service-fallback-from', fallbackFrom);
  if (waits !== undefined) addWait(waits, list);
  const { warnings } = exchange.order ?? exchange;
  if (warnings !== undefined) list.push('x-tokenhouse-warning', warningHeader(warnings));
  add(further, list);
  return list;
}

const nothing: Readonly<Record<string, string>> = {};

function add(headers: Readonly<Record<string, string>>, list: string[]): void {
  for (const name in headers) list.push(name, headers[name]!);
}
