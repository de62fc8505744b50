import { Pool } from 'undici';
import type { GenerationBatch, GenerationStream } from '../../generation/event.ts';
import type { EngineRequest } from '../../generation/request.ts';
import type { Engine, EngineStatus } from '../engine.ts';
import { UsageTally } from '../usage-tally.ts';
import { Breaker } from './breaker.ts';
import { countTokens } from './count-tokens.ts';
import { ChunkDecoder } from './decode.ts';
import { Exchange, type ExchangeOutcome } from './exchange.ts';
import { atCapacity, isLoading, unavailable } from './failures.ts';
import { flavors, type Flavor, type FlavorName } from './flavors.ts';
import { upstreamRequest } from './request.ts';

export interface OpenAiEngineOptions {
  /** The model's public id: it stands in errors, and is what the backend is asked for unless `model` says otherwise. */
  readonly name: string;
  /** Up to and with the version, for example `http://10.0.0.5:8000/v1`. */
  readonly url: string;
  readonly flavor: FlavorName;
  /** The model's name at the backend. */
  readonly model?: string;
  readonly apiKey?: string;
  /** Requests at once, and connections; beyond it requests are refused, never queued. Default 256. */
  readonly maxConcurrency?: number;
  /** From the request to the first text, whatever else the backend sends. Default 120 s. */
  readonly firstTokenTimeoutMs?: number;
  /** Silence between bytes after the first text. Default 60 s. */
  readonly idleTimeoutMs?: number;
  /** Fields beyond the internal language that this backend understands. Reserved: the language carries none yet. */
  readonly forward?: readonly string[];
}

/** Generates on any OpenAI-compatible server, always streaming. */
export function createOpenAiEngine(options: OpenAiEngineOptions): Engine {
  return new OpenAiEngine(options);
}

/** Connections beside those of generations, so that counting does not wait for a stream to end. */
const countingConnections = 2;

/** A backend that said "loading" is taken at its word for so long. */
const loadingMs = 5_000;

class OpenAiEngine implements Engine {
  readonly #name: string;
  readonly #model: string;
  readonly #flavor: Flavor;
  readonly #pool: Pool;
  readonly #countingPool: Pool;
  readonly #basePath: string;
  readonly #headers: readonly string[];
  readonly #maxConcurrency: number;
  readonly #firstTokenTimeoutMs: number;
  readonly #idleTimeoutMs: number;
  readonly #breaker = new Breaker();
  readonly #closing = new AbortController();
  #running = 0;
  #lastReusableAtMs = -Infinity;
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
    this.#model = options.model ?? options.name;
    this.#flavor = flavors[options.flavor];
    this.#basePath = url.pathname.replace(/\/+$/, '');
    this.#maxConcurrency = options.maxConcurrency ?? 256;
    this.#firstTokenTimeoutMs = options.firstTokenTimeoutMs ?? 120_000;
    this.#idleTimeoutMs = options.idleTimeoutMs ?? 60_000;
    this.#headers = [
      ...['content-type', 'application/json'],
      ...['accept', 'text/event-stream, application/json'],
      ...['accept-encoding', 'identity'],
      ...(options.apiKey === undefined ? [] : ['authorization', `Bearer ${options.apiKey}`]),
    ];
    const { keepAliveMs, requestsPerSocket } = this.#flavor;
    const connection: Pool.Options = {
      pipelining: 1,
      connect: { timeout: 2_000 },
      keepAliveTimeout: keepAliveMs,
      keepAliveMaxTimeout: keepAliveMs,
      maxHeaderSize: 16 * 1024,
      ...(requestsPerSocket === undefined ? {} : { maxRequestsPerClient: requestsPerSocket }),
    };
    this.#pool = new Pool(url.origin, { ...connection, connections: this.#maxConcurrency });
    this.#countingPool = new Pool(url.origin, { ...connection, connections: countingConnections });
  }

  generate(request: EngineRequest, signal: AbortSignal): GenerationStream {
    // Nothing happens before the first read: a stream that is never read holds nothing.
    return new LazyStream(signal, () => this.#open(request, signal));
  }

  async countTokens(request: EngineRequest, signal: AbortSignal): Promise<number | undefined> {
    signal.throwIfAborted();
    return countTokens(request, {
      pool: this.#countingPool,
      flavor: this.#flavor,
      model: this.#model,
      rootPath: this.#basePath.replace(/\/v1$/, ''),
      headers: this.#headers,
      signal: AbortSignal.any([signal, this.#closing.signal]),
    });
  }

  status(): EngineStatus {
    if (this.#closing.signal.aborted) return { state: 'down', detail: 'closed' };
    const nowMs = performance.now();
    const pauseMs = this.#breaker.pauseLeftMs(nowMs);
    if (pauseMs > 0) {
      return { state: 'down', detail: `cannot be connected to; next try in ${Math.ceil(pauseMs / 1_000)} s` };
    }
    if (nowMs < this.#loadingUntilMs) return { state: 'starting', detail: 'the backend is loading its model' };
    return { state: 'ready' };
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(unavailable(this.#name));
    await Promise.all([this.#pool.destroy(unavailable(this.#name)), this.#countingPool.destroy()]);
  }

  #open(request: EngineRequest, signal: AbortSignal): Exchange {
    if (this.#closing.signal.aborted) throw unavailable(this.#name);
    const { path, body } = upstreamRequest(request, this.#flavor, this.#model, this.#mayCachePrompt(request));
    if (this.#running >= this.#maxConcurrency) throw atCapacity(this.#name);
    const nowMs = performance.now();
    if (!this.#breaker.admit(nowMs)) {
      throw unavailable(this.#name, Math.max(1, Math.ceil(this.#breaker.pauseLeftMs(nowMs) / 1_000)));
    }
    const text = JSON.stringify(body);
    const decoder = this.#decoder(request, text);
    this.#running++;
    return new Exchange({
      model: this.#name,
      flavor: this.#flavor,
      path: this.#basePath + path,
      headers: [...this.#headers, 'x-request-id', request.id],
      body: text,
      decoder,
      signal,
      firstTokenTimeoutMs: this.#firstTokenTimeoutMs,
      idleTimeoutMs: this.#idleTimeoutMs,
      dispatch: (options, handler) => {
        this.#pool.dispatch(options, handler);
      },
      mayBeStale: () => performance.now() - this.#lastReusableAtMs < this.#flavor.keepAliveMs + 1_000,
      onAlive: () => this.#breaker.succeeded(),
      onAnswerError: (answer) => {
        if (isLoading(answer, this.#flavor)) this.#loadingUntilMs = performance.now() + loadingMs;
      },
      onReleased: (outcome) => this.#released(outcome),
    });
  }

  #decoder(request: EngineRequest, body: string): ChunkDecoder {
    const prompts = request.prompt.type === 'messages' ? 1 : request.prompt.prompts.length;
    const choices = prompts * request.choices;
    const tally = new UsageTally({
      choices,
      choicesPerPrompt: request.choices,
      promptTokensMax: promptTokensMax(request, body),
      completionTokensMax: request.maxTokens,
    });
    return new ChunkDecoder({
      requestId: request.id,
      choices,
      choicesPerPrompt: request.choices,
      maxTokens: request.maxTokens,
      wantsLogprobs: request.logprobs !== undefined,
      closingUsage: this.#flavor.closingUsage,
      tally,
    });
  }

  #released(outcome: ExchangeOutcome): void {
    this.#running--;
    const nowMs = performance.now();
    if (outcome === 'answered') this.#lastReusableAtMs = nowMs;
    else if (outcome === 'connect-failed') this.#breaker.failed(nowMs);
    else this.#breaker.abandoned();
  }

  /**
   * For a server whose cache knows no salts: it may keep prompts as long as it has seen one scope only. A prompt under
   * zero data retention stays in a slot until the next one, so after it nothing may be matched either.
   */
  #mayCachePrompt(request: EngineRequest): boolean {
    this.#soleCacheScope ??= request.cacheScope;
    if (!request.retain || this.#soleCacheScope !== request.cacheScope) this.#hasSeveralScopes = true;
    return !this.#hasSeveralScopes;
  }
}

/** Opens its source at the first read; an abort before that is an abort too. To be read once. */
class LazyStream implements AsyncIterableIterator<GenerationBatch, undefined> {
  readonly #signal: AbortSignal;
  readonly #open: () => AsyncIterator<GenerationBatch, undefined>;
  #source: AsyncIterator<GenerationBatch, undefined> | undefined;
  #isOver = false;

  constructor(signal: AbortSignal, open: () => AsyncIterator<GenerationBatch, undefined>) {
    this.#signal = signal;
    this.#open = open;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<GenerationBatch, undefined>> {
    if (this.#source !== undefined) return this.#source.next();
    if (this.#isOver) return Promise.resolve({ done: true, value: undefined });
    try {
      this.#signal.throwIfAborted();
      this.#source = this.#open();
    } catch (error) {
      this.#isOver = true;
      return Promise.reject(error as Error);
    }
    return this.#source.next();
  }

  return(): Promise<IteratorResult<GenerationBatch, undefined>> {
    this.#isOver = true;
    return this.#source?.return?.() ?? Promise.resolve({ done: true, value: undefined });
  }
}

/**
 * No tokenizer makes more tokens than there are bytes; the rest is what a chat template may add by itself, and what an
 * image may stand for.
 */
function promptTokensMax(request: EngineRequest, body: string): number {
  const { prompt } = request;
  let images = 0;
  if (prompt.type === 'messages') {
    for (const message of prompt.messages) for (const part of message.content) if (part.type !== 'text') images++;
  }
  return Buffer.byteLength(body) + 8_192 + images * 65_536;
}
