import { randomBytes, type KeyObject } from 'node:crypto';
import { Pool } from 'undici';
import { combineSignals } from '../../../platform/combine-signals.ts';
import type { TakeBatch } from '../../../generation/event.ts';
import type { ServerReport } from '../../../generation/server-report.ts';
import type { FlavorName } from '../../../generation/flavor-names.ts';
import type { ApiError } from '../../../platform/errors.ts';
import { continuesLast } from '../../../generation/request.ts';
import type { EngineRequest, Message, Prompt, Task } from '../../../generation/request.ts';
import type { Engine, EngineStatus, Look } from '../engine.ts';
import type { ImageTokenRule } from '../image-tokens.ts';
import { UsageTally } from '../usage-tally.ts';
import { Breaker } from './breaker.ts';
import { Connections } from './connections.ts';
import { countTokens } from './count-tokens.ts';
import { asksForEcho, largestIdAt } from './completion-fields.ts';
import { boundOf, UnboundFault } from './answer-guard.ts';
import { boundKindOf, ConstraintTrust } from './constraint-trust.ts';
import { lookRequest } from '../constraint-look.ts';
import { ChunkShapes } from './chunk-template.ts';
import { ChunkDecoder } from './decode/decoder.ts';
import { loggedWord } from './decode/finishes.ts';
import { ownEcho } from './echoed-prompt.ts';
import { Exchange, type ExchangeOptions, type ExchangeOutcome } from './exchange.ts';
import { atCapacity, isLoading, unavailable } from './failures.ts';
import type { Flavor } from './flavors/flavor.ts';
import { flavors } from './flavors/flavors.ts';
import { Freshness } from './freshness.ts';
import { jsonBody } from './image-body.ts';
import { longJsonBody, measureJson, type JsonLength } from './json-pieces.ts';
import { EchoedBeginning } from './echoed-beginning.ts';
import { cannotKeep, refusalOf, saltFields, upstreamRequest, withCaching } from './request-body.ts';
import type { ForwardedField, UpstreamRequest, UpstreamServer } from './request-body.ts';
import { hostOf } from './server-name.ts';
import { ServedModel } from './served-model.ts';
import { runTask } from './tasks.ts';
import { guarded } from './special-tokens.ts';
import type { SpecialTokens } from './special-tokens.ts';
import { listedModels, probeUserAgent } from './probe.ts';
import { causeCode, ThrottledLog, type BackendIncident, type ReportedIncident } from './incidents.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';
import { abortSignalOf } from '../../../platform/stop-signal.ts';
import { orAborted } from '../../../platform/deadline.ts';
import { Deadlines } from '../../../platform/deadlines.ts';
import type { TraceHeaders } from '../../../platform/telemetry/trace-context.ts';

export interface OpenAiEngineOptions {
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
  /** Sampling fields that this server accepts although its flavor does not. */
  readonly forward?: readonly ForwardedField[];
  /** Whether the model reasons and accepts an effort. Default false. */
  readonly reasons?: boolean;
  /** Whether the model's template accepts system messages only at the beginning. Default false. */
  readonly systemFirst?: boolean;
  /** How special tokens in clients' texts are handled. Default: they pass. */
  readonly specialTokens?: SpecialTokens;
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

/** Time limit for probing a backend that refused connections. */
const lookTimeoutMs = 3_000;

/** Maximum size of a status page: vLLM's metrics are about 100 kB for each of its engines. */
const pageBytesMax = 4 * 1024 * 1024;

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
  readonly #firstTokenLimit: Deadlines;
  readonly #firstTokenTimeoutMs: number;
  readonly #idleLimit: Deadlines;
  readonly #idleTimeoutMs: number;
  readonly #breaker = new Breaker();
  readonly #incidents: ThrottledLog;
  readonly #shapes = new ChunkShapes();
  readonly #trust: ConstraintTrust;
  readonly #served: ServedModel;
  #lookTimer: NodeJS.Timeout | undefined;
  readonly #closing = new AbortController();
  readonly #freshness: Freshness;
  #running = 0;
  #loadingUntilMs = -Infinity;
  #soleCacheScope: string | undefined;
  #hasSeveralScopes = false;

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
      // New for each engine: entries cached by a server can be found again as long as this engine lives.
      saltKey: options.saltKey ?? randomBytes(32),
    };
    this.#basePath = url.pathname.replace(/\/+$/, '');
    this.#maxConcurrency = options.maxConcurrency ?? defaultMaxConcurrency;
    this.#firstTokenLimit = new Deadlines(options.firstTokenTimeoutMs ?? 120_000);
    this.#idleTimeoutMs = options.idleTimeoutMs ?? 60_000;
    this.#idleLimit = new Deadlines(this.#idleTimeoutMs);
    this.#incidents = new ThrottledLog(options.onIncident ?? (() => {}));
    this.#trust = new ConstraintTrust({
      look: (kind) => this.#keepsConstraint(lookRequest(kind)),
      onIncident: (incident) => this.#incidents.note(incident, performance.now()),
    });
    this.#served = new ServedModel({
      model: this.#server.model,
      list: () => this.#listModels(),
      changed: (isOther) => {
        if (isOther) this.#note('other_model', null);
      },
    });
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
    this.report = this.#flavor.reports.length === 0 ? undefined : () => this.#askReport();
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
    this.#freshness = new Freshness({
      pool: this.#countingPool,
      flavor: this.#flavor,
      rootPath: this.#rootPath,
      headers: this.#headers,
      signal: this.#closing.signal,
    });
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
    return { state: 'ready' };
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    clearTimeout(this.#lookTimer);
    this.#trust.close();
    this.#served.close();
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
        always: saltFields(request, this.#server),
        flavor: this.#flavor,
        name: this.#name,
        model: this.#server.model,
        basePath: this.#basePath,
        rootPath: this.#rootPath,
        headers: [...this.#headers, 'x-request-id', request.id, ...traceFields(trace).flat()],
        timeoutMs: this.#firstTokenTimeoutMs,
        signal: combineSignals([abortSignalOf(signal), this.#closing.signal]),
        onAlive: () => this.#breaker.succeeded(),
        onConnectFailed: () => this.#released('connect-failed'),
        onLoading: () => (this.#loadingUntilMs = performance.now() + loadingMs),
        onIncident: (incident) => this.#incidents.note(incident, performance.now()),
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
    const settled = this.#cacheState(request);
    if (promptCharacters(request.prompt) < longCharacters) return settled?.then(() => undefined);
    return settled?.then(() => this.#write(request, signal)) ?? this.#write(request, signal);
  }

  /** Resolves when it is known whether the prompt may be cached; `undefined`: already known. */
  #cacheState(request: EngineRequest): Promise<void> | undefined {
    if (this.#flavor.cacheIsolation !== 'switch' || this.#hasSeveralScopes || !request.retain) return undefined;
    return this.#isRefusing ? undefined : this.#freshness.settle();
  }

  /** Whether requests are refused now, so that they neither wait nor are written. */
  get #isRefusing(): boolean {
    return this.#closing.signal.aborted || this.#breaker.isOpen || this.#running >= this.#maxConcurrency;
  }

  /**
   * Measures a long request before it is sent, in pieces, so that it does not block others. Only after that is it known whether its prompt
   * may be cached. A failure here recurs when it is opened.
   */
  async #write(request: EngineRequest, signal: StopSignal): Promise<WrittenRequest | undefined> {
    if (this.#isRefusing) return undefined;
    try {
      const upstream = upstreamRequest(request, this.#server, false);
      return { upstream, measured: await measureJson(upstream.body, abortSignalOf(signal)) };
    } catch {
      return undefined;
    }
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
    const mayCache = !isLook && this.#mayCachePrompt(request);
    const { path, body, addedBytes } =
      written === undefined
        ? { ...upstreamRequest(request, this.#server, mayCache), addedBytes: 0 }
        : withCaching(written.upstream, request, this.#server, mayCache);
    const images = imageCount(request.prompt);
    const { text, pieces, length, textLength } =
      written === undefined
        ? jsonBody(body, images > 0)
        : longJsonBody(body, {
            length: written.measured.length + addedBytes,
            textLength: written.measured.textLength + addedBytes,
          });
    const decoder = this.#decoder(request, promptTokensMax(textLength, images), this.#echo(request, body));
    const head = `POST ${this.#basePath}${path} HTTP/1.1\r\n${this.#headLines}${traceLines(trace)}x-request-id: ${request.id}\r\ncontent-length: ${length}\r\n\r\n`;
    const outgoing = { text: head + text, pieces };
    this.#running++;
    const { take, resolve, reject } = reader;
    // In one literal, without a spread: see `serve`.
    new Exchange({
      take,
      resolve,
      reject,
      model: this.#name,
      flavor: this.#flavor,
      tokenIdAt: () => largestIdAt(request.prompt),
      sent: fieldsOf(body),
      decoder,
      signal,
      firstTokenLimit: this.#firstTokenLimit,
      idleLimit: this.#idleLimit,
      idleTimeoutMs: this.#idleTimeoutMs,
      send: (handler, isFresh) => this.#connections.send(outgoing, handler, isFresh),
      onAlive: () => this.#breaker.succeeded(),
      onAnswerError: (answer) => {
        if (isLoading(answer, this.#flavor)) this.#loadingUntilMs = performance.now() + loadingMs;
      },
      onIncident: (incident) => this.#incidents.note(incident, performance.now()),
      onUnbound: (fault) => isLook || this.#unbound(request, fault),
      onOver: () => this.#running--,
      onReleased: (outcome) => this.#released(outcome),
    });
  }

  /** Returns the words that this server repeats before it continues them, as they were sent to it. */
  #echo({ prompt }: EngineRequest, { messages }: UpstreamRequest['body']): EchoedBeginning | undefined {
    if (!this.#flavor.echoesBeginning || !continuesLast(prompt)) return undefined;
    const last = (messages as readonly { readonly content?: unknown }[]).at(-1)?.content;
    return typeof last === 'string' ? new EchoedBeginning(last) : undefined;
  }

  #decoder(request: EngineRequest, promptTokensMax: number, echo: EchoedBeginning | undefined): ChunkDecoder {
    const prompts = request.prompt.type === 'messages' ? 1 : request.prompt.prompts.length;
    const choices = prompts * request.choices;
    const tally = new UsageTally({
      choices,
      choicesPerPrompt: request.choices,
      promptTokensMin: request.prompt.type === 'texts' && request.prompt.prompts.includes('') ? 0 : 1,
      promptTokensMax,
      completionTokensMax: request.maxTokens + request.reasoningRoomTokens,
      reasons: this.#server.reasons,
      hasTokenPerDelta: this.#flavor.hasTokenPerDelta,
    });
    return new ChunkDecoder({
      shapes: this.#shapes,
      served: this.#served,
      echo,
      requestId: request.id,
      choices,
      choicesPerPrompt: request.choices,
      maxTokens: request.maxTokens + request.reasoningRoomTokens,
      reasoningForm: request.reasoningForm,
      splitsThinking: this.#server.reasons && request.reasoningForm !== 'inline',
      logprobs: request.logprobs,
      takesOneCall: !request.parallelToolCalls,
      closingUsage: this.#flavor.closingUsage,
      bound: boundOf(request, this.#flavor, this.#server.reasons && request.reasoningForm === 'inline'),
      stops: this.#flavor.keepsStop ? request.stop : undefined,
      endsCallsWithoutReason: this.#flavor.endsCallsWithoutReason,
      onUnchecked: () => this.#note('constraint_not_checked', null),
      toolNames: request.tools.map(({ name }) => name),
      onUnknownFinish: (word) => this.#note('unknown_finish', loggedWord(word)),
      tally,
      ...(request.prompt.type === 'messages'
        ? {}
        : {
            completion: {
              prompts: this.#readyPrompts(request),
              isEchoed: asksForEcho(request),
              ownEcho: (index) => ownEcho(request, index),
              returnsIds: request.tokens?.returnsIds ?? false,
              hasLogprobs: request.logprobs !== undefined,
            },
          }),
    });
  }

  /** Returns the prompts as sent to the server, because they come back in this form. */
  #readyPrompts(request: EngineRequest): readonly string[] | readonly (readonly number[])[] {
    const { prompt } = asksForEcho(request) ? guarded(request, this.#server.specialTokens) : request;
    return prompt.type === 'messages' ? [] : prompt.prompts;
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

  #released(outcome: ExchangeOutcome): void {
    if (outcome !== 'connect-failed') return;
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
  async look(): Promise<Look> {
    try {
      const { body } = await this.#countingPool.request({
        method: 'GET',
        path: `${this.#basePath}/models`,
        headers: this.#headers as string[],
        signal: combineSignals([this.#closing.signal, AbortSignal.timeout(lookTimeoutMs)]),
      });
      this.#breaker.succeeded();
      body.on('error', () => {}).destroy();
      return 'answered';
    } catch (error) {
      if (this.#closing.signal.aborted) return 'closed';
      this.#note('cannot_connect', causeCode(error));
      return 'silent';
    }
  }

  /** Absent if this kind of server is known not to report its load. */
  readonly report: (() => Promise<ServerReport | undefined>) | undefined;

  async #listModels(): Promise<readonly string[] | undefined> {
    const signal = combineSignals([this.#closing.signal, AbortSignal.timeout(lookTimeoutMs)]);
    const text = await this.#page(`${this.#basePath}/models`, signal).catch(() => undefined);
    return text === undefined ? undefined : listedModels(text);
  }

  async #askReport(): Promise<ServerReport | undefined> {
    const signal = combineSignals([this.#closing.signal, AbortSignal.timeout(lookTimeoutMs)]);
    for (const { path, read } of this.#flavor.reports) {
      const text = await this.#page(this.#rootPath + path, signal).catch(() => undefined);
      const report = text === undefined ? undefined : read(text);
      if (report !== undefined) return report;
    }
    return undefined;
  }

  async #page(path: string, signal: AbortSignal): Promise<string | undefined> {
    const { statusCode, body } = await this.#countingPool.request({
      method: 'GET',
      path,
      headers: [...this.#headers, 'user-agent', probeUserAgent],
      signal,
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > pageBytesMax) return undefined;
      chunks.push(chunk);
    }
    return statusCode === 200 ? Buffer.concat(chunks).toString() : undefined;
  }

  /**
   * Returns whether a prompt may be cached by a server whose cache has no salts: if its cache was empty before this engine used it, and as
   * long as it has seen only one scope. A prompt under zero data retention stays in a slot until the next one, so after it nothing may be
   * matched either. If the server restarted while this engine ran, its cache came from this engine, so the scopes still decide.
   */
  #mayCachePrompt(request: EngineRequest): boolean {
    this.#soleCacheScope ??= request.cacheScope;
    if (!request.retain || this.#soleCacheScope !== request.cacheScope) this.#hasSeveralScopes = true;
    return !this.#hasSeveralScopes && this.#freshness.isKnownFresh;
  }
}

/** A request in its backend's wire format, and its length. */
interface WrittenRequest {
  readonly upstream: UpstreamRequest;
  readonly measured: JsonLength;
}

/** From this length on a request is written in pieces. A quarter of a megabyte takes a millisecond. */
const longCharacters = 262_144;

function promptCharacters(prompt: Prompt): number {
  switch (prompt.type) {
    case 'token-ids':
      return 0;
    case 'texts':
      return prompt.prompts.reduce((sum, text) => sum + text.length, 0);
    case 'messages':
      return prompt.messages.reduce((sum, message) => sum + messageCharacters(message), 0);
  }
}

function messageCharacters(message: Message): number {
  let sum = 0;
  for (const part of message.content) if (part.type === 'text') sum += part.text.length;
  if (message.role === 'assistant') for (const call of message.toolCalls) sum += call.arguments.length;
  return sum;
}

/** The field names without their values, which can be large and must not stay as long as the answer. */
const fieldsOf = (body: UpstreamRequest['body']): Readonly<Record<string, true>> =>
  Object.fromEntries(Object.keys(body).map((name) => [name, true] as const));

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

/**
 * Returns the maximum tokens of a prompt. No tokenizer makes more tokens than there are bytes; the rest covers a chat template's own text,
 * and images.
 */
const promptTokensMax = (textBytes: number, images: number): number => textBytes + 8_192 + images * 65_536;

function imageCount(prompt: Prompt): number {
  if (prompt.type !== 'messages') return 0;
  let images = 0;
  for (const message of prompt.messages) for (const part of message.content) if (part.type === 'image') images++;
  return images;
}
