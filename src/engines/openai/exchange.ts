import type { IncomingHttpHeaders } from 'node:http';
import { errors, type Dispatcher } from 'undici';
import { ApiError } from '../../errors.ts';
import type { GenerationBatch, GenerationEvent } from '../../generation/event.ts';
import { InBandError, type ChunkDecoder } from './decode.ts';
import { answerError, connectError, httpError, timeoutError, type UpstreamAnswer } from './failures.ts';
import type { Flavor } from './flavors.ts';
import { SseReader, StreamFault } from './sse.ts';

/** How an exchange left its connection and its backend, told once, when the connection is free or gone. */
export type ExchangeOutcome = 'answered' | 'connect-failed' | 'abandoned';

export interface ExchangeOptions {
  readonly model: string;
  readonly flavor: Flavor;
  readonly path: string;
  readonly headers: readonly string[];
  readonly body: string;
  readonly decoder: ChunkDecoder;
  readonly signal: AbortSignal;
  readonly firstTokenTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly dispatch: (options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler) => void;
  /** Whether a socket that was used before may still be in the pool, so that a reset can mean "it was stale". */
  readonly mayBeStale: () => boolean;
  /** The first byte of an answer: the backend is there. */
  readonly onAlive: () => void;
  readonly onAnswerError: (answer: UpstreamAnswer) => void;
  readonly onReleased: (outcome: ExchangeOutcome) => void;
}

/** Bytes that may wait for the reader; then the socket is paused. A read of the socket is at most 64 KB. */
const bufferBytesMax = 64 * 1024;
const errorBodyBytesMax = 64 * 1024;
const wholeBodyBytesMax = 32 * 1024 * 1024;
/** How long a connection gets to end its body after the answer is complete, so that it can be used again. */
const drainMs = 500;

type Body = 'none' | 'events' | 'whole' | 'error';

interface Waiting {
  readonly resolve: (result: IteratorResult<GenerationBatch, undefined>) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * One request to a backend and the stream of its answer. Pulled: bytes are buffered up to a bound and decoded when the
 * reader asks, all that came together as one batch. A pending read rejects at once when the signal aborts, and the
 * socket is destroyed with it, also while nobody reads.
 *
 * States: running → over (`#end`), after which `next` answers done. The connection's own life ends in `#release`.
 */
export class Exchange implements AsyncIterator<GenerationBatch, undefined>, Dispatcher.DispatchHandler {
  readonly #options: ExchangeOptions;
  readonly #decoder: ChunkDecoder;
  readonly #sse: SseReader;
  #controller: Dispatcher.DispatchController | undefined;
  #waiting: Waiting | undefined;
  #isOver = false;
  /** An error that came while nobody was reading. */
  #failure: { readonly error: unknown } | undefined;
  #isReleased = false;
  #hasFirstBatch = false;
  #isFlushQueued = false;

  #body: Body = 'none';
  #status = 0;
  #retryAfter: string | undefined;
  #hasBytes = false;
  #chunks: Buffer[] = [];
  #bufferedBytes = 0;
  /** What the reader is told after the events that came before it. */
  #fault: { readonly error: unknown } | undefined;
  /** The connection has nothing more to give: `error` is why, when it broke. */
  #ended: { readonly error: Error | undefined } | undefined;
  #hasRetried = false;
  #lastByteAtMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #drainTimer: NodeJS.Timeout | undefined;
  readonly #onAbort = (): void => this.#fail(this.#options.signal.reason);

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.#decoder = options.decoder;
    this.#sse = new SseReader((data, name) => this.#decoder.event(data, name));
    options.signal.addEventListener('abort', this.#onAbort, { once: true });
    // Absolute: 1xx heads, comments and role chunks do not move it (reliability U2, U3).
    this.#timer = setTimeout(() => this.#fail(timeoutError(options.model)), options.firstTokenTimeoutMs);
    this.#send();
  }

  next(): Promise<IteratorResult<GenerationBatch, undefined>> {
    if (this.#waiting !== undefined) return Promise.reject(new Error('a read of the stream is already pending'));
    try {
      const result = this.#take();
      if (result !== undefined) return Promise.resolve(result);
    } catch (error) {
      return Promise.reject(error as Error);
    }
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      // Resuming the socket can have brought bytes before there was anybody to wake.
      if (this.#chunks.length > 0 || this.#ended !== undefined) this.#wake();
    });
  }

  return(): Promise<IteratorResult<GenerationBatch, undefined>> {
    this.#end();
    this.#destroy();
    this.#waiting?.resolve({ done: true, value: undefined });
    this.#waiting = undefined;
    return Promise.resolve({ done: true, value: undefined });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // It ended while the connection was being opened.
    if (this.#isOver) controller.abort(new Error('the request is over'));
  }

  onResponseStarted(): void {
    if (this.#hasBytes) return;
    this.#hasBytes = true;
    this.#options.onAlive();
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    this.onResponseStarted();
    if (status < 200) return;
    this.#status = status;
    this.#lastByteAtMs = performance.now();
    this.#retryAfter = first(headers['retry-after']);
    this.#body = bodyKind(status, headers);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#isOver) {
      // What follows a complete answer is read away for a moment; more than its end is not waited for.
      this.#bufferedBytes += chunk.length;
      if (this.#bufferedBytes > bufferBytesMax) this.#destroy();
      return;
    }
    this.#lastByteAtMs = performance.now();
    this.#chunks.push(chunk);
    this.#bufferedBytes += chunk.length;
    if (this.#body === 'events') {
      if (this.#bufferedBytes >= bufferBytesMax) controller.pause();
    } else if (this.#bufferedBytes > (this.#body === 'whole' ? wholeBodyBytesMax : errorBodyBytesMax)) {
      this.#ended = { error: undefined };
      this.#controller?.abort(new Error('the body is too long'));
    }
    this.#wake();
  }

  onResponseEnd(): void {
    this.#ended ??= { error: undefined };
    this.#wake();
    this.#release('answered');
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    // `#controller` is unset when the connection was never opened: then nothing was sent.
    const wasOpened = this.#controller !== undefined;
    if (!this.#isOver && this.#isStale(error, wasOpened)) {
      this.#hasRetried = true;
      this.#controller = undefined;
      return this.#send();
    }
    this.#ended ??= { error };
    this.#wake();
    this.#release(this.#hasBytes ? 'answered' : this.#isOver ? 'abandoned' : 'connect-failed');
  }

  #send(): void {
    const { path, headers, body, dispatch } = this.#options;
    dispatch({ path, method: 'POST', headers: headers as string[], body, headersTimeout: 0, bodyTimeout: 0 }, this);
  }

  /**
   * A pooled socket can be closed by the server in the moment in which it is used. Nothing came back, so nothing was
   * generated that anybody saw: one more try on another socket (reliability U4).
   */
  #isStale(error: Error, wasOpened: boolean): boolean {
    if (this.#hasBytes || this.#hasRetried || !wasOpened || !this.#options.mayBeStale()) return false;
    const { code, socket } = error as { code?: string; socket?: { bytesRead?: number } };
    if (code === 'UND_ERR_SOCKET') return (socket?.bytesRead ?? 1) > 0;
    return code === 'ECONNRESET' || code === 'EPIPE';
  }

  /** All chunks of one read of the socket come in one go; the reader gets them as one batch, afterwards. */
  #wake(): void {
    if (this.#waiting === undefined || this.#isFlushQueued) return;
    this.#isFlushQueued = true;
    queueMicrotask(() => {
      this.#isFlushQueued = false;
      const waiting = this.#waiting;
      if (waiting === undefined) return;
      try {
        const result = this.#take();
        if (result === undefined) return;
        this.#waiting = undefined;
        waiting.resolve(result);
      } catch (error) {
        this.#waiting = undefined;
        waiting.reject(error);
      }
    });
  }

  /** What the reader gets now; `undefined`: wait. Throws what the stream fails with. */
  #take(): IteratorResult<GenerationBatch, undefined> | undefined {
    if (this.#isOver) {
      if (this.#failure !== undefined) {
        const { error } = this.#failure;
        this.#failure = undefined;
        throw error;
      }
      return { done: true, value: undefined };
    }
    try {
      return this.#advance();
    } catch (error) {
      this.#end();
      this.#destroy();
      throw this.#errorOf(error);
    }
  }

  #advance(): IteratorResult<GenerationBatch, undefined> | undefined {
    try {
      this.#decode();
    } catch (error) {
      this.#fault ??= { error };
    }
    const events: GenerationEvent[] = this.#decoder.drain();
    if (this.#decoder.isOverrun) {
      this.#decoder.cut();
      events.push(...this.#decoder.drain());
      this.#fault = undefined;
      this.#destroy();
    }
    const hasEnded = this.#ended !== undefined && this.#fault === undefined;
    if (this.#decoder.isComplete || (hasEnded && this.#decoder.isFinished)) {
      events.push(...this.#decoder.closing());
      this.#end();
      this.#drain();
      return events.length === 0 ? { done: true, value: undefined } : { done: false, value: events };
    }
    if (events.length > 0) {
      if (!this.#hasFirstBatch) this.#watchIdle();
      return { done: false, value: events };
    }
    if (this.#fault !== undefined) throw this.#fault.error;
    if (this.#ended?.error !== undefined) throw this.#brokenError(this.#ended.error);
    if (hasEnded) throw new StreamFault('the stream ended without a finish');
    return undefined;
  }

  #decode(): void {
    if (this.#fault !== undefined) return;
    const hasEnded = this.#ended !== undefined && this.#ended.error === undefined;
    if (this.#body !== 'events') {
      if (hasEnded) this.#decodeWhole();
      return;
    }
    const chunks = this.#chunks;
    if (chunks.length > 0) {
      this.#chunks = [];
      this.#bufferedBytes = 0;
      for (const chunk of chunks) this.#sse.push(chunk);
      if (this.#controller?.paused === true) this.#controller.resume();
    }
    // Once every choice has its finish, a cut last event (the usage) takes nothing from the answer.
    if (hasEnded && !this.#decoder.isFinished) this.#sse.end();
    else if (hasEnded) this.#endQuietly();
  }

  #endQuietly(): void {
    try {
      this.#sse.end();
    } catch (error) {
      if (!(error instanceof StreamFault)) throw error;
    }
  }

  #decodeWhole(): void {
    const body = Buffer.concat(this.#chunks).toString();
    this.#chunks = [];
    if (this.#body === 'whole' && this.#status === 200 && !this.#decoder.isFinished) this.#decoder.whole(body);
    else if (this.#body !== 'whole') throw this.#answerError(parsed(body));
  }

  #errorOf(error: unknown): unknown {
    if (error instanceof ApiError) return error;
    // Before the first text an error in the answer is as good as one in its head.
    if (error instanceof InBandError && !this.#hasFirstBatch)
      return this.#answerError(error.body, statusOf(error.body));
    // Without the body that it carries: causes are logged.
    if (error instanceof InBandError) return httpError(this.#options.model, new StreamFault(error.message));
    if (error instanceof StreamFault) return httpError(this.#options.model, error);
    return new ApiError('internal_error', 'The service failed while it read the answer of a backend.', {
      cause: error,
    });
  }

  #answerError(body: unknown, status = this.#status): ApiError {
    const answer = { status, retryAfter: this.#retryAfter, body };
    this.#options.onAnswerError(answer);
    return answerError(answer, this.#options.flavor, this.#options.model);
  }

  #brokenError(error: Error): ApiError {
    const { model } = this.#options;
    if (error instanceof ApiError) return error;
    // A parser's error quotes the bytes that it could not read.
    const cause = error instanceof errors.HTTPParserError ? new Error('the answer is not HTTP') : error;
    return this.#hasBytes || cause !== error ? httpError(model, cause) : connectError(model, cause);
  }

  /** From the first batch on it is silence that counts, not the whole time (reliability U7). */
  #watchIdle(): void {
    this.#hasFirstBatch = true;
    clearTimeout(this.#timer);
    const { idleTimeoutMs, model } = this.#options;
    const check = (): void => {
      // A paused socket is silent because the reader is slow.
      const isHeard = this.#chunks.length > 0 || this.#ended !== undefined;
      const idleMs = isHeard ? 0 : performance.now() - this.#lastByteAtMs;
      if (idleMs < idleTimeoutMs) this.#timer = setTimeout(check, Math.max(1, idleTimeoutMs - idleMs));
      else if (this.#decoder.isFinished) {
        // The answer is whole; only the closing usage is missing.
        this.#ended = { error: undefined };
        this.#wake();
      } else this.#fail(timeoutError(model));
    };
    this.#timer = setTimeout(check, idleTimeoutMs);
  }

  /** Ends the stream with an error, from outside a read. */
  #fail(error: unknown): void {
    if (this.#isOver) return;
    this.#end();
    this.#destroy();
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (waiting === undefined) this.#failure = { error };
    else waiting.reject(error);
  }

  #end(): void {
    this.#isOver = true;
    this.#chunks = [];
    this.#bufferedBytes = 0;
    clearTimeout(this.#timer);
    this.#options.signal.removeEventListener('abort', this.#onAbort);
  }

  #drain(): void {
    if (this.#isReleased) return;
    if (this.#controller?.paused === true) this.#controller.resume();
    this.#drainTimer = setTimeout(() => this.#destroy(), drainMs).unref();
  }

  #destroy(): void {
    if (!this.#isReleased) this.#controller?.abort(new Error('the request is over'));
  }

  #release(outcome: ExchangeOutcome): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    clearTimeout(this.#drainTimer);
    this.#options.onReleased(outcome);
  }
}

/** What the head promises. A redirect, a page, or a coding that was not asked for is an error whose body is not shown. */
function bodyKind(status: number, headers: IncomingHttpHeaders): Body {
  if (status !== 200) return 'error';
  const coding = first(headers['content-encoding']);
  if (coding !== undefined && coding !== 'identity') return 'error';
  const type = first(headers['content-type'])?.toLowerCase() ?? 'text/event-stream';
  if (type.startsWith('text/event-stream')) return 'events';
  return type.startsWith('application/json') ? 'whole' : 'error';
}

function first(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : value?.[0];
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return body;
  }
}

/** The status that an error in a stream would have had. */
function statusOf(body: unknown): number {
  const error = (body as { error?: { code?: unknown } }).error;
  const code = error?.code ?? (body as { code?: unknown }).code;
  return Number.isInteger(code) && (code as number) >= 400 && (code as number) < 600 ? (code as number) : 200;
}
