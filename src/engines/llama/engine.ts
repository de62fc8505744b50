import { ApiError } from '../../errors.ts';
import type { GenerationBatch, GenerationStream } from '../../generation/event.ts';
import type { EngineRequest, Prompt, Sampling } from '../../generation/request.ts';
import type { Engine, EngineStatus } from '../engine.ts';
import { defaultDecodeThreads, defaultPrefillThreads } from './bindings.ts';
import { Supervisor, type ChildEvent } from './child-process.ts';
import { Mailbox } from './mailbox.ts';
import { refuseOversized } from './prompt.ts';
import { unreadTokensMax, type ChildMessage, type Refusal, type Work } from './protocol.ts';
import { Suspects } from './suspects.ts';

export interface LlamaEngineOptions {
  /** The model's id, for status and logs. */
  readonly name: string;
  /** Resolves when the GGUF is on the disk. Until then the engine is starting; when it rejects, it is down with that reason. */
  readonly modelFile: Promise<string>;
  /** Tokens per sequence, prompt and answer together. */
  readonly contextLength: number;
  /** Answers at once, 4 when not given; lowered to what fits the cache budget. */
  readonly slots?: number;
  /** Answers that may wait for a slot, 64 when not given; beyond it requests are refused (429 `backend_at_capacity`). */
  readonly queueLimit?: number;
  /** 'none' leaves out the system text that the model's template adds to conversations without one. */
  readonly defaultSystem: 'template' | 'none';
  /** For fields that a request leaves open; neutral values (temperature 1) where this leaves them open too. */
  readonly samplingDefaults?: Partial<Sampling>;
  /** Budget of the key-value cache; a quarter of the free memory when not given. */
  readonly cacheBytesMax?: number;
  readonly gpu?: false | 'auto';
  readonly decodeThreads?: number;
  readonly prefillThreads?: number;
  /** From the request to its first token, waiting included: 120 s (contracts decision 23). */
  readonly firstTokenTimeoutMs?: number;
  /** Between two tokens, while the reader waits: 60 s (contracts decision 23). */
  readonly idleTimeoutMs?: number;
  readonly loadTimeoutMs?: number;
  /** A child that does not answer for so long is killed: 4 s, looked at every second. */
  readonly silenceMs?: number;
  /** An idle child with more resident memory than this is replaced. */
  readonly rssBytesMax?: number;
  readonly log: (event: LlamaEngineEvent) => void;
}

/** One line for the log. Its fields are closed and hold no content. */
export type LlamaEngineEvent =
  | ({ readonly model: string } & ChildEvent)
  | { readonly model: string; readonly event: 'request-failed'; readonly code: string; readonly detail: string };

export interface LlamaEngine extends Engine {
  /** The first load is done; rejects when the engine will never be able to work. */
  readonly ready: Promise<void>;
  /** Of the present child. */
  readonly pid: number | undefined;
}

/**
 * llama.cpp in a forked child: this side numbers requests, bounds them, hands out what comes back, and outlives the child.
 * Tokens, templates and the model itself are the child's.
 */
export function createLlamaEngine(options: LlamaEngineOptions): LlamaEngine {
  return new ForkedLlamaEngine(options);
}

/** A request that the child works on. */
interface Exchange {
  readonly mailbox: Mailbox;
  readonly jobs: number;
  /** What it is recognised by when the child dies of it; `undefined` when nothing of it may be remembered. */
  readonly content: unknown;
}

class ForkedLlamaEngine implements LlamaEngine {
  readonly #options: LlamaEngineOptions;
  readonly #exchanges = new Map<number, Exchange>();
  readonly #counts = new Map<
    number,
    { readonly resolve: (tokens: number) => void; readonly reject: (error: unknown) => void }
  >();
  readonly #suspects = new Suspects();
  #supervisor: Supervisor | undefined;
  #missing: EngineStatus = { state: 'starting', detail: 'The model file is being fetched.' };
  #slots = 1;
  #contextLength: number;
  #jobs = 0;
  #lastRequest = 0;
  #closed = false;
  readonly ready: Promise<void>;

  constructor(options: LlamaEngineOptions) {
    this.#options = options;
    this.#contextLength = options.contextLength;
    this.ready = options.modelFile.then(
      (modelFile) => this.#supervise(modelFile),
      (error: unknown) => {
        const reason = error instanceof Error ? error.message : 'unknown reason';
        this.#missing = { state: 'down', detail: `The model file could not be fetched: ${reason}` };
        throw error;
      },
    );
    this.ready.catch(() => {});
  }

  get pid(): number | undefined {
    return this.#supervisor?.pid;
  }

  status(): EngineStatus {
    if (this.#closed) return { state: 'down', detail: 'The engine is closed.' };
    return this.#supervisor?.state ?? this.#missing;
  }

  async *generate(request: EngineRequest, signal: AbortSignal): GenerationStream & AsyncGenerator<GenerationBatch> {
    signal.throwIfAborted();
    this.#refuse(request);
    const content = request.retain ? [request.prompt, request.logitBias] : undefined;
    if (content !== undefined && this.#suspects.condemns(content))
      throw failed('This request has ended the engine of the model twice and is not tried again.');
    const exchange: Exchange = { mailbox: new Mailbox(), jobs: promptCount(request.prompt) * request.choices, content };
    const id = this.#open(exchange);
    const abandon = () => {
      exchange.mailbox.fail(signal.reason);
      this.#cancel(id);
    };
    signal.addEventListener('abort', abandon, { once: true });
    try {
      this.#supervisor?.send({ type: 'generate', request: id, work: workOf(request) });
      const firstTokenAtMs = performance.now() + (this.#options.firstTokenTimeoutMs ?? 120_000);
      let answered = false;
      let unreported = 0;
      for (;;) {
        const waitMs = answered ? (this.#options.idleTimeoutMs ?? 60_000) : firstTokenAtMs - performance.now();
        const taken = await exchange.mailbox.take(waitMs, timedOut);
        unreported += taken.tokens;
        if (unreported >= reportTokens && !taken.last) {
          this.#supervisor?.send({ type: 'taken', request: id, tokens: unreported });
          unreported = 0;
        }
        answered ||= taken.tokens > 0;
        yield taken.events;
        if (taken.last) return;
      }
    } finally {
      signal.removeEventListener('abort', abandon);
      this.#cancel(id);
    }
  }

  async countTokens(request: EngineRequest, signal: AbortSignal): Promise<number> {
    signal.throwIfAborted();
    this.#refuse(request);
    if (this.#counts.size >= countsMax) throw atCapacity();
    const id = ++this.#lastRequest;
    let timer: NodeJS.Timeout | undefined;
    let abandon = () => {};
    try {
      return await new Promise<number>((resolve, reject) => {
        this.#counts.set(id, { resolve, reject });
        abandon = () => reject(signal.reason);
        signal.addEventListener('abort', abandon, { once: true });
        timer = setTimeout(() => reject(timedOut()), countTimeoutMs);
        this.#supervisor?.send({ type: 'count', request: id, work: workOf(request) });
      });
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abandon);
      if (this.#counts.delete(id)) this.#supervisor?.send({ type: 'cancel', request: id });
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#failAll(() => away('The engine of this model is closed.'));
    await this.#supervisor?.close();
  }

  #supervise(modelFile: string): Promise<void> {
    if (this.#closed) throw new Error('The engine was closed before it was ready.');
    const { name: model, log } = this.#options;
    this.#supervisor = new Supervisor({
      load: {
        modelFile,
        contextLength: this.#options.contextLength,
        slots: this.#options.slots ?? 4,
        cacheBytesMax: this.#options.cacheBytesMax,
        defaultSystem: this.#options.defaultSystem,
        samplingDefaults: this.#options.samplingDefaults ?? {},
        gpu: this.#options.gpu ?? false,
        decodeThreads: this.#options.decodeThreads ?? defaultDecodeThreads,
        prefillThreads: this.#options.prefillThreads ?? defaultPrefillThreads(),
      },
      silenceMs: this.#options.silenceMs ?? 4000,
      loadTimeoutMs: this.#options.loadTimeoutMs ?? 600_000,
      rssBytesMax: this.#options.rssBytesMax,
      isIdle: () => this.#exchanges.size === 0 && this.#counts.size === 0,
      onMessage: (message) => this.#receive(message),
      onLost: () => this.#lose(),
      onEvent: (event) => log({ model, ...event }),
    });
    return this.#supervisor.ready;
  }

  #refuse(request: EngineRequest): void {
    refuseUnbuilt(request);
    const status = this.status();
    if (status.state !== 'ready')
      throw away(
        status.state === 'starting' ? 'The model is still being loaded.' : 'The engine of this model is not available.',
      );
    refuseOversized(request.prompt, this.#contextLength);
  }

  #open(exchange: Exchange): number {
    if (this.#jobs >= this.#slots + (this.#options.queueLimit ?? 64)) throw atCapacity();
    const id = ++this.#lastRequest;
    this.#exchanges.set(id, exchange);
    this.#jobs += exchange.jobs;
    return id;
  }

  /** The place is free again; answers what was there, when it was still open. */
  #release(id: number): Exchange | undefined {
    const exchange = this.#exchanges.get(id);
    if (exchange !== undefined) {
      this.#exchanges.delete(id);
      this.#jobs -= exchange.jobs;
    }
    return exchange;
  }

  #cancel(id: number): void {
    if (this.#release(id) !== undefined) this.#supervisor?.send({ type: 'cancel', request: id });
  }

  #receive(message: ChildMessage): void {
    switch (message.type) {
      case 'ready':
        this.#slots = message.slots;
        this.#contextLength = message.contextLength;
        return;
      case 'events': {
        // Of a cancelled request something may still be on its way.
        const exchange = this.#exchanges.get(message.request);
        if (exchange === undefined) return;
        exchange.mailbox.put(message.events, message.tokens, message.last);
        if (!message.last) return;
        this.#release(message.request);
        if (exchange.content !== undefined) this.#suspects.acquit(exchange.content);
        return;
      }
      case 'refused': {
        const error = errorOf(message.refusal);
        const { code, detail } = message.refusal;
        if (detail !== undefined)
          this.#options.log({ model: this.#options.name, event: 'request-failed', code, detail });
        this.#counts.get(message.request)?.reject(error);
        this.#counts.delete(message.request);
        this.#release(message.request)?.mailbox.fail(error);
        return;
      }
      case 'counted':
        this.#counts.get(message.request)?.resolve(message.tokens);
        this.#counts.delete(message.request);
        return;
      case 'pong':
      case 'unusable':
    }
  }

  /** A death ends the requests that the child worked on, and no others (reliability E1). */
  #lose(): void {
    for (const { content } of this.#exchanges.values()) if (content !== undefined) this.#suspects.accuse(content);
    this.#failAll(() => failed('The engine of this model stopped while it worked on this request.'));
  }

  #failAll(error: () => ApiError): void {
    for (const id of [...this.#exchanges.keys()]) this.#release(id)?.mailbox.fail(error());
    for (const { reject } of this.#counts.values()) reject(error());
  }
}

/** Answers of one request; more than that is several requests. */
const jobsMax = 128;
/** The child is told in portions how much was read: far fewer than it may run ahead. */
const reportTokens = unreadTokensMax / 4;
const countsMax = 256;
const countTimeoutMs = 30_000;

/** What comes with later work is refused here too, so that a card's flag set too early is an error and no silence. */
function refuseUnbuilt(request: EngineRequest): void {
  const unbuilt = (param: string) =>
    new ApiError('unsupported_feature', `This model does not support \`${param}\`.`, { param });
  if (request.tools.length > 0 && request.toolChoice.type !== 'none') throw unbuilt('tools');
  if (request.constraint !== undefined) throw unbuilt('response_format');
  if (request.logprobs !== undefined) throw unbuilt('logprobs');
  const jobs = promptCount(request.prompt) * request.choices;
  if (promptCount(request.prompt) === 0)
    throw new ApiError('unsupported_value', 'There is no prompt.', { param: 'prompt' });
  if (!(jobs >= 1 && jobs <= jobsMax)) {
    throw new ApiError('unsupported_value', `A request may ask for ${jobsMax} answers at most.`, { param: 'n' });
  }
}

function promptCount(prompt: Prompt): number {
  return prompt.type === 'messages' ? 1 : prompt.prompts.length;
}

function workOf(request: EngineRequest): Work {
  const { prompt, choices, maxTokens, sampling, stop, effort, logitBias, cacheScope, retain } = request;
  return { prompt, choices, maxTokens, sampling, stop, effort, logitBias, cacheScope, retain };
}

function errorOf(refusal: Refusal): ApiError {
  return new ApiError(refusal.code, refusal.message, { param: refusal.param, extra: refusal.extra });
}

function away(message: string): ApiError {
  return new ApiError('no_healthy_backends', message);
}

function failed(message: string): ApiError {
  return new ApiError('backend_http_error', message);
}

function timedOut(): ApiError {
  return new ApiError('backend_timeout', 'The engine of this model did not answer in time.');
}

function atCapacity(): ApiError {
  return new ApiError('backend_at_capacity', 'All places of this model are taken.', { retryAfterSeconds: 1 });
}
