import { randomBytes, type KeyObject } from 'node:crypto';
import { Pool } from 'undici';
import { combineSignals } from '../../../platform/combine-signals.ts';
import type { TakeBatch } from '../../../generation/event.ts';
import type { ServerReport } from '../../../generation/server-report.ts';
import type { FlavorName } from '../../../generation/flavor-names.ts';
import type { ApiError } from '../../../platform/errors.ts';
import type { EngineRequest, Task } from '../../../generation/request.ts';
import type { Engine, EngineStatus, Look } from '../engine.ts';
import type { ImageTokenRule } from '../image-tokens.ts';
import { decoderOf, type DecodingBackend } from './answer-decoder.ts';
import { Breaker } from './breaker.ts';
import { CacheSalts } from './cache-salts.ts';
import { Connections } from './connections.ts';
import { countTokens } from './count-tokens.ts';
import { UnboundFault } from '../engine.ts';
import { boundKindOf, ConstraintTrust } from './constraint-trust.ts';
import { lookRequest } from '../constraint-look.ts';
import { ChunkShapes } from './chunk-template.ts';
import { Exchange, type ExchangeBackend, type ExchangeOptions, type ExchangeOutcome } from './exchange.ts';
import { atCapacity, isLoading, unavailable } from './failures.ts';
import type { Flavor } from './flavors/flavor.ts';
import { flavors } from './flavors/flavors.ts';
import { isLong, measuredRequest, outgoingRequest, type WrittenRequest } from './outgoing-request.ts';
import { PromptCaching } from './prompt-caching.ts';
import { cannotKeep, refusalOf, saltFields } from './request-body.ts';
import type { UpstreamServer } from './request-body.ts';
import { hostOf } from './server-name.ts';
import { presenceOf, type AdapterPresence } from './adapter-presence.ts';
import type { WantedAdapter } from './listed-adapters.ts';
import { askModels, askReport, ping, type PagesBackend } from './server-pages.ts';
import { ServedModel } from './served-model.ts';
import { runTask } from './tasks.ts';
import { causeCode, ThrottledLog, type BackendIncident, type ReportedIncident } from './incidents.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';
import { abortSignalOf } from '../../../platform/stop-signal.ts';
import { orAborted } from '../../../platform/deadline.ts';
import { Deadlines } from '../../../platform/deadlines.ts';
import type { TraceHeaders } from '../../../platform/telemetry/trace-context.ts';

/** What is left out of what is known about the server: nothing is forwarded, nothing reasons, tokens pass. */
export interface OpenAiEngineOptions extends Partial<
  Pick<UpstreamServer, 'forward' | 'reasons' | 'systemFirst' | 'ordersByPriority' | 'specialTokens'>
> {
  /** The model's public id, for errors, and for requests to the backend unless `model` is set. */
  readonly name: string;
  /** Up to and including the version, for example `http://10.0.0.5:8000/v1`. */
  readonly url: string;
  /** The server's name, if `url` has its address: for its certificate, and as `Host`. */
  readonly serverName?: string;
  readonly flavor: FlavorName;
  /** The model's name on the backend. */
  readonly model?: string;
  readonly apiKey?: string;
  /** Maximum concurrent requests and connections; further requests are refused: they wait in the queue before the engine. */
  readonly maxConcurrency?: number;
  /** Time limit from the request to the first text, regardless of what else the backend sends. Default 120 s. */
  readonly firstTokenTimeoutMs?: number;
  /** Maximum silence between bytes after the first text. Default 60 s. */
  readonly idleTimeoutMs?: number;
  /** For the operator: this backend's failures, at a bounded rate. */
  readonly onIncident?: (incident: ReportedIncident) => void;
  /** The key for unguessable cache salts. Default: a random one, so that the engine shares no prompt with other engines. */
  readonly saltKey?: KeyObject | Uint8Array;
  /** Which adapter the server applies. */
  readonly adapter?: WantedAdapter;
}

/** Generates on any OpenAI-compatible server, always streaming. */
export function createOpenAiEngine(options: OpenAiEngineOptions): Engine {
  return new OpenAiEngine(options);
}

/**
 * What one GPU handles well. An 8B model in 16 bits leaves a card of 24 GB room for about 45,000 tokens, which is 64 requests of 700; one
 * of 80 GB for ten times as many. Beyond what fits, vLLM and SGLang preempt and recompute; and more concurrency makes every answer slower.
 * Further requests wait in the model's queue, or go to another GPU.
 */
export const defaultMaxConcurrency = 64;

/** Time limit for a small bound answer from a server that may be slow. */
const boundLookTimeoutMs = 60_000;

/**
 * Additional connections besides those for generation, so that counting does not wait for a stream to end, nor a probe for requests that a
 * frozen server leaves unanswered.
 */
const countingConnections = 4;

/**
 * How long a backend that reported "loading" is left alone: one request per second tests it, and is retried on another backend if there is
 * one.
 */
const loadingMs = 1_000;

class OpenAiEngine implements Engine {
  readonly #name: string;
  readonly #flavor: Flavor;
  readonly #server: UpstreamServer;
  readonly #connections: Connections;
  readonly #countingPool: Pool;
  readonly #openTaskPool: () => Pool;
  /** A separate pool for whole answers, which take a connection each; created on first use. */
  #taskPool: Pool | undefined;
  readonly #basePath: string;
  readonly #headers: readonly string[];
  /** The header lines of every request, after the first. */
  readonly #headLines: string;
  readonly #maxConcurrency: number;
  readonly #firstTokenTimeoutMs: number;
  readonly #breaker = new Breaker();
  readonly #incidents: ThrottledLog;
  readonly #decoding: DecodingBackend;
  readonly #trust: ConstraintTrust;
  readonly #served: ServedModel;
  readonly #presence: AdapterPresence | undefined;
  #lookTimer: NodeJS.Timeout | undefined;
  readonly #closing = new AbortController();
  readonly #pages: PagesBackend;
  readonly #caching: PromptCaching;
  readonly #backend: ExchangeBackend;
  #running = 0;
  #loadingUntilMs = -Infinity;
  /** Why the last connection failed; undefined: it did not. */
  #unreachable: string | undefined;

  constructor(options: OpenAiEngineOptions) {
    const url = new URL(options.url);
    if (url.protocol !== 'http:' && url.protocol !== 'https:') throw new TypeError('the url must be http or https');
    if (url.search !== '' || url.hash !== '' || url.username !== '') {
      throw new TypeError('the url must have no query, fragment or credentials');
    }
    if (options.apiKey !== undefined && !/^[\x21-\x7e]+$/.test(options.apiKey)) {
      throw new TypeError('the API key must be visible ASCII');
    }
    this.#name = options.name;
    this.#flavor = flavors[options.flavor];
    this.#server = {
      flavor: this.#flavor,
      model: options.model ?? options.name,
      reasons: options.reasons ?? false,
      forward: options.forward ?? [],
      specialTokens: options.specialTokens ?? { mode: 'pass', texts: [] },
      systemFirst: options.systemFirst ?? false,
      ordersByPriority: options.ordersByPriority ?? false,
      fields: options.adapter?.fields,
      loadedBeside: options.adapter?.loadedBeside,
      // New for each engine: entries cached by a server can be found again as long as this engine lives.
      salts: new CacheSalts(options.saltKey ?? randomBytes(32)),
    };
    this.#basePath = url.pathname.replace(/\/+$/, '');
    this.#maxConcurrency = options.maxConcurrency ?? defaultMaxConcurrency;
    this.#incidents = new ThrottledLog(options.onIncident ?? (() => {}));
    this.#trust = new ConstraintTrust({
      look: (kind) => this.#keepsConstraint(lookRequest(kind)),
      onIncident: (incident) => this.#incidents.note(incident, performance.now()),
    });
    this.#served = new ServedModel({
      model: this.#server.model,
      list: () => askModels(this.#pages),
      changed: (isOther) => {
        if (isOther) this.#note('other_model', null);
      },
    });
    this.#decoding = {
      server: this.#server,
      shapes: new ChunkShapes(),
      served: this.#served,
      note: (incident, cause) => this.#note(incident, cause),
    };
    const { serverName } = options;
    const host = serverName === undefined ? url.host : hostOf(options.url, serverName);
    const headers = [
      ...['content-type', 'application/json'],
      ...['accept', 'text/event-stream, application/json'],
      ...['accept-encoding', 'identity'],
      ...(options.apiKey === undefined ? [] : ['authorization', `Bearer ${options.apiKey}`]),
    ];
    // `Connections` writes the host itself.
    this.#headers = serverName === undefined ? headers : ['host', host, ...headers];
    const { keepAliveMs, requestsPerSocket } = this.#flavor;
    const connectTimeoutMs = 2_000;
    this.report = this.#flavor.reports.length === 0 ? undefined : () => askReport(this.#pages);
    this.#connections = new Connections({ url, serverName, connectTimeoutMs, keepAliveMs, requestsPerSocket });
    this.#headLines = headLines([...['host', host, 'connection', 'keep-alive'], ...headers]);
    const poolOf = (connections: number): Pool =>
      new Pool(url.origin, {
        pipelining: 1,
        connect: { timeout: connectTimeoutMs, ...(serverName === undefined ? {} : { servername: serverName }) },
        keepAliveTimeout: keepAliveMs,
        keepAliveMaxTimeout: keepAliveMs,
        maxHeaderSize: 16 * 1024,
        connections,
        ...(requestsPerSocket === undefined ? {} : { maxRequestsPerClient: requestsPerSocket }),
      });
    this.#countingPool = poolOf(countingConnections);
    this.#openTaskPool = () => poolOf(this.#maxConcurrency);
    this.#firstTokenTimeoutMs = options.firstTokenTimeoutMs ?? 120_000;
    this.#pages = {
      pool: this.#countingPool,
      flavor: this.#flavor,
      basePath: this.#basePath,
      rootPath: this.#rootPath,
      headers: this.#headers,
      signal: this.#closing.signal,
    };
    this.#caching = new PromptCaching(this.#pages);
    this.#presence = presenceOf(options, this.#pages, () => this.#note('adapter_missing', null));
    this.#backend = this.#exchangeBackend(options.idleTimeoutMs ?? 60_000);
  }

  #exchangeBackend(idleTimeoutMs: number): ExchangeBackend {
    return {
      model: this.#name,
      flavor: this.#flavor,
      firstTokenLimit: new Deadlines(this.#firstTokenTimeoutMs),
      idleLimit: new Deadlines(idleTimeoutMs),
      idleTimeoutMs,
      send: (outgoing, handler, isFresh) => this.#connections.send(outgoing, handler, isFresh),
      onAlive: () => this.#alive(),
      onAnswerError: (answer) => {
        if (isLoading(answer, this.#flavor)) this.#loadingUntilMs = performance.now() + loadingMs;
      },
      onIncident: (incident) => this.#incident(incident),
      onUnbound: (request, fault) => this.#unbound(request, fault),
      onOver: () => this.#running--,
      onReleased: (outcome) => this.#released(outcome),
    };
  }

  generate(request: EngineRequest, signal: StopSignal, take: TakeBatch, trace?: TraceHeaders): Promise<void> {
    if (request.task !== undefined) return this.#runTask(request, request.task, signal, take, trace);
    const wait = signal.aborted ? undefined : this.#preparation(request, signal);
    if (wait === undefined) return this.#exchange(request, signal, take, undefined, trace);
    return orAborted(wait, signal).then((written) => this.#exchange(request, signal, take, written, trace));
  }

  async countTokens(request: EngineRequest, signal: StopSignal): Promise<number | undefined> {
    signal.throwIfAborted();
    return countTokens(request, {
      pool: this.#countingPool,
      server: this.#server,
      rootPath: this.#rootPath,
      headers: this.#headers,
      signal: combineSignals([abortSignalOf(signal), this.#closing.signal]),
    });
  }

  refusal(request: EngineRequest): ApiError | undefined {
    const kind = boundKindOf(request);
    if (kind !== undefined && this.#trust.isIgnored(kind)) return cannotKeep(kind.type);
    return refusalOf(request, this.#server);
  }

  get imageTokens(): ImageTokenRule {
    return this.#flavor.imageTokens;
  }

  status(): EngineStatus {
    if (this.#closing.signal.aborted) return { state: 'down', detail: 'closed' };
    if (this.#served.isOther) return { state: 'down', detail: 'it has another model now', retryAfterSeconds: 5 };
    if (this.#presence?.state === 'missing')
      return { state: 'down', detail: 'it does not have the adapter', retryAfterSeconds: 5 };
    const nowMs = performance.now();
    if (this.#breaker.isOpen) {
      const pauseMs = this.#breaker.pauseLeftMs(nowMs);
      const seconds = Math.ceil(pauseMs / 1_000);
      return {
        state: 'down',
        detail: `no connection; next attempt in ${seconds} s`,
        retryAfterSeconds: Math.max(1, seconds),
      };
    }
    if (nowMs < this.#loadingUntilMs) {
      const retryAfterSeconds = Math.max(1, Math.ceil((this.#loadingUntilMs - nowMs) / 1_000));
      return { state: 'starting', detail: 'the backend is loading its model', retryAfterSeconds };
    }
    if (this.#presence?.state === 'unknown')
      return { state: 'starting', detail: 'it has not said yet whether it has the adapter', retryAfterSeconds: 5 };
    return this.#unreachable === undefined
      ? { state: 'ready' }
      : { state: 'ready', detail: `no connection (${this.#unreachable})`, isUnreachable: true };
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    clearTimeout(this.#lookTimer);
    this.#trust.close();
    this.#served.close();
    this.#presence?.close();
    this.#closing.abort(unavailable(this.#name));
    this.#connections.close(unavailable(this.#name));
    await Promise.all([this.#countingPool.destroy(), this.#taskPool?.destroy()]);
  }

  async #runTask(
    request: EngineRequest,
    task: Task,
    signal: StopSignal,
    take: TakeBatch,
    trace: TraceHeaders | undefined,
  ): Promise<void> {
    signal.throwIfAborted();
    this.#refuseUnlessFree();
    this.#running++;
    try {
      const events = await runTask(request, task, {
        pool: (this.#taskPool ??= this.#openTaskPool()),
        always: alwaysOf(request, this.#server),
        flavor: this.#flavor,
        name: this.#name,
        model: this.#server.model,
        basePath: this.#basePath,
        rootPath: this.#rootPath,
        headers: [...this.#headers, 'x-request-id', request.id, ...traceFields(trace).flat()],
        timeoutMs: this.#firstTokenTimeoutMs,
        signal: combineSignals([abortSignalOf(signal), this.#closing.signal]),
        onAlive: () => this.#alive(),
        onConnectFailed: () => this.#released('connect-failed'),
        onLoading: () => (this.#loadingUntilMs = performance.now() + loadingMs),
        onIncident: (incident) => this.#incident(incident),
      });
      await take(events);
    } finally {
      this.#running--;
    }
  }

  #refuseUnlessFree(): void {
    if (this.#closing.signal.aborted) throw unavailable(this.#name);
    if (this.#running >= this.#maxConcurrency) throw atCapacity(this.#name, this.#maxConcurrency);
    if (this.#breaker.isOpen)
      throw unavailable(this.#name, Math.max(1, Math.ceil(this.#breaker.pauseLeftMs(performance.now()) / 1_000)));
  }

  /** The base path without the API's version. */
  get #rootPath(): string {
    return this.#basePath.replace(/\/v1$/, '');
  }

  /** Prepares a request before it can be sent: a bounded wait, usually none, and the request if it was written meanwhile. Never rejects. */
  #preparation(request: EngineRequest, signal: StopSignal): Promise<WrittenRequest | undefined> | undefined {
    const settled = this.#isRefusing ? undefined : this.#caching.settle(request);
    if (!isLong(request)) return settled?.then(() => undefined);
    return settled?.then(() => this.#write(request, signal)) ?? this.#write(request, signal);
  }

  /** Whether requests are refused now, so that they neither wait nor are written. */
  get #isRefusing(): boolean {
    return this.#closing.signal.aborted || this.#breaker.isOpen || this.#running >= this.#maxConcurrency;
  }

  /** Measures a long request, unless it would be refused. */
  async #write(request: EngineRequest, signal: StopSignal): Promise<WrittenRequest | undefined> {
    return this.#isRefusing ? undefined : measuredRequest(request, this.#server, signal);
  }

  /** `isLook`: the request is a probe, whose outcome is only for this engine. */
  #exchange(
    request: EngineRequest,
    signal: StopSignal,
    take: TakeBatch,
    written: WrittenRequest | undefined,
    trace: TraceHeaders | undefined,
    isLook = false,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      this.#open(request, signal, { take, resolve, reject }, written, trace, isLook);
    });
  }

  #open(
    request: EngineRequest,
    signal: StopSignal,
    reader: Pick<ExchangeOptions, 'take' | 'resolve' | 'reject'>,
    written: WrittenRequest | undefined,
    trace: TraceHeaders | undefined,
    isLook: boolean,
  ): void {
    this.#refuseUnlessFree();
    const mayCache = !isLook && this.#caching.mayCache(request);
    const sent = outgoingRequest(request, this.#server, mayCache, written);
    const { path, body, text, pieces, length } = sent;
    const decoder = decoderOf(request, sent, this.#decoding);
    const head = `POST ${this.#basePath}${path} HTTP/1.1\r\n${this.#headLines}${traceLines(trace)}x-request-id: ${request.id}\r\ncontent-length: ${length}\r\n\r\n`;
    this.#running++;
    const { take, resolve, reject } = reader;
    // In one literal, without a spread: see `serve`.
    new Exchange(
      { backend: this.#backend, request, sent: Object.keys(body), decoder, signal, isLook, take, resolve, reject },
      { text: head + text, pieces },
    );
  }

  /**
   * Handles a violated bound: a constraint that the server ignores is not sent to it again; one that a model did not satisfy affects only
   * this answer.
   */
  #unbound(request: EngineRequest, { isIgnored, message }: UnboundFault): void {
    const kind = boundKindOf(request);
    if (isIgnored && kind !== undefined) return this.#trust.ignored(kind);
    this.#note('constraint_not_kept', message);
  }

  #incident(incident: BackendIncident): void {
    this.#incidents.note(incident, performance.now());
    if (incident.incident === 'not_found') this.#presence?.doubted();
  }

  #note(incident: BackendIncident['incident'], cause: string | null): void {
    this.#incidents.note({ incident, status: null, cause }, performance.now());
  }

  /** Returns whether a small answer keeps its bound; `undefined` if there was no answer. */
  async #keepsConstraint(request: EngineRequest): Promise<boolean | undefined> {
    const signal = combineSignals([this.#closing.signal, AbortSignal.timeout(boundLookTimeoutMs)]);
    let text = '';
    const take: TakeBatch = (batch) => {
      for (const event of batch) if (event.type === 'text') text += event.text;
      return true;
    };
    try {
      await this.#exchange(request, signal, take, undefined, undefined, true);
    } catch (error) {
      return (error as Error).cause instanceof UnboundFault ? false : undefined;
    }
    return text !== '';
  }

  #alive(): void {
    if (this.#unreachable !== undefined) this.#presence?.doubted();
    this.#unreachable = undefined;
    this.#breaker.succeeded();
  }

  #released(outcome: ExchangeOutcome): void {
    if (outcome !== 'connect-failed') return;
    this.#unreachable ??= 'the last request';
    this.#breaker.failed(performance.now());
    if (this.#breaker.isOpen) this.#lookLater();
  }

  #lookLater(): void {
    if (this.#lookTimer !== undefined || this.#closing.signal.aborted) return;
    const look = (): void => {
      this.#lookTimer = undefined;
      void this.#lookAfterPause();
    };
    this.#lookTimer = setTimeout(look, this.#breaker.pauseLeftMs(performance.now())).unref();
  }

  async #lookAfterPause(): Promise<void> {
    if ((await this.look()) !== 'silent') return;
    this.#breaker.lookFailed(performance.now());
    if (this.#breaker.isOpen) this.#lookLater();
  }

  /** Probes the server. Any answer means that requests may be sent again (reliability U1). */
  async look(isIdle = false): Promise<Look> {
    try {
      await ping(this.#pages, isIdle);
      this.#alive();
      return 'answered';
    } catch (error) {
      if (this.#closing.signal.aborted) return 'closed';
      this.#unreachable = causeCode(error) ?? 'no answer';
      this.#note('cannot_connect', causeCode(error));
      return 'silent';
    }
  }

  /** Absent if this kind of server is known not to report its load. */
  readonly report: (() => Promise<ServerReport | undefined>) | undefined;
}

/** Without an adapter it copies nothing. */
function alwaysOf(request: EngineRequest, server: UpstreamServer): Readonly<Record<string, unknown>> {
  const salt = saltFields(request, server);
  return server.fields === undefined ? salt : { ...salt, ...server.fields };
}

/** Builds header lines from alternating names and values. */
function headLines(headers: readonly string[]): string {
  let lines = '';
  for (let i = 0; i < headers.length; i += 2) lines += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return lines;
}

const traceLines = (trace: TraceHeaders | undefined): string =>
  trace === undefined ? '' : headLines(traceFields(trace).flat());

const traceFields = (trace: TraceHeaders | undefined): readonly (readonly [string, string])[] =>
  Object.entries(trace ?? {}).filter((field): field is [string, string] => field[1] !== undefined);
