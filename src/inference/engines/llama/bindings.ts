import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { availableParallelism, constants } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Llama, LlamaContextSequence } from 'node-llama-cpp';
import { threadPoolUrl } from '../../../platform/entries.ts';
import type { GpuBuild, GpuDevices, GpuUse } from './compute.ts';
import { byteReader } from './token-bytes.ts';
import { TokenOrder } from './token-order.ts';

/**
 * With `task-bindings.ts` the only file that knows node-llama-cpp, and the only one that touches its internals: the addon's own
 * model, context and sampler objects. The package's generators cost two locks, a scheduler and a sampler configuration per token; one loop over the
 * addon reaches 0.98–1.02 of llama-server at 8 streams, the generators 0.57. The version is pinned, the shape is checked when a
 * model is opened, and `tests/inference/engines/llama/bindings.test.ts` holds what each call must do.
 */
export async function openModel(options: OpenOptions): Promise<LlamaModel> {
  const llama = await openEngine(options);
  const model = await llama.loadModel({
    modelPath: options.modelFile,
    gpuLayers: layersOn(options.gpu),
    defaultContextFlashAttention: 'auto',
  });
  const contextLength = Math.min(options.contextLength, model.trainContextSize);
  const { slots } = options;
  const context = await model.createContext({
    sequences: slots,
    contextSize: contextLength,
    batchSize: Math.max(options.batchTokens, slots),
    threads: threadsAtFirst,
    flashAttention: 'auto',
  });
  const addon = addonOf({ llama, model, context });
  const chooser = chooserOf(addon.context);
  // Each object reserves one sequence id; its finaliser gives the id back, so they must stay referenced.
  const sequences: LlamaContextSequence[] = Array.from({ length: slots }, () => context.getSequence());
  const ids = sequences.map((sequence) => (sequence as unknown as { readonly _sequenceId: number })._sequenceId);
  const tokenizer: unknown = model.fileInfo.metadata.tokenizer;
  const template = isRecord(tokenizer) ? tokenizer['chat_template'] : undefined;
  const bytesOf = byteReader(addon.model, addon.model.getVocabularyType() === bytePairVocabulary);
  // What a GPU's driver throws would end the process.
  const here = options.gpu === false ? chooser : undefined;
  let threadsNow: number | undefined;
  let batchLength = 0;

  return {
    facts: {
      slots,
      contextLength,
      batchTokens: context.batchSize,
      vocabularySize: vocabularySizeOf(tokenizer),
      chatTemplate: typeof template === 'string' ? template : undefined,
      bos: model.tokens.bos ?? undefined,
      eos: model.tokens.eos ?? model.tokens.eot ?? undefined,
      prependBos: model.tokens.shouldPrependBosToken,
      bosText: model.tokens.bosString ?? '',
      eosText: model.tokens.eosString ?? '',
    },
    tokenize: (text, special) => (text === '' ? new Uint32Array(0) : addon.model.tokenize(text, special)),
    // Control tokens are not text; user-defined ones (`<think>`) are.
    detokenize: (ids) => addon.model.detokenize(Uint32Array.from(ids), false),
    tokenText: (id) => addon.model.getTokenString(id),
    tokenBytes: (id) => bytesOf(id),
    tokenTraits: (id) => traitsOf(addon.model.getTokenAttributes(id)),
    isEndOfGeneration: (id) => addon.model.isEogToken(id),
    ...choicesOf(addon, chooser, vocabularySizeOf(tokenizer), bytesOf),
    createLogprobs: (top) => new LogprobsHandle(top, () => new addon.Sampler(addon.model)),
    beginBatch: (tokens) => {
      addon.context.initBatch(tokens);
      batchLength = 0;
    },
    addToBatch: (slot, position, tokens, sampled) => {
      batchLength += tokens.length;
      const last = sampled ? Uint32Array.of(tokens.length - 1) : noTokens;
      return addon.context.addToBatch(ids[slot] ?? -1, position, tokens, last)[0];
    },
    addScoredToBatch: (slot, position, tokens) => {
      batchLength += tokens.length;
      return [...addon.context.addToBatch(ids[slot] ?? -1, position, tokens, Uint32Array.from(tokens.keys()))];
    },
    decode: (threads, hereMs = 0) => {
      if (threads !== threadsNow) addon.context.setThreads(threads);
      threadsNow = threads;
      const outcome = hereMs > 0 ? here?.library.decode(here.context, batchLength, hereMs) : undefined;
      if (outcome === 0) return undefined;
      // Also what cannot be computed is left to the addon, which says why.
      return addon.context.decodeBatch();
    },
    settle: async (logits, logprobs) => logprobsHandleOf(logprobs).settle(addon.context, logits),
    logprobs: (logits, logprobs, id) => logprobsHandleOf(logprobs).of(addon.context, logits, id),
    sample: (wanted, done) => sample(addon, wanted, done),
    truncate: (slot, length) => {
      const id = ids[slot] ?? -1;
      const removed = addon.context.removeTokenCellsFromSequence(id, length, -1);
      // Sliding windows forget their beginning and recurrent states cannot go back: such a cache is useless.
      if (length > 0 && removed && addon.context.getSequenceKvCacheMinPosition(id) === 0) return length;
      addon.context.removeTokenCellsFromSequence(id, 0, -1);
      return 0;
    },
    cachedTokens: (slot) => addon.context.getSequenceKvCacheMaxPosition(ids[slot] ?? -1) + 1,
    dispose: async () => {
      sequences.length = 0;
      await llama.dispose();
    },
  };
}

/** Our own library, and the context as it knows it. */
interface Chooser {
  readonly library: Library;
  readonly context: object;
}

function chooserOf(context: AddonContext): Chooser | undefined {
  const library = ownLibrary();
  if (library === undefined) return undefined;
  context.setThreads(threadsAtFirst);
  return { library, context: library.context() };
}

function choicesOf(
  addon: Addon,
  chooser: Chooser | undefined,
  size: number,
  bytesOf: (id: number) => readonly number[],
): Pick<LlamaModel, 'createSampler' | 'createGrammar'> {
  let made: TokenOrder | undefined;
  const order = (): TokenOrder =>
    (made ??= new TokenOrder({ size, bytesOf, isEnd: (id) => addon.model.isEogToken(id) }));
  return {
    createSampler: () => {
      const onThreads = (): ThreadSampler => new ThreadSampler(() => new addon.Sampler(addon.model), order);
      return chooser === undefined ? onThreads() : new QuickSampler(chooser, onThreads, order);
    },
    createGrammar: (gbnf) => {
      const compiled = new addon.Grammar(gbnf, { addonExports: addon.exports, rootRuleName: 'root' });
      // With the first grammar, before an answer has begun.
      order();
      return {
        begin: () => {
          const state = new addon.GrammarState(addon.model, compiled);
          return new GrammarStateHandle(state, addon.Sampler, chooser?.library);
        },
      };
    },
  };
}

async function sample(
  { context }: ReturnType<typeof addonOf>,
  wanted: readonly Wanted[],
  done?: (index: number) => void,
): Promise<readonly number[]> {
  const one = async ({ logits, sampler }: Wanted, index: number): Promise<number> => {
    try {
      return await samplerOf(sampler).sample(context, logits);
    } catch {
      // A token that its grammar cannot take, which does not affect the other answers.
      return -1;
    } finally {
      done?.(index);
    }
  };
  const [first, ...others] = wanted;
  if (first === undefined) return [];
  // llama.cpp reorders the logits of a batch at the first access, without a lock: two samplers at that moment swap the
  // answers of two requests (seen 53 times in 20,000 steps of 4). The first one runs alone.
  const id = await one(first, 0);
  return [id, ...(await Promise.all(others.map((each, index) => one(each, index + 1))))];
}

/** Loads the native library. Rejects, or ends the process, where the library cannot run. */
export async function openEngine({ gpu, threadsMax }: EngineChoice): Promise<Llama> {
  ownLibrary();
  // Only the engine child pays for this import, and the service runs without the package.
  const { getLlama, Llama, LlamaLogLevel } = await import('node-llama-cpp');
  const quiet = {
    progressLogs: false,
    logLevel: LlamaLogLevel.disabled,
    logger: () => {},
    maxThreads: threadsMax,
  } as const;
  const llama =
    gpu === false || gpu.folder === undefined
      ? // "auto" would start a compiler when the prebuilt binary does not load. Of a Mac with Apple's processor there is one build, which
        // has Metal and is used for both.
        await getLlama({
          ...quiet,
          gpu: gpu === false ? hasMetal && 'metal' : gpu.kind,
          build: 'never',
          skipDownload: true,
        })
      : await openBuild(Llama, gpu.folder, gpu.furtherFolder, quiet);
  if (layersOn(gpu) === 0 || (await llama.getGpuDeviceNames()).length > 0) return llama;
  // Without a device llama.cpp would compute with the processor and say nothing.
  throw new Error('the GPU is not there any more');
}

/** Of a new context, which gets its pool when its number of threads changes, as it does before its first step with several. */
export const threadsAtFirst = 1;

let loaded: { readonly library: Library | undefined } | undefined;

/**
 * Whether llama.cpp keeps its threads between two steps: `thread-pool.c` sees to it, and must be loaded before llama.cpp. Without it
 * (another system than Linux, no compiler when the program was built) a step with several threads starts and joins them.
 */
export const keepThreads = (): boolean => ownLibrary() !== undefined;

/** What `choice.c` offers. Contexts, grammars and samplers are addresses. */
interface Library {
  context(): object;
  grammar(): object;
  decode(context: object, tokens: number, msMax: number): number;
  sampler(): object;
  configure(sampler: object, numbers: Float64Array, biasIds: Uint32Array, biasValues: Float32Array): void;
  sample(context: object, logits: number, sampler: object): number;
  sampleAmong(context: object, logits: number, sampler: object, ids: Uint32Array): number;
  sampleAllowed(context: object, logits: number, sampler: object, grammar: object): number;
  allowed(grammar: object, ids: Uint32Array, answers: Uint8Array): boolean;
}

function ownLibrary(): Library | undefined {
  loaded ??= { library: loadLibrary() };
  return loaded.library;
}

function loadLibrary(): Library | undefined {
  const module = { exports: {} };
  try {
    process.dlopen(module, fileURLToPath(threadPoolUrl()), constants.dlopen.RTLD_NOW | constants.dlopen.RTLD_GLOBAL);
    return module.exports as Library;
  } catch {
    return undefined;
  }
}

const hasMetal = process.platform === 'darwin' && process.arch === 'arm64';

export const layersOn = (gpu: false | GpuUse): number => (gpu === false ? 0 : gpu.layers);

interface EngineChoice {
  /** `false`: it is computed with the processor. */
  readonly gpu: false | GpuUse;
  readonly threadsMax: number;
}

/**
 * A build that lies in a folder of ours: the package looks for builds among its own dependencies alone. What it would do with such a
 * folder (`loadExistingLlamaBinary` in its `getLlama.js`) is done here.
 */
async function openBuild(
  library: object,
  folder: string,
  furtherFolder: string | undefined,
  quiet: object,
): Promise<Llama> {
  const { _create: create } = library as { readonly _create?: (options: object) => Promise<Llama> };
  if (create === undefined) throw otherVersion('Llama._create');
  const bindingPath = path.join(folder, 'llama-addon.node');
  const buildMetadata: unknown = JSON.parse(await readFile(path.join(folder, '_nlcBuildMetadata.json'), 'utf8'));
  return await create.call(library, {
    ...quiet,
    ...{ bindings: createRequire(bindingPath)(bindingPath) as unknown, bindingPath, extBackendsPath: furtherFolder },
    ...{ buildType: 'prebuilt', buildMetadata, vramPadding: vramPaddingOf, ramPadding: 0 },
    ...{ debug: false, numa: false, tempDir: false },
  });
}

/** As the package leaves it by default. */
const vramPaddingOf = (totalBytes: number): number => Math.floor(Math.min(totalBytes * 0.08, 1.6 * 2 ** 30));

/** The devices that a build sees. */
export async function devicesOf(gpu: GpuBuild): Promise<GpuDevices> {
  const llama = await openEngine({ gpu: { ...gpu, layers: 0 }, threadsMax: 1 });
  const [names, { total, free, unifiedSize }] = await Promise.all([llama.getGpuDeviceNames(), llama.getVramState()]);
  return { names, totalBytes: total, freeBytes: free, isUnified: unifiedSize > 0 };
}

export interface OpenOptions extends EngineChoice {
  readonly modelFile: string;
  /** Tokens per sequence; lowered to the model's training length. */
  readonly contextLength: number;
  /** Number of sequences; each takes memory for all of its tokens at once. */
  readonly slots: number;
  readonly batchTokens: number;
}

/** A token's traits: control tokens steer the model, user-defined ones are found in any text before it is split. */
export interface TokenTraits {
  readonly kind: 'control' | 'user-defined' | 'plain';
  /** Whether the token swallows white space before or after it. */
  readonly stripsBefore: boolean;
  readonly stripsAfter: boolean;
}

export interface ModelFacts {
  readonly slots: number;
  readonly contextLength: number;
  /** Most tokens that one decode takes. */
  readonly batchTokens: number;
  readonly vocabularySize: number;
  readonly chatTemplate: string | undefined;
  readonly bos: number | undefined;
  /** The token that ends an answer; a model may have several. */
  readonly eos: number | undefined;
  readonly prependBos: boolean;
  readonly bosText: string;
  readonly eosText: string;
}

/** A loaded model with one context. Only one batch is processed at a time: begin, add, decode, sample. */
export interface LlamaModel {
  readonly facts: ModelFacts;
  /** `special`: literals of control tokens become those tokens. User-defined tokens are found either way. */
  tokenize(text: string, special: boolean): Uint32Array;
  /** Incomplete UTF-8 comes out as U+FFFD. */
  detokenize(ids: readonly number[]): string;
  tokenText(id: number): string;
  /** The bytes that a token stands for, even if they are half a character. */
  tokenBytes(id: number): readonly number[];
  tokenTraits(id: number): TokenTraits;
  isEndOfGeneration(id: number): boolean;
  createSampler(): Sampler;
  /** Throws when llama.cpp cannot read it. The start rule is `root`. */
  createGrammar(gbnf: string): Grammar;
  /** For the chosen token and the `top` likeliest ones. */
  createLogprobs(top: number): Logprobs;
  beginBatch(tokens: number): void;
  /** `sampled` requests logits after the last token; returns where they will be. */
  addToBatch(slot: number, position: number, tokens: Uint32Array, sampled: boolean): number | undefined;
  /** The same with logits after each token. They take 4 bytes per token of the vocabulary. */
  addScoredToBatch(slot: number, position: number, tokens: Uint32Array): readonly number[];
  /**
   * On another thread. With `hereMs` it is tried in this one first, where that is possible, and given up after so many milliseconds; when
   * it succeeds it is over as the call returns, and there is no promise.
   */
  decode(threads: number, hereMs?: number): Promise<void> | undefined;
  /** Must be called before `logprobs` when nothing of the batch was sampled. */
  settle(logits: number, logprobs: Logprobs): Promise<void>;
  /** A token for each answer in the batch, -1 where none fits. Runs on the thread pool, on several cores. */
  sample(wanted: readonly Wanted[], done?: (index: number) => void): Promise<readonly number[]>;
  /** How likely the model found a token there, unaffected by samplers. Only after `sample` of the same batch. */
  logprobs(logits: number, logprobs: Logprobs, id: number): Promise<TokenLogprobs>;
  /** Drops a slot's tokens from `length` on; returns how many are left, which may be 0. */
  truncate(slot: number, length: number): number;
  cachedTokens(slot: number): number;
  dispose(): Promise<void>;
}

/** Where the logits are (`addToBatch`), and what picks the token. */
export interface Wanted {
  readonly logits: number;
  readonly sampler: Sampler;
}

/** All numbers are finite; a key that is present but undefined would be an error inside the addon. */
export interface SamplerConfig {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly seed: number;
  readonly repeatPenalty?: number;
  readonly repeatPenaltyTokens?: Uint32Array;
  readonly repeatPenaltyMaxTokens?: number;
  readonly repeatPenaltyPresencePenalty?: number;
  readonly repeatPenaltyFrequencyPenalty?: number;
  readonly tokenBiasKeys?: Uint32Array;
  readonly tokenBiasValues?: Float32Array;
  /** The grammar takes each sampled token, except for the end of a generation. */
  readonly grammar?: GrammarState;
}

/** A grammar that llama.cpp has parsed. */
export interface Grammar {
  begin(): GrammarState;
}

/** The position of one text in a grammar. */
export interface GrammarState {
  /** Whether the token may come next; the end of a generation may come when the text is complete. */
  allows(id: number): boolean;
  /** 1 in the place of each token that may come next, else 0; `undefined`: it takes too long. */
  allowsEach(ids: Uint32Array): ArrayLike<number> | undefined;
  /** Takes a token that was not sampled; `false`: it does not fit, and the state is unusable from now on. */
  take(id: number): boolean;
}

/** What one answer needs to compute its probabilities. */
export interface Logprobs {
  dispose(): void;
}

/** Natural logarithms of probabilities over the whole vocabulary. */
export interface TokenLogprobs {
  readonly logprob: number;
  /** The likeliest tokens, as many as were asked for. */
  readonly top: readonly { readonly id: number; readonly logprob: number }[];
}

/** Keeps its random state across `configure` as long as the seed is the same. */
export interface Sampler {
  configure(config: SamplerConfig): void;
  dispose(): void;
}

export const defaultThreads = (): number => availableParallelism();

const noTokens = new Uint32Array(0);

interface AddonModel {
  tokenize(text: string, special: boolean): Uint32Array;
  detokenize(tokens: Uint32Array, special: boolean): string;
  getTokenString(id: number): string;
  getTokenAttributes(id: number): number;
  isEogToken(id: number): boolean;
  getVocabularyType(): number;
}
interface AddonContext {
  initBatch(size: number): void;
  addToBatch(sequence: number, position: number, tokens: Uint32Array, logits: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
  sampleToken(logits: number, sampler: AddonSampler): Promise<number>;
  sampleToken(
    logits: number,
    sampler: AddonSampler,
    probabilities: boolean,
    confidence: boolean,
  ): Promise<readonly [id: number, probabilities: readonly number[] | undefined, confidence: number | undefined]>;
  removeTokenCellsFromSequence(sequence: number, start: number, end: number): boolean;
  getSequenceKvCacheMinPosition(sequence: number): number;
  getSequenceKvCacheMaxPosition(sequence: number): number;
  setThreads(threads: number): void;
}
type AddonSamplerConfig = Partial<Omit<SamplerConfig, 'grammar'>> & {
  readonly grammarEvaluationState?: AddonGrammarState;
};
interface AddonSampler {
  applyConfig(config: AddonSamplerConfig): void;
  dispose(): void;
}
interface AddonSamplerClass {
  new (model: AddonModel): AddonSampler;
  acceptGrammarEvaluationStateToken(state: AddonGrammarState, id: number): void;
  canBeNextTokenForGrammarEvaluationState(state: AddonGrammarState, id: number): boolean;
}
type AddonGrammar = object;
type AddonGrammarState = object;
interface Addon {
  readonly model: AddonModel;
  readonly context: AddonContext;
  readonly Sampler: AddonSamplerClass;
  readonly Grammar: new (
    gbnf: string,
    options: { readonly addonExports: object; readonly rootRuleName: string },
  ) => AddonGrammar;
  readonly GrammarState: new (model: AddonModel, grammar: AddonGrammar) => AddonGrammarState;
  readonly exports: object;
}

/** The addon's objects inside the package's, checked method by method: another version fails here with a clear message. */
function addonOf(objects: { readonly llama: object; readonly model: object; readonly context: object }): Addon {
  const model = checked<AddonModel>(member(objects.model, '_model'), [
    'tokenize',
    'detokenize',
    'getTokenString',
    'getTokenAttributes',
    'isEogToken',
    'getVocabularyType',
  ]);
  const context = checked<AddonContext>(member(objects.context, '_ctx'), [
    'initBatch',
    'addToBatch',
    'decodeBatch',
    'sampleToken',
    'removeTokenCellsFromSequence',
    'getSequenceKvCacheMinPosition',
    'getSequenceKvCacheMaxPosition',
    'setThreads',
  ]);
  const bindings = checked<object>(member(objects.llama, '_bindings'), [
    'AddonSampler',
    'AddonGrammar',
    'AddonGrammarEvaluationState',
  ]);
  const classes = bindings as {
    readonly AddonSampler: Addon['Sampler'];
    readonly AddonGrammar: Addon['Grammar'];
    readonly AddonGrammarEvaluationState: Addon['GrammarState'];
  };
  return {
    model,
    context,
    Sampler: classes.AddonSampler,
    Grammar: classes.AddonGrammar,
    GrammarState: classes.AddonGrammarEvaluationState,
    exports: bindings,
  };
}

/** An object inside one of the package's. */
export function member(object: object, name: string): object {
  const value = (object as Record<string, unknown>)[name];
  if (!isRecord(value)) throw otherVersion(name);
  return value;
}

/** The object as what has these methods. */
export function checked<Addon extends object>(object: object, methods: readonly string[]): Addon {
  for (const name of methods)
    if (typeof (object as Record<string, unknown>)[name] !== 'function') throw otherVersion(name);
  return object as Addon;
}

const otherVersion = (name: string): Error =>
  new Error(`node-llama-cpp has no ${name}: this engine needs the version that package.json pins`);

/** One of this file's, since it needs the addon's context. */
interface SamplerHandle extends Sampler {
  /** Rejects where no token fits. */
  sample(context: AddonContext, logits: number): Promise<number>;
}

/**
 * Chooses in this thread, by our own library. Under a grammar there are up to four attempts, because holding a vocabulary of 49,000 tokens
 * to it takes 6 ms: what would be chosen freely, if it may come; else a choice among all tokens that may, where they are few; else among
 * the likeliest thousand, in the middle of texts in which nearly everything may come; else among the whole vocabulary. Each is as likely
 * as if all others had been left out before.
 */
class QuickSampler implements SamplerHandle {
  readonly #chooser: Chooser;
  readonly #sampler: object;
  readonly #onThreads: () => ThreadSampler;
  readonly #order: () => TokenOrder;
  #config: SamplerConfig | undefined;
  /** For what this one does not know: penalties, and grammars that take long. */
  #other: ThreadSampler | undefined;
  #otherConfig: SamplerConfig | undefined;

  constructor(chooser: Chooser, onThreads: () => ThreadSampler, order: () => TokenOrder) {
    this.#chooser = chooser;
    this.#sampler = chooser.library.sampler();
    this.#onThreads = onThreads;
    this.#order = order;
  }

  configure(config: SamplerConfig): void {
    this.#config = config;
    if (config.repeatPenaltyTokens !== undefined) return void this.#configuredOther(config);
    const { temperature, topK, topP, minP, seed, tokenBiasKeys = noTokens, tokenBiasValues = noBiases } = config;
    const numbers = Float64Array.of(temperature, topK, topP, minP, seed);
    this.#chooser.library.configure(this.#sampler, numbers, tokenBiasKeys, tokenBiasValues);
  }

  async sample(addon: AddonContext, logits: number): Promise<number> {
    if (this.#config === undefined) throw new Error('the sampler has no settings');
    const { grammar, repeatPenaltyTokens } = this.#config;
    if (repeatPenaltyTokens !== undefined) return await this.#configuredOther(this.#config).sample(addon, logits);
    const { library, context } = this.#chooser;
    if (grammar === undefined) return library.sample(context, logits, this.#sampler);
    const state = grammarHandleOf(grammar);
    if (!state.isHeavy && state.address !== undefined) {
      const id = library.sample(context, logits, this.#sampler);
      if (id >= 0 && state.take(id)) return id;
      const allowed = this.#order().allowed((ids) => state.allowsEach(ids));
      const other =
        allowed !== undefined && allowed.length <= fewMax
          ? library.sampleAmong(context, logits, this.#sampler, Uint32Array.from(allowed))
          : state.isHeavy
            ? -1
            : library.sampleAllowed(context, logits, this.#sampler, state.address);
      if (other >= 0 && state.take(other)) return other;
    }
    return await this.#configuredOther(this.#config).sampleStrictly(addon, logits);
  }

  #configuredOther(config: SamplerConfig): ThreadSampler {
    this.#other ??= this.#onThreads();
    if (this.#otherConfig !== config) this.#other.configure(config);
    this.#otherConfig = config;
    return this.#other;
  }

  dispose(): void {
    this.#other?.dispose();
  }
}

/**
 * Chooses on the addon's threads. Without a grammar one of the addon's samplers. With one, up to three: what would be chosen freely, if it
 * may come; else a choice among the tokens that may, where they are few; else the addon's own choice.
 */
class ThreadSampler implements SamplerHandle {
  readonly #create: () => AddonSampler;
  readonly #order: () => TokenOrder;
  readonly #free: AddonSampler;
  #few: AddonSampler | undefined;
  #strict: AddonSampler | undefined;
  #config: SamplerConfig | undefined;
  /** What the strict one was configured with. */
  #strictConfig: SamplerConfig | undefined;

  constructor(create: () => AddonSampler, order: () => TokenOrder) {
    this.#create = create;
    this.#order = order;
    this.#free = create();
  }

  configure(config: SamplerConfig): void {
    this.#config = config;
    const { grammar: _, ...free } = config;
    this.#free.applyConfig(free);
  }

  async sample(context: AddonContext, logits: number): Promise<number> {
    if (this.#config === undefined) throw new Error('the sampler has no settings');
    const { grammar, ...config } = this.#config;
    if (grammar === undefined) return await context.sampleToken(logits, this.#free);
    const state = grammarHandleOf(grammar);
    if (!state.isHeavy) {
      const id = await context.sampleToken(logits, this.#free).catch(() => undefined);
      if (id !== undefined && state.take(id)) return id;
      const other = await this.#oneOfFew(context, logits, config, state);
      if (other !== undefined && state.take(other)) return other;
    }
    return await this.sampleStrictly(context, logits);
  }

  /** Holds the whole vocabulary to the grammar. */
  async sampleStrictly(context: AddonContext, logits: number): Promise<number> {
    if (this.#config?.grammar === undefined) throw new Error('the sampler has no grammar');
    const { grammar, ...config } = this.#config;
    const state = grammarHandleOf(grammar);
    this.#strict ??= this.#create();
    if (this.#strictConfig !== this.#config)
      this.#strict.applyConfig({ ...config, grammarEvaluationState: state.addon });
    this.#strictConfig = this.#config;
    return await context.sampleToken(logits, this.#strict);
  }

  /** `undefined`: there are many, or llama.cpp is slow at this grammar. */
  async #oneOfFew(
    context: AddonContext,
    logits: number,
    config: Omit<SamplerConfig, 'grammar'>,
    state: GrammarStateHandle,
  ): Promise<number | undefined> {
    const allowed = this.#order().allowed((ids) => state.allowsEach(ids));
    if (allowed === undefined || state.isHeavy || allowed.length > fewMax) return undefined;
    if (allowed.length <= 1) return allowed[0];
    // A bias that lifts them above all others leaves the differences among them. What is banned stays so.
    const { tokenBiasKeys = noTokens, tokenBiasValues = noBiases } = config;
    const biases = new Map([...tokenBiasKeys].map((id, index) => [id, tokenBiasValues[index]!]));
    for (const id of allowed) biases.set(id, (biases.get(id) ?? 0) + aboveAll);
    this.#few ??= this.#create();
    this.#few.applyConfig({
      ...config,
      topK: Math.min(config.topK, allowed.length),
      tokenBiasKeys: Uint32Array.from(biases.keys()),
      tokenBiasValues: Float32Array.from(biases.values()),
    });
    return await context.sampleToken(logits, this.#few).catch(() => undefined);
  }

  dispose(): void {
    for (const each of [this.#free, this.#few, this.#strict]) each?.dispose();
  }
}

/** More are a text in which nearly everything may come. */
const fewMax = 512;
/** Far above the logits of models and certain biases (`sampling.ts`), and small enough that differences survive in 32 bits. */
const aboveAll = 4000;
const noBiases = new Float32Array(0);

class GrammarStateHandle implements GrammarState {
  readonly addon: AddonGrammarState;
  /** As our own library knows it; it ends with the addon's object. */
  readonly address: object | undefined;
  readonly #sampler: AddonSamplerClass;
  readonly #library: Library | undefined;
  /** The latest questions that took long, one after the other: a single one may have waited for a processor. */
  #slow = 0;
  /** `addon`: the latest one that was made. */
  constructor(addon: AddonGrammarState, sampler: AddonSamplerClass, library: Library | undefined) {
    this.addon = addon;
    this.#sampler = sampler;
    this.#library = library;
    this.address = library?.grammar();
  }
  /**
   * Where a grammar branches without end its state doubles with every character, and nothing can interrupt llama.cpp: then it is left to
   * the threads of the addon, and this one stays free to notice.
   */
  get isHeavy(): boolean {
    return this.#slow >= heavyTimes;
  }
  allows(id: number): boolean {
    return this.#watched(() => this.#sampler.canBeNextTokenForGrammarEvaluationState(this.addon, id));
  }
  allowsEach(ids: Uint32Array): ArrayLike<number> | undefined {
    const answers = new Uint8Array(ids.length);
    if (this.#library !== undefined && this.address !== undefined) {
      if (this.#library.allowed(this.address, ids, answers)) return answers;
      this.#slow++;
      return undefined;
    }
    for (const [index, id] of ids.entries()) {
      answers[index] = this.allows(id) ? 1 : 0;
      if (this.isHeavy) return undefined;
    }
    return answers;
  }
  take(id: number): boolean {
    // llama.cpp ends the process on an end of generation that does not fit.
    if (!this.allows(id)) return false;
    try {
      this.#watched(() => this.#sampler.acceptGrammarEvaluationStateToken(this.addon, id));
      return true;
    } catch {
      return false;
    }
  }
  #watched<Result>(act: () => Result): Result {
    const startedMs = performance.now();
    const result = act();
    this.#slow = performance.now() - startedMs > heavyMs ? this.#slow + 1 : 0;
    return result;
  }
}

/** For one token; some microseconds are usual. */
const heavyMs = 1;
const heavyTimes = 3;

function grammarHandleOf(state: GrammarState): GrammarStateHandle {
  if (!(state instanceof GrammarStateHandle)) throw new Error('the grammar belongs to another model');
  return state;
}

/**
 * Probabilities in this version of the addon: a sampler can report the chosen token's share of the tokens that its filters leave,
 * and list those tokens, which is cheap after a small top_k. So the likeliest token's share is taken of the whole vocabulary, and
 * the others' ratio to it. The share costs a sort of the vocabulary (3 ms a token at 49,000 tokens, 11 at 150,000, on the thread
 * pool), the rest 0.2 ms. Newer versions report the sum itself (`includeSelected`): this class is the seam.
 */
class LogprobsHandle implements Logprobs {
  readonly #top: number;
  readonly #whole: AddonSampler;
  readonly #best: AddonSampler;
  readonly #one: AddonSampler;

  constructor(top: number, create: () => AddonSampler) {
    this.#top = top;
    this.#whole = create();
    this.#whole.applyConfig({ temperature: 0, seed: 1 });
    this.#best = create();
    this.#best.applyConfig({ temperature: 1, topK: Math.max(1, top), seed: 1 });
    this.#one = create();
  }

  /** The first access to the logits of a batch is made alone (see `sample`). */
  async settle(context: AddonContext, logits: number): Promise<void> {
    await context.sampleToken(logits, this.#best);
  }

  async of(context: AddonContext, logits: number, id: number): Promise<TokenLogprobs> {
    const [[, , share], [, listed]] = await Promise.all([
      context.sampleToken(logits, this.#whole, false, true),
      context.sampleToken(logits, this.#best, true, false),
    ]);
    const [first] = ratiosOf(listed);
    if (share === undefined || first === undefined) throw new Error('the addon reports no probabilities');
    const best = Math.log(share);
    const top = ratiosOf(listed).map(({ id, ratio }) => ({
      id,
      logprob: Math.min(0, best + Math.log(ratio / first.ratio)),
    }));
    const logprob = top.find((token) => token.id === id)?.logprob ?? (await this.#below(context, logits, id, best));
    return { logprob, top: top.slice(0, this.#top) };
  }

  /** The logprob of a token outside the likeliest: a bias lifts it until it stands beside the best one. */
  async #below(context: AddonContext, logits: number, id: number, best: number): Promise<number> {
    for (const lift of [40, 80]) {
      this.#one.applyConfig({
        temperature: 1,
        topK: 2,
        seed: 1,
        tokenBiasKeys: Uint32Array.of(id),
        tokenBiasValues: Float32Array.of(lift),
      });
      const [, listed] = await context.sampleToken(logits, this.#one, true, false);
      const ratios = ratiosOf(listed);
      const own = ratios.find((token) => token.id === id);
      const other = ratios.find((token) => token.id !== id);
      if (own !== undefined && other !== undefined && own.ratio > 0 && other.ratio > 0)
        return Math.min(0, best + Math.log(own.ratio / other.ratio) - lift);
    }
    return -Infinity;
  }

  dispose(): void {
    for (const sampler of [this.#whole, this.#best, this.#one]) sampler.dispose();
  }
}

function logprobsHandleOf(logprobs: Logprobs): LogprobsHandle {
  if (!(logprobs instanceof LogprobsHandle)) throw new Error('the logprobs belong to another model');
  return logprobs;
}

/** The addon lists ids and probabilities alternately, the likeliest first. */
function ratiosOf(listed: readonly number[] | undefined): readonly { readonly id: number; readonly ratio: number }[] {
  const ratios: { readonly id: number; readonly ratio: number }[] = [];
  for (let index = 0; listed !== undefined && index + 1 < listed.length; index += 2)
    ratios.push({ id: listed[index] ?? -1, ratio: listed[index + 1] ?? 0 });
  return ratios;
}

function samplerOf(sampler: Sampler): SamplerHandle {
  if (!(sampler instanceof QuickSampler) && !(sampler instanceof ThreadSampler))
    throw new Error('the sampler belongs to another model');
  return sampler;
}

/** llama_vocab_type in llama.h */
const bytePairVocabulary = 2;
export const wordPieceVocabulary = 3;

// llama_token_attr in llama.h
const attribute = { control: 8, userDefined: 16, stripsBefore: 128, stripsAfter: 256 };

export function traitsOf(attributes: number): TokenTraits {
  const has = (bit: number) => (attributes & bit) !== 0;
  return {
    kind: has(attribute.control) ? 'control' : has(attribute.userDefined) ? 'user-defined' : 'plain',
    stripsBefore: has(attribute.stripsBefore),
    stripsAfter: has(attribute.stripsAfter),
  };
}

export function vocabularySizeOf(tokenizer: unknown): number {
  const tokens = isRecord(tokenizer) && isRecord(tokenizer['ggml']) ? tokenizer['ggml']['tokens'] : undefined;
  if (!Array.isArray(tokens)) throw new Error('the model file has no vocabulary');
  return tokens.length;
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
