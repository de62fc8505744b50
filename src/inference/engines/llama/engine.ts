import { ApiError } from '../../../platform/errors.ts';
import type { TakeBatch } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import type { Engine, EngineStatus, ResidenceReport } from '../engine.ts';
import { defaultThreads } from './addon.ts';
import type { GpuSetting } from './compute.ts';
import { Supervisor, type ChildEvent } from './child-process.ts';
import { ChildRequests } from './child-requests.ts';
import { checkGgufAdapter, readGgufHeader, type GgufHeader } from './gguf-header.ts';
import { firstTokenOptions, type FirstTokenOptions } from './first-token-time.ts';
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
import type { AdapterUse, ChildMeasure, LoadOptions } from './protocol.ts';
import { refuseOtherPurpose, type Purpose } from './purpose.ts';
import { Residence } from './residence.ts';
import { refuseUnfit } from './unfit.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';

export interface LlamaEngineOptions {
  /** The model's id, for status and logs. */
  readonly name: string;
  /** Resolves when the GGUF file is on disk. Until then the engine is starting; if it rejects, the engine is down for that reason. */
  readonly modelFile: Promise<string>;
  /** A LoRA that is applied to it, on disk when the model is. */
  readonly adapter?: Promise<AdapterUse | undefined>;
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
  readonly #requests: ChildRequests;
  readonly #residence: Residence;
  readonly #firstToken: FirstTokenOptions;
  #state: State = { kind: 'fetching' };
  /** What the child reported when it was last ready; before that, what was requested. */
  #loaded: { readonly slots: number; readonly contextLength: number; readonly vocabularySize: number | undefined };
  readonly ready: Promise<void>;

  constructor(options: LlamaEngineOptions) {
    this.#options = options;
    this.#firstToken = firstTokenOptions(options.firstTokenTimeoutMs);
    this.#loaded = { slots: 1, contextLength: options.contextLength, vocabularySize: undefined };
    this.#residence = new Residence({
      isPinned: options.isPinned ?? false,
      isIdle: () => this.#requests.isIdle,
      onWait: (bytes) => options.log({ model: options.name, event: 'waits-for-memory', bytes }),
    });
    this.#requests = new ChildRequests({
      purpose: this.#purpose,
      queueLimit: options.queueLimit,
      firstToken: this.#firstToken,
      idleTimeoutMs: options.idleTimeoutMs,
      residence: this.#residence,
      supervisor: () => this.#supervisor,
      slots: () => this.#loaded.slots,
      onFailed: (code, detail) => options.log({ model: options.name, event: 'request-failed', code, detail }),
    });
    this.ready = Promise.all([options.modelFile, options.adapter]).then(
      ([modelFile, adapter]) => this.#supervise(modelFile, adapter),
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

  get slots(): number {
    return this.#loaded.slots;
  }

  get waiting(): number {
    return this.#requests.waiting;
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
      ...{ state, memoryBytes: memory?.bytes, tokensPerSecond: this.#requests.tokensPerSecond },
      compute: means?.report,
    };
  }

  async generate(request: EngineRequest, signal: StopSignal, take: TakeBatch): Promise<void> {
    signal.throwIfAborted();
    this.#refuse(request);
    await this.#requests.generate(request, signal, take);
  }

  async countTokens(request: EngineRequest, signal: StopSignal): Promise<number> {
    signal.throwIfAborted();
    this.#refuse(request);
    return this.#requests.count(request, signal);
  }

  async close(): Promise<void> {
    const supervised = this.#supervised;
    this.#state = { kind: 'closed', supervised };
    this.#requests.close();
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

  async #supervise(modelFile: string, adapter: AdapterUse | undefined): Promise<void> {
    const { name: model, log, isPinned } = this.#options;
    let supervised: Supervised;
    try {
      const base = await readGgufHeader(modelFile);
      const adapterBytes = adapter === undefined ? 0 : await checkGgufAdapter(adapter.file, base);
      const header = { ...base, fileBytes: base.fileBytes + adapterBytes };
      refuseOtherPurpose(header, this.#purpose);
      const contextLength = Math.min(this.#options.contextLength, header.contextLength ?? Infinity);
      if (this.#isClosed()) throw new Error('The engine was closed before it was ready.');
      const { slots } = this.#options;
      const needs = memoryNeedsOf(header, { purpose: this.#purpose, contextLength, slots });
      const { memory, means } = await this.#claim(header, needs);
      const supervisor = this.#supervisorOf({ modelFile, adapter }, contextLength, header, memory, means);
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
    files: Pick<LoadOptions, 'modelFile' | 'adapter'>,
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
        ...files,
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
      isIdle: () => this.#requests.isEmpty,
      handlers: this.#requests.handlers,
      onReady: ({ slots, contextLength, vocabularySize }) => {
        this.#loaded = { slots, contextLength, vocabularySize };
        this.#residence.loaded();
      },
      retreat: (loss) => means.retreat(loss),
      onLost: (loss) => this.#requests.lose(loss, means.wasOnGpu),
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
}

/** Returns why a file could not be read: the system's error code, without a path. */
function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? `it cannot be read (${String(error.code)})` : 'it cannot be read';
}

function away(message: string): ApiError {
  return new ApiError('no_healthy_backends', message);
}
