import { ApiError } from '../../../platform/errors.ts';
import type { GenerationBatch, GenerationEvent, TakeBatch } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import type { AnswerHead } from './answer-reader.ts';
import { largestIdAt } from './completion-fields.ts';
import { connectionClosed, type AnswerHandler, type Call, type OutgoingRequest } from './connections.ts';
import { UnboundFault } from '../engine.ts';
import { InBandError, type ChunkDecoder } from './decode/decoder.ts';
import { answerError, connectError, httpError, timeoutError, type UpstreamAnswer } from './failures.ts';
import type { Flavor } from './flavors/flavor.ts';
import { SseReader, StreamFault } from './sse.ts';
import { causeCode, type BackendIncident } from './incidents.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';
import type { Deadline, Deadlines } from '../../../platform/deadlines.ts';

/** How an exchange left its connection and its backend, reported once, when the connection is free or gone. */
export type ExchangeOutcome = 'answered' | 'connect-failed' | 'abandoned';

/** A backend, as all of its exchanges see it. */
export interface ExchangeBackend {
  readonly model: string;
  readonly flavor: Flavor;
  /** Time limit from the request to the first batch. */
  readonly firstTokenLimit: Deadlines;
  /** Limit of silence after it. */
  readonly idleLimit: Deadlines;
  readonly idleTimeoutMs: number;
  /** Sends the request; `isFresh`: on a connection that has not carried any request. */
  readonly send: (outgoing: OutgoingRequest, handler: AnswerHandler, isFresh: boolean) => Call;
  /** Called at the first byte of an answer: the backend is up. */
  readonly onAlive: () => void;
  readonly onAnswerError: (answer: UpstreamAnswer) => void;
  readonly onIncident: (incident: BackendIncident) => void;
  /** Called when the answer violates the request's bound; the server may have ignored the bound. */
  readonly onUnbound: (request: EngineRequest, fault: UnboundFault) => void;
  /** Called once when the answer is over; the connection may still need a moment. */
  readonly onOver: () => void;
  readonly onReleased: (outcome: ExchangeOutcome) => void;
}

export interface ExchangeOptions {
  readonly backend: ExchangeBackend;
  readonly request: EngineRequest;
  /** The request's fields, under the server's names. */
  readonly sent: readonly string[];
  readonly decoder: ChunkDecoder;
  readonly signal: StopSignal;
  /** A probe, whose outcome is only for its engine. */
  readonly isLook: boolean;
  /** As in `Engine.generate`, which settles through the other two. */
  readonly take: TakeBatch;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Maximum bytes of events that wait for the reader before the socket is paused. */
const bufferBytesMax = 64 * 1024;
const errorBodyBytesMax = 64 * 1024;
const wholeBodyBytesMax = 32 * 1024 * 1024;
/** Time for a connection to end its body after the answer is complete, so that it can be reused. */
const drainMs = 500;

/** Error codes of a connection that the server had already closed. */
const staleCodes: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE', connectionClosed]);

type Body = 'none' | 'events' | 'whole' | 'error';

/**
 * - `open`: `take` gets what arrives, in the turn that brings it.
 * - `taking`: `take` has a batch and has not answered; what arrives meanwhile waits, up to a bound.
 * - `over`: the answer is complete or has failed, which is reported when `take` has answered.
 * - `settled`: resolved or rejected.
 */
type Reading = 'open' | 'taking' | 'over' | 'settled';

/**
 * - `asked`, `asked-again`: nothing has come back; a request whose connection turns out to be closed is sent again once.
 * - `answering`: bytes have arrived.
 * - `released`: the connection is free or gone.
 */
type Sending = 'asked' | 'asked-again' | 'answering' | 'released';

/**
 * One request to a backend and its answer. Bytes are decoded as they come, and the events of one read of the socket are one batch, handed
 * to `take` in that turn. When the signal aborts, the socket is destroyed immediately, regardless of `take`.
 *
 * It has two independent states: that of the answer for its reader (`Reading`), and that of the request on its connection (`Sending`),
 * which may end before or after the answer.
 */
export class Exchange implements AnswerHandler {
  readonly #options: ExchangeOptions;
  readonly #backend: ExchangeBackend;
  readonly #decoder: ChunkDecoder;
  readonly #sse: SseReader;
  /** Kept until an answer begins, because until then it may be sent once more. */
  #outgoing: OutgoingRequest | undefined;
  #call: Call | undefined;
  #reading: Reading = 'open';
  #sending: Sending = 'asked';
  /** The reason for `over`, if the answer is not complete. */
  #failure: Failure | undefined;
  #hasFirstBatch = false;

  #body: Body = 'none';
  #status = 0;
  #retryAfter: string | undefined;
  /** The body of an answer that is not an event stream, read once it is complete. */
  #chunks: Buffer[] = [];
  /** Bytes of the body since the last batch. */
  #bufferedBytes = 0;
  /** A failure that is reported after the events that came before it. */
  #fault: Failure | undefined;
  /** The connection delivers nothing more; `error` is the reason if it broke. */
  #ended: { readonly error: Error | undefined; readonly isUnanswered: boolean } | undefined;
  #lastByteAtMs = 0;
  #limit: Deadline | undefined;
  #drainTimer: NodeJS.Timeout | undefined;
  readonly #onAbort = (): void => this.#fail(this.#options.signal.reason);

  constructor(options: ExchangeOptions, outgoing: OutgoingRequest) {
    const { backend } = options;
    this.#options = options;
    this.#backend = backend;
    this.#outgoing = outgoing;
    this.#decoder = options.decoder;
    this.#sse = new SseReader((data, name) => this.#decoder.event(data, name));
    options.signal.addEventListener('abort', this.#onAbort, { once: true });
    // Absolute: 1xx heads, comments and role chunks do not extend it (reliability U2, U3).
    this.#limit = backend.firstTokenLimit.begin(() => this.#timeOut('no_first_token_in_time'));
    this.#call = backend.send(outgoing, this, false);
  }

  onBegin(): void {
    this.#sending = 'answering';
    this.#outgoing = undefined;
    this.#backend.onAlive();
  }

  onHead({ status, fields }: AnswerHead): void {
    this.#status = status;
    this.#lastByteAtMs = performance.now();
    this.#retryAfter = fields.get('retry-after');
    this.#body = bodyKind(status, fields);
  }

  onBody(bytes: Buffer, from: number, to: number): void {
    this.#bufferedBytes += to - from;
    if (this.#isOver) {
      // Anything after a complete answer is drained for a moment, only to find its end.
      if (this.#bufferedBytes > bufferBytesMax) this.#destroy();
      return;
    }
    this.#lastByteAtMs = performance.now();
    if (this.#body === 'events') {
      this.#decodeEvents(bytes, from, to);
      if (this.#bufferedBytes >= bufferBytesMax) this.#call?.pause();
      return;
    }
    this.#chunks.push(Buffer.from(bytes.subarray(from, to)));
    if (this.#bufferedBytes > (this.#body === 'whole' ? wholeBodyBytesMax : errorBodyBytesMax)) {
      this.#ended = { error: undefined, isUnanswered: false };
      this.#destroy();
      this.#hand();
    }
  }

  onReadEnd(): void {
    this.#hand();
  }

  onOver(): void {
    this.#ended ??= { error: undefined, isUnanswered: false };
    this.#release('answered');
    this.#hand();
  }

  onBroken(error: Error, wasUsedBefore: boolean): void {
    // The server can close a kept-alive connection just as it is used. Nothing came back, so no client has seen any output: try once more,
    // on a new connection (reliability U4).
    const isStale = wasUsedBefore && this.#sending === 'asked' && staleCodes.has((error as { code?: unknown }).code);
    if (isStale && !this.#isOver && this.#outgoing !== undefined) {
      this.#sending = 'asked-again';
      this.#call = this.#backend.send(this.#outgoing, this, true);
      return;
    }
    const isUnanswered = this.#sending !== 'answering';
    this.#ended ??= { error, isUnanswered };
    this.#release(!isUnanswered ? 'answered' : this.#isOver ? 'abandoned' : 'connect-failed');
    this.#hand();
  }

  /** Whether the backend's part is over; `take` may still have the last batch. */
  get #isOver(): boolean {
    return this.#reading === 'over' || this.#reading === 'settled';
  }

  /** Hands over what has arrived, until nothing is left or `take` needs time. Never throws. */
  #hand(): void {
    while (this.#reading === 'open') {
      let batch: GenerationBatch | undefined;
      try {
        batch = this.#advance();
      } catch (error) {
        this.#stop();
        this.#settle({ error: this.#errorOf(error) });
        return;
      }
      if (batch !== undefined) this.#give(batch);
      else if (this.#isOver) this.#settle(undefined);
      else return;
    }
  }

  #give(batch: GenerationBatch): void {
    if (this.#reading === 'open') this.#reading = 'taking';
    const failed = (error: unknown): void => {
      this.#stop();
      this.#settle({ error });
    };
    try {
      const goesOn = this.#options.take(batch);
      if (typeof goesOn === 'boolean') this.#taken(goesOn);
      else goesOn.then((later) => this.#resume(later), failed);
    } catch (error) {
      failed(error);
    }
  }

  #resume(goesOn: boolean): void {
    this.#taken(goesOn);
    this.#hand();
  }

  /** Called when `take` has answered. */
  #taken(goesOn: boolean): void {
    if (!goesOn) {
      this.#stop();
      this.#settle(undefined);
    } else if (this.#reading === 'taking') this.#reading = 'open';
    else this.#settle(this.#failure);
  }

  #settle(failure: Failure | undefined): void {
    if (this.#reading === 'settled') return;
    this.#reading = 'settled';
    if (failure === undefined) this.#options.resolve();
    else this.#options.reject(failure.error);
  }

  /** Returns the events that have arrived; `undefined`: none yet, or no more. Throws the stream's failure. */
  #advance(): GenerationBatch | undefined {
    if (this.#bufferedBytes > 0 && this.#body === 'events') {
      this.#bufferedBytes = 0;
      this.#call?.resume();
    }
    if (this.#ended !== undefined && this.#ended.error === undefined) this.#decodeEnd();
    const events: GenerationEvent[] = this.#decoder.drain();
    if (this.#decoder.isOverrun) {
      this.#decoder.cut();
      events.push(...this.#decoder.drain());
      this.#fault = undefined;
      this.#destroy();
    } else if (this.#decoder.isCutShort) this.#destroy();
    const hasEnded = this.#ended !== undefined && this.#fault === undefined;
    if (this.#decoder.isComplete || (hasEnded && this.#decoder.isFinished)) {
      if (this.#decoder.isUsageDoubted) {
        this.#backend.onIncident({ incident: 'implausible_usage', status: this.#status, cause: null });
      }
      this.#end();
      this.#drain();
      return events.length === 0 ? undefined : events;
    }
    if (events.length > 0) {
      if (!this.#hasFirstBatch) this.#watchIdle();
      return events;
    }
    if (this.#fault !== undefined) throw this.#fault.error;
    if (this.#ended?.error !== undefined) throw this.#brokenError(this.#ended.error);
    if (hasEnded) throw new StreamFault('the stream ended without a finish reason');
    return undefined;
  }

  #decodeEvents(bytes: Buffer, from: number, to: number): void {
    if (this.#fault !== undefined) return;
    try {
      this.#sse.push(bytes, from, to);
    } catch (error) {
      this.#fault = { error };
    }
  }

  #decodeEnd(): void {
    if (this.#fault !== undefined) return;
    try {
      if (this.#body !== 'events') this.#decodeWhole();
      // Once every choice has its finish, a truncated last event (the usage) does not harm the answer.
      else if (this.#decoder.isFinished) this.#endQuietly();
      else this.#sse.end();
    } catch (error) {
      this.#fault = { error };
    }
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
    // Before the first text, an error in the body is treated like one in the head.
    if (error instanceof InBandError && !this.#hasFirstBatch)
      return this.#answerError(error.body, statusOf(error.body));
    if (error instanceof InBandError) {
      this.#backend.onIncident({ incident: 'error_in_answer', status: statusOf(error.body), cause: null });
      // Without the body that it carries, because causes are logged.
      return httpError(this.#backend.model, new StreamFault(error.message));
    }
    if (error instanceof UnboundFault) {
      if (!this.#options.isLook) this.#backend.onUnbound(this.#options.request, error);
      return httpError(this.#backend.model, error);
    }
    if (error instanceof StreamFault) {
      this.#backend.onIncident({ incident: 'unreadable_answer', status: this.#status, cause: error.message });
      return httpError(this.#backend.model, error);
    }
    return new ApiError('internal_error', 'The service failed while it read the answer of a backend.', {
      cause: error,
    });
  }

  #answerError(body: unknown, status = this.#status): ApiError {
    const { flavor, model } = this.#backend;
    const answer = { status, retryAfter: this.#retryAfter, body };
    this.#backend.onAnswerError(answer);
    const error = answerError(answer, flavor, model, this.#options.sent);
    // A client's mistake is not an incident of the server.
    if (error.type !== 'invalid_request_error') {
      const isOurs = status !== 503 && error.code === 'no_healthy_backends';
      const incident = isOurs ? 'not_found' : status === this.#status ? 'http_status' : 'error_in_answer';
      this.#backend.onIncident({ incident, status, cause: null });
    }
    return error.code === 'unsupported_value' && error.param === 'prompt'
      ? new ApiError(error.code, error.message, { param: largestIdAt(this.#options.request.prompt) })
      : error;
  }

  #brokenError(error: Error): ApiError {
    const { model } = this.#backend;
    if (error instanceof ApiError) return error;
    const isConnect = this.#ended?.isUnanswered === true;
    const incident = isConnect ? 'cannot_connect' : 'connection_broke';
    this.#backend.onIncident({ incident, status: this.#status === 0 ? null : this.#status, cause: causeCode(error) });
    return isConnect ? connectError(model, error) : httpError(model, error);
  }

  /** From the first batch on, only silence counts, not the total time (reliability U7). */
  #watchIdle(): void {
    this.#hasFirstBatch = true;
    this.#limit?.end();
    const { idleLimit, idleTimeoutMs } = this.#backend;
    const check = (): void => {
      // A paused socket is silent because the reader is slow.
      const isHeard = this.#bufferedBytes > 0 || this.#ended !== undefined;
      const idleMs = isHeard ? 0 : performance.now() - this.#lastByteAtMs;
      if (idleMs < idleTimeoutMs) this.#limit = idleLimit.begin(check, Math.max(1, idleTimeoutMs - idleMs));
      else if (this.#decoder.isFinished) {
        // The answer is complete; only the closing usage is missing.
        this.#ended = { error: undefined, isUnanswered: false };
        this.#hand();
      } else this.#timeOut('silent_in_mid_answer');
    };
    this.#limit = idleLimit.begin(check);
  }

  #timeOut(incident: BackendIncident['incident']): void {
    this.#backend.onIncident({ incident, status: null, cause: null });
    this.#fail(timeoutError(this.#backend.model));
  }

  /** Ends the answer with an error that does not come from its bytes. */
  #fail(error: unknown): void {
    if (this.#isOver) return;
    const isTaking = this.#reading === 'taking';
    this.#stop();
    this.#failure = { error };
    if (!isTaking) this.#settle(this.#failure);
  }

  #stop(): void {
    this.#end();
    this.#destroy();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#reading = 'over';
    this.#backend.onOver();
    this.#chunks = [];
    this.#bufferedBytes = 0;
    this.#limit?.end();
    this.#options.signal.removeEventListener('abort', this.#onAbort);
  }

  #drain(): void {
    if (this.#sending === 'released') return;
    this.#call?.resume();
    this.#drainTimer = setTimeout(() => this.#destroy(), drainMs).unref();
  }

  #destroy(): void {
    if (this.#sending === 'released') return;
    this.#call?.abandon();
    this.#release(this.#sending === 'answering' ? 'answered' : 'abandoned');
  }

  #release(outcome: ExchangeOutcome): void {
    if (this.#sending === 'released') return;
    this.#sending = 'released';
    clearTimeout(this.#drainTimer);
    this.#backend.onReleased(outcome);
  }
}

interface Failure {
  readonly error: unknown;
}

/** Returns the kind of body that the head announces. A redirect, a page, or an unrequested coding is an error whose body is not shown. */
function bodyKind(status: number, fields: AnswerHead['fields']): Body {
  if (status !== 200) return 'error';
  const coding = fields.get('content-encoding');
  if (coding !== undefined && coding !== 'identity') return 'error';
  const type = fields.get('content-type')?.toLowerCase() ?? 'text/event-stream';
  if (type.startsWith('text/event-stream')) return 'events';
  return type.startsWith('application/json') ? 'whole' : 'error';
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return body;
  }
}

/** Returns the status for an error inside a stream. */
function statusOf(body: unknown): number {
  const error = (body as { error?: { code?: unknown; http_status_code?: unknown } }).error;
  const code = error?.code ?? error?.http_status_code ?? (body as { code?: unknown }).code;
  return Number.isInteger(code) && (code as number) >= 400 && (code as number) < 600 ? (code as number) : 200;
}
