import { ApiError, atCap } from '../../../platform/errors.ts';
import type { GenerationEvent, TakeBatch } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import type { Engine, EngineStatus, ResidenceReport } from '../engine.ts';
import { defaultThreads } from './addon.ts';
import type { GpuSetting } from './compute.ts';
import { RpcError } from '../../../platform/rpc/failure.ts';
import { Supervisor, type ChildEvent, type Loss } from './child-process.ts';
import { readGgufHeader, type GgufHeader } from './gguf-header.ts';
import { Channel } from './channel.ts';
import { firstTokenOptions, FirstTokenTime, type FirstTokenOptions } from './first-token-time.ts';
import type { GpuSearch } from './gpu-search.ts';
import { Means, processorOnly } from './means.ts';
import { MemoryBudget, type MemoryClaim } from './memory-budget.ts';
import {
  layerNeedsOf,
  memoryNeedsOf,
  needsBeside,
  taskBatchTokens,
  windowsOf,
  type MemoryNeeds,
} from './memory-needs.ts';
import { ModelRefused } from './model-refused.ts';
import { offeredTools, refuseOversized } from './prompt.ts';
import { unreadTokensMax, type ChildMeasure, type Refusal, type Work } from './protocol.ts';
import { CrashQuarantine } from './crash-quarantine.ts';
import { refuseOtherPurpose, type Purpose } from './purpose.ts';
import { Residence, type Waiting } from './residence.ts';
import { SpeedMeter } from './speed-meter.ts';
import { constraintParam, jobsOf, refuseUnfit } from './unfit.ts';
import { deferred } from '../../../platform/deferred.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';

export interface LlamaEngineOptions {
  /** The model's id, for status and logs. */
  readonly name: string;
  /** Resolves when the GGUF file is on disk. Until then the engine is starting; if it rejects, the engine is down for that reason. */
  readonly modelFile: Promise<string>;
  /** What the model's card promises; writing by default. */
  readonly purpose?: Purpose;
  /** Tokens per sequence, prompt and answer together. */
  readonly contextLength: number;
  /** Concurrent answers; by default 4, or as many as fit the memory budget. */
  readonly slots?: number;
  /** Answers that may wait for a slot, 64 by default; further requests are refused (429 `backend_at_capacity`). */
  readonly queueLimit?: number;
  /** 'none' removes the system text that the model's template adds to conversations without one. */
  readonly defaultSystem: 'template' | 'none';
  /** Shared with the service's other models; by default a separate budget. */
  readonly memory?: MemoryBudget;
  /** Once loaded, it does not make room for other models. */
  readonly isPinned?: boolean;
  /** Where GPUs are searched for, and how much of the model goes there; by default the processor is used. */
  readonly gpu?: { readonly setting: GpuSetting; readonly search: Pick<GpuSearch, 'reserve'> };
  /** The service's environment variables passed to an engine's process (`gpuVariablesIn`). */
  readonly variables?: Readonly<Record<string, string>>;
  /** Maximum threads for reading prompts; by default one per core. */
  readonly threads?: number;
  /** Threads for writing; by default one or all, whichever is faster. */
  readonly decodeThreads?: number;
  /**
   * Time from the request to its first token, waiting included, or to the next piece of its prompt that is read: 120 s (contracts decision
   * 23). The total time to the first token may be five times as long.
   */
  readonly firstTokenTimeoutMs?: number;
  /** Time between two tokens, while the reader waits: 60 s (contracts decision 23). */
  readonly idleTimeoutMs?: number;
  readonly loadTimeoutMs?: number;
  /** A child that does not respond for this long is killed: 4 s, checked every second. */
  readonly silenceMs?: number;
  /** An idle child with more resident memory than this is replaced; by default twice the file, the cache and 1 GiB. */
  readonly rssBytesMax?: number;
  /** A model without a request for this long is unloaded, and loaded again for the next one; by default never. */
  readonly idleUnloadMs?: number;
  readonly log: (event: LlamaEngineEvent) => void;
}

/** One log line. Its fields are closed and hold no content. */
export type LlamaEngineEvent =
  | ({ readonly model: string } & ChildEvent)
  | { readonly model: string; readonly event: 'waits-for-memory'; readonly bytes: number }
  /** `with`: in words. `reason`: why the model is not entirely on a GPU. */
  | { readonly model: string; readonly event: 'computes'; readonly with: string; readonly reason: string }
  | { readonly model: string; readonly event: 'gpu-lost'; readonly reason: string; readonly next: 'gpu' | 'processor' }
  | { readonly model: string; readonly event: 'request-failed'; readonly code: string; readonly detail: string };

export interface LlamaEngine extends Engine {
  /** Resolves after the first load, or immediately if other models leave no room; rejects if the engine will never work. */
  readonly ready: Promise<void>;
  /** Process id of the current child. */
  readonly pid: number | undefined;
  /** Returns the current child's report about itself. */
  measure(): Promise<ChildMeasure>;
}

/**
 * Runs llama.cpp in a forked child: this side numbers requests, bounds them, distributes the output, and outlives the child. Tokens,
 * templates and the model itself belong to the child.
 */
export function createLlamaEngine(options: LlamaEngineOptions): LlamaEngine {
  return new ForkedLlamaEngine(options);
}

/** A request that the child works on, or that waits until the model is loaded. */
interface Exchange {
  readonly channel: Channel;
  readonly jobs: number;
  /** Identifies the request if the child dies of it; `undefined` if nothing about it may be remembered. */
  readonly content: unknown;
  /** Sends it to the child. */
  readonly work: Waiting;
  /** The deadline for its first token. */
  readonly firstToken: FirstTokenTime;
  /** When it was sent to the child, and when its first token came; 0: not yet. */
  begunMs: number;
  firstMs: number;
  /** Tokens after the first. */
  tokens: number;
  /** Whether any of its answer has come. */
  isAnswered: boolean;
  /** How often it was sent to another child, because one lost its GPU. */
  repeats: number;
}

/** The child's supervisor, and the child's memory. */
interface Supervised {
  readonly supervisor: Supervisor;
  readonly memory: MemoryClaim;
  readonly means: Means;
  /** The model was not loaded at the start, and is loaded on demand. */
  readonly isOnDemand: boolean;
}

/**
 * - `fetching`: the model file is missing, or not checked yet.
 * - `unusable`: there will never be a child, and why.
 * - `supervised`: there is a child when there is work and memory for it; its supervisor says which.
 * - `closed`: with a supervisor that may still be ending.
 */
type State =
  | { readonly kind: 'fetching' }
  | { readonly kind: 'unusable'; readonly detail: string }
  | ({ readonly kind: 'supervised' } & Supervised)
  | { readonly kind: 'closed'; readonly supervised: Supervised | undefined };

class ForkedLlamaEngine implements LlamaEngine {
  readonly #options: LlamaEngineOptions;
  readonly #exchanges = new Map<number, Exchange>();
  readonly #quarantine = new CrashQuarantine();
  readonly #speed = new SpeedMeter();
  readonly #residence: Residence;
  readonly #firstToken: FirstTokenOptions;
  #state: State = { kind: 'fetching' };
  /** What the child reported when it was last ready; before that, what was requested. */
  #loaded: { readonly slots: number; readonly contextLength: number; readonly vocabularySize: number | undefined };
  #counting = 0;
  #countsBegun = 0;
  #jobs = 0;
  #lastRequest = 0;
  readonly ready: Promise<void>;

  constructor(options: LlamaEngineOptions) {
    this.#options = options;
    this.#firstToken = firstTokenOptions(options.firstTokenTimeoutMs);
    this.#loaded = { slots: 1, contextLength: options.contextLength, vocabularySize: undefined };
    this.#residence = new Residence({
      isPinned: options.isPinned ?? false,
      isIdle: () => this.#countsBegun === 0 && [...this.#exchanges.values()].every(({ begunMs }) => begunMs === 0),
      onWait: (bytes) => options.log({ model: options.name, event: 'waits-for-memory', bytes }),
    });
    this.ready = options.modelFile.then(
      (modelFile) => this.#supervise(modelFile),
      (error: unknown) => {
        const reason = error instanceof Error ? error.message : 'unknown reason';
        this.#fail(`The model file could not be fetched: ${reason}`);
        throw error;
      },
    );
    this.ready.catch(() => {});
  }

  get #purpose(): Purpose {
    return this.#options.purpose ?? 'write';
  }

  get pid(): number | undefined {
    return this.#supervisor?.pid;
  }

  async measure(): Promise<ChildMeasure> {
    return (await this.#supervisor?.measure()) ?? { rssBytes: 0, working: 0 };
  }

  get waiting(): number {
    return Math.max(0, this.#jobs - this.#loaded.slots);
  }

  get vocabularySize(): number | undefined {
    return this.#loaded.vocabularySize;
  }

  status(): EngineStatus {
    switch (this.#state.kind) {
      case 'fetching':
        return { state: 'starting', detail: 'The model file is being fetched.' };
      case 'unusable':
        return { state: 'down', detail: this.#state.detail };
      case 'supervised': {
        const { supervisor, isOnDemand } = this.#state;
        return supervisor.state.state === 'starting' && isOnDemand
          ? { state: 'ready', detail: 'The model is loaded when it is asked for.' }
          : supervisor.state;
      }
      case 'closed':
        return { state: 'down', detail: 'The engine is closed.' };
    }
  }

  get residence(): ResidenceReport {
    const { state } = this.#residence;
    const { memory, means } = this.#supervised ?? {};
    return {
      ...{ state, memoryBytes: memory?.bytes, tokensPerSecond: this.#speed.tokensPerSecond },
      compute: means?.report,
    };
  }

  async generate(request: EngineRequest, signal: StopSignal, take: TakeBatch): Promise<void> {
    signal.throwIfAborted();
    this.#refuse(request);
    const content = request.retain
      ? [request.prompt, request.logitBias, request.constraint?.gbnf, request.tools, request.task]
      : undefined;
    if (content !== undefined && this.#quarantine.isQuarantined(content))
      throw failed('This request crashed the engine of the model twice and is not tried again.');
    const channel = new Channel();
    const { id, exchange } = this.#open({ channel, jobs: jobsOf(request), content }, workOf(request));
    const abandon = () => {
      channel.fail(signal.reason);
      this.#cancel(id);
    };
    signal.addEventListener('abort', abandon, { once: true });
    try {
      this.#residence.run(exchange.work);
      let answered = false;
      let unreported = 0;
      for (;;) {
        const idleAtMs = performance.now() + (this.#options.idleTimeoutMs ?? 60_000);
        const lateAtMs = (): number => (answered ? idleAtMs : exchange.firstToken.lateAtMs);
        const taken = await channel.take(lateAtMs, () => this.#tooLate(exchange));
        unreported += taken.tokens;
        if (unreported >= reportTokens && !taken.last) {
          this.#supervisor?.forWork().note('taken', { request: id, tokens: unreported });
          unreported = 0;
        }
        answered ||= taken.tokens > 0;
        const goesOn = take(taken.events);
        if (goesOn !== true && !(await goesOn)) return;
        if (taken.last) return;
      }
    } finally {
      signal.removeEventListener('abort', abandon);
      this.#cancel(id);
    }
  }

  async countTokens(request: EngineRequest, signal: StopSignal): Promise<number> {
    signal.throwIfAborted();
    this.#refuse(request);
    if (this.#counting >= countsMax) throw atCapacity(countsMax);
    this.#counting++;
    try {
      return await this.#whenLoaded(signal, () => this.#count(workOf(request), signal));
    } finally {
      this.#counting--;
    }
  }

  /** Waits until the model is in memory, where it stays until the work is done. */
  async #whenLoaded<Value>(signal: StopSignal, act: () => Promise<Value>): Promise<Value> {
    const { promise: begun, resolve, reject } = deferred();
    const work: Waiting = {
      begin: () => {
        hasBegun = true;
        this.#countsBegun++;
        resolve();
      },
      fail: reject,
    };
    let hasBegun = false;
    const abandon = (): void => reject(signal.reason);
    const timer = setTimeout(() => reject(timedOut()), countTimeoutMs);
    signal.addEventListener('abort', abandon, { once: true });
    try {
      this.#residence.run(work);
      await begun;
      return await act();
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abandon);
      if (hasBegun) this.#countsBegun--;
      this.#residence.drop(work);
    }
  }

  async #count(work: Work, signal: StopSignal): Promise<number> {
    const id = ++this.#lastRequest;
    const child = this.#supervisor?.forWork();
    if (child === undefined) throw closed();
    try {
      const counted = await child.call('count', { request: id, work }, { timeoutMs: countTimeoutMs, signal });
      if ('refusal' in counted) throw this.#refused(counted.refusal);
      return counted.tokens;
    } catch (error) {
      if (signal.aborted || (error instanceof RpcError && error.code === 'timeout')) child.note('cancel', id);
      throw error instanceof RpcError ? this.#lostCount(error) : error;
    }
  }

  async close(): Promise<void> {
    const supervised = this.#supervised;
    this.#state = { kind: 'closed', supervised };
    this.#failAll(closed);
    this.#residence.failAll(closed);
    await supervised?.supervisor.close();
    supervised?.memory.release();
    supervised?.means.release();
  }

  get #supervised(): Supervised | undefined {
    if (this.#state.kind === 'closed') return this.#state.supervised;
    return this.#state.kind === 'supervised' ? this.#state : undefined;
  }

  get #supervisor(): Supervisor | undefined {
    return this.#supervised?.supervisor;
  }

  #isClosed(): boolean {
    return this.#state.kind === 'closed';
  }

  #fail(detail: string): void {
    if (!this.#isClosed()) this.#state = { kind: 'unusable', detail };
  }

  async #supervise(modelFile: string): Promise<void> {
    const { name: model, log, isPinned } = this.#options;
    let supervised: Supervised;
    try {
      const header = await readGgufHeader(modelFile);
      refuseOtherPurpose(header, this.#purpose);
      const contextLength = Math.min(this.#options.contextLength, header.contextLength ?? Infinity);
      if (this.#isClosed()) throw new Error('The engine was closed before it was ready.');
      const { slots } = this.#options;
      const needs = memoryNeedsOf(header, { purpose: this.#purpose, contextLength, slots });
      const { memory, means } = await this.#claim(header, needs);
      const supervisor = this.#supervisorOf(modelFile, contextLength, header, memory, means);
      this.#loaded = { slots: memory.slots, contextLength, vocabularySize: header.vocabularySize };
      this.#residence.settleIn(memory, supervisor);
      if (isPinned === true) memory.request();
      const isOnDemand = isPinned !== true && !memory.requestIfFree();
      supervised = { supervisor, memory, means, isOnDemand };
      this.#state = { kind: 'supervised', ...supervised };
    } catch (error) {
      const reason = error instanceof ModelRefused ? error.message : codeOf(error);
      if (!this.#isClosed()) log({ model, event: 'failed', reason });
      this.#fail(`The model cannot be used: ${reason}`);
      throw error;
    }
    const { supervisor, memory, means, isOnDemand } = supervised;
    const loaded = supervisor.ready.catch((error: unknown) => {
      memory.release();
      means.release();
      throw error;
    });
    if (!isOnDemand) return loaded;
    loaded.catch(() => {});
  }

  /** Chooses what the model is computed on, and reserves the memory for it: the computer's, and that of GPUs. */
  async #claim(
    header: GgufHeader,
    needs: MemoryNeeds,
  ): Promise<{ readonly memory: MemoryClaim; readonly means: Means }> {
    const { name: model, gpu, log } = this.#options;
    const reserved = await gpu?.search.reserve(gpu.setting, layerNeedsOf(header, needs));
    try {
      if (this.#isClosed()) throw new Error('The engine was closed before it was ready.');
      const budget = this.#options.memory ?? new MemoryBudget({ cacheBytesMax: undefined, models: 1 });
      const compute = reserved?.compute ?? processorOnly;
      const memory = budget.register(needsBeside(needs, compute), this.#residence);
      const onLost = (reason: string, next: 'gpu' | 'processor'): void =>
        log({ model, event: 'gpu-lost', reason, next });
      const means = new Means(compute, { memory, needs, release: () => reserved?.release(), onLost });
      const { with: computer, isOfNote, note = '' } = means.report;
      if (isOfNote) log({ model, event: 'computes', with: computer, reason: note });
      return { memory, means };
    } catch (error) {
      reserved?.release();
      throw error;
    }
  }

  #supervisorOf(
    modelFile: string,
    contextLength: number,
    header: GgufHeader,
    memory: MemoryClaim,
    means: Means,
  ): Supervisor {
    const { name: model, log } = this.#options;
    const threadsMax = this.#options.threads ?? defaultThreads();
    return new Supervisor({
      variables: this.#options.variables ?? {},
      load: () => ({
        modelFile,
        purpose: this.#purpose,
        contextLength,
        slots: memory.slots,
        contexts: windowsOf(contextLength, memory.slots).map((window) => ({
          window,
          batchTokens: taskBatchTokens(header, window),
        })),
        defaultSystem: this.#options.defaultSystem,
        gpu: means.use,
        decodeThreads: this.#options.decodeThreads,
        threadsMax,
        readingMsMax: this.#firstToken.readingMsMax,
      }),
      silenceMs: this.#options.silenceMs ?? 4000,
      loadTimeoutMs: this.#options.loadTimeoutMs ?? 600_000,
      // The file may be in memory twice: unchanged, and repacked for the processor.
      rssBytesMax: this.#options.rssBytesMax ?? header.fileBytes * 2 + memory.cacheBytes + 2 ** 30,
      idleUnloadMs: this.#options.idleUnloadMs,
      isIdle: () => this.#exchanges.size === 0 && this.#counting === 0,
      handlers: {
        events: ({ request, events, tokens, last }) => this.#put(request, events, tokens, last),
        refused: ({ request, refusal }) => {
          const error = this.#refused(refusal);
          this.#release(request)?.channel.fail(error);
        },
        reading: (request) => this.#exchanges.get(request)?.firstToken.hasRead(performance.now()),
      },
      onReady: ({ slots, contextLength, vocabularySize }) => {
        this.#loaded = { slots, contextLength, vocabularySize };
        this.#residence.loaded();
      },
      retreat: (loss) => means.retreat(loss),
      onLost: (loss) => this.#lose(loss, means),
      onIdle: () => memory.leave(),
      onMeasured: ({ rssBytes }) => memory.measured(rssBytes),
      onEvent: (event) => log({ model, ...event }),
    });
  }

  #refuse(request: EngineRequest): void {
    refuseUnfit(request);
    if ((request.task?.type ?? 'write') !== this.#purpose)
      throw new ApiError('unsupported_feature', 'This model does not take such requests.', { param: 'model' });
    const status = this.status();
    if (status.state !== 'ready')
      throw away(
        status.state === 'starting' ? 'The model is still being loaded.' : 'The engine of this model is not available.',
      );
    refuseOversized(request.prompt, this.#loaded.contextLength, offeredTools(request));
  }

  #open(
    { jobs, ...others }: Pick<Exchange, 'channel' | 'jobs' | 'content'>,
    work: Work,
  ): { readonly id: number; readonly exchange: Exchange } {
    const jobsMax = this.#loaded.slots + (this.#options.queueLimit ?? 64);
    if (this.#jobs >= jobsMax) throw atCapacity(jobsMax);
    const id = ++this.#lastRequest;
    const exchange: Exchange = {
      ...others,
      jobs,
      firstToken: new FirstTokenTime(this.#firstToken, performance.now()),
      work: {
        begin: () => {
          exchange.begunMs = performance.now();
          this.#supervisor?.forWork().note('generate', { request: id, work });
        },
        fail: (error) => this.#release(id)?.channel.fail(error),
      },
      begunMs: 0,
      firstMs: 0,
      tokens: 0,
      isAnswered: false,
      repeats: 0,
    };
    this.#exchanges.set(id, exchange);
    this.#jobs += jobs;
    return { id, exchange };
  }

  /** Frees the slot; returns the exchange if it was still open. */
  #release(id: number): Exchange | undefined {
    const exchange = this.#exchanges.get(id);
    if (exchange !== undefined) {
      this.#exchanges.delete(id);
      this.#jobs -= exchange.jobs;
      this.#residence.drop(exchange.work);
    }
    return exchange;
  }

  #cancel(id: number): void {
    const exchange = this.#release(id);
    if (exchange !== undefined && exchange.begunMs > 0) this.#supervisor?.forWork().note('cancel', id);
  }

  #put(request: number, events: readonly GenerationEvent[], tokens: number, last: boolean): void {
    // Messages for a cancelled request may still be on their way.
    const exchange = this.#exchanges.get(request);
    if (exchange === undefined) return;
    exchange.isAnswered = true;
    exchange.channel.put(events, tokens, last);
    this.#time(exchange, events, tokens, last);
    if (!last) return;
    this.#release(request);
    if (exchange.content !== undefined) this.#quarantine.clear(exchange.content);
  }

  #time(exchange: Exchange, events: readonly GenerationEvent[], tokens: number, last: boolean): void {
    const nowMs = performance.now();
    if (this.#purpose !== 'write') {
      // Tasks only read their inputs; nothing is written.
      for (const event of events) if (event.type === 'start') exchange.tokens = event.promptTokens ?? 0;
      if (last) this.#speed.observe(exchange.tokens, nowMs - exchange.begunMs);
      return;
    }
    if (exchange.firstMs > 0) exchange.tokens += tokens;
    else if (tokens > 0) exchange.firstMs = nowMs;
    if (last && exchange.firstMs > 0) this.#speed.observe(exchange.tokens, nowMs - exchange.firstMs);
  }

  /** Returns the error for a late first token; if the model was not loaded in time, the client is told so. */
  #tooLate({ begunMs }: Exchange): ApiError {
    return begunMs > 0 ? timedOut() : notLoadedInTime();
  }

  #refused(refusal: Refusal): ApiError {
    const { code, message, param, extra, detail } = refusal;
    if (detail !== undefined) this.#options.log({ model: this.#options.name, event: 'request-failed', code, detail });
    return new ApiError(code, message, { param, extra });
  }

  #lostCount(error: RpcError): ApiError {
    if (error.code === 'timeout') return timedOut();
    return this.#isClosed() ? closed() : stopped();
  }

  /** Ends the requests that a dead child worked on, and no others (reliability E1). */
  #lose({ loaded, isHopeless }: Loss, { wasOnGpu }: Means): void {
    const begun = [...this.#exchanges].filter(([, { begunMs }]) => begunMs > 0);
    // A child that dies with its GPU says nothing about its requests: after two such deaths the processor answers.
    if (loaded && !wasOnGpu) {
      const contents = begun.map(([, { content }]) => content);
      this.#quarantine.record(contents.filter((content) => content !== undefined));
    }
    for (const [id, exchange] of begun) {
      // Requests without any output yet, many of which only waited in the child for their turn, go to the next child.
      if (wasOnGpu && !isHopeless && !exchange.isAnswered && exchange.repeats < repeatsMax) {
        exchange.repeats++;
        exchange.begunMs = 0;
        this.#residence.run(exchange.work);
      } else this.#release(id)?.channel.fail(stopped());
    }
    // Requests that wait for the model wait for the next child.
    if (isHopeless) this.#residence.failAll(stopped);
  }

  #failAll(error: () => ApiError): void {
    for (const id of [...this.#exchanges.keys()]) this.#release(id)?.channel.fail(error());
  }
}

/** The GPU is tried twice, and then the processor. */
const repeatsMax = 2;
/** The child is notified of reads in batches, far smaller than it may run ahead. */
const reportTokens = unreadTokensMax / 4;
const countsMax = 256;
const countTimeoutMs = 30_000;

function workOf(request: EngineRequest): Work {
  const { prompt, choices, maxTokens, sampling, stop, logprobs, logitBias, cacheScope, retain, constraint } = request;
  const { tools, toolChoice, parallelToolCalls, effort, reasoningForm, reasoningRoomTokens, tokens, task } = request;
  return {
    ...{ prompt, choices, maxTokens, sampling, stop, logprobs, logitBias, cacheScope, retain },
    ...{ tools, toolChoice, parallelToolCalls, effort, reasoningForm, reasoningRoomTokens },
    ...(tokens === undefined ? {} : { tokens }),
    ...(task === undefined ? {} : { task }),
    gbnf: constraint?.gbnf,
    constraintParam: constraint && constraintParam(constraint.source),
  };
}

/** Returns why a file could not be read: the system's error code, without a path. */
function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? `it cannot be read (${String(error.code)})` : 'it cannot be read';
}

function away(message: string): ApiError {
  return new ApiError('no_healthy_backends', message);
}

function failed(message: string): ApiError {
  return new ApiError('backend_http_error', message);
}

const closed = (): ApiError => away('The engine of this model is closed.');

const stopped = (): ApiError => failed('The engine of this model stopped while it worked on this request.');

function timedOut(): ApiError {
  return new ApiError('backend_timeout', 'The engine of this model did not answer in time.');
}

function notLoadedInTime(): ApiError {
  return new ApiError(
    'backend_timeout',
    'The model could not be loaded in time; other models may be using the memory.',
  );
}

function atCapacity(jobsMax: number): ApiError {
  return new ApiError('backend_at_capacity', 'All slots of this model are in use.', atCap(jobsMax, 1));
}
