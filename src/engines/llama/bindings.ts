import { availableParallelism, freemem } from 'node:os';
import type { LlamaContextSequence } from 'node-llama-cpp';

/**
 * The only file that knows node-llama-cpp, and the only one that touches what it calls internal: the addon's own model,
 * context and sampler objects. The package's generators cost two locks, a scheduler and a sampler configuration a token; one
 * loop over the addon reaches 0.98–1.02 of llama-server at 8 streams, the generators 0.57. The version is pinned, the shape
 * is checked when a model is opened, and `tests/engines/llama/bindings.test.ts` holds what each call must do.
 */
export async function openModel(options: OpenOptions): Promise<LlamaModel> {
  // Only the engine child pays for this import, and the service runs without the package.
  const { getLlama, LlamaLogLevel } = await import('node-llama-cpp');
  // "auto" would start a compiler when the prebuilt binary does not load.
  const llama = await getLlama({
    gpu: options.gpu,
    build: 'never',
    skipDownload: true,
    progressLogs: false,
    logLevel: LlamaLogLevel.disabled,
    logger: () => {},
    maxThreads: options.prefillThreads,
  });
  const model = await llama.loadModel({
    modelPath: options.modelFile,
    ...(options.gpu === false ? { gpuLayers: 0 } : {}),
    defaultContextFlashAttention: 'auto',
  });
  const contextLength = Math.min(options.contextLength, model.trainContextSize);
  const bytesPerToken = cacheBytesPerToken(model.fileInfo.metadata);
  const slots = slotsWithin(options.slots, contextLength * bytesPerToken, options.cacheBytesMax ?? freemem() * 0.25);
  const context = await model.createContext({
    sequences: slots,
    contextSize: contextLength,
    batchSize: Math.max(options.batchTokens, slots),
    threads: options.prefillThreads,
    flashAttention: 'auto',
  });
  const addon = addonOf({ llama, model, context });
  // Each object reserves one sequence id; its finaliser gives the id back, so they must stay referenced.
  const sequences: LlamaContextSequence[] = Array.from({ length: slots }, () => context.getSequence());
  const ids = sequences.map((sequence) => (sequence as unknown as { readonly _sequenceId: number })._sequenceId);
  const tokenizer: unknown = model.fileInfo.metadata.tokenizer;
  const template = isRecord(tokenizer) ? tokenizer['chat_template'] : undefined;

  return {
    facts: {
      slots,
      contextLength,
      batchTokens: context.batchSize,
      cacheBytesPerToken: bytesPerToken,
      vocabularySize: vocabularySizeOf(tokenizer),
      chatTemplate: typeof template === 'string' ? template : undefined,
      bos: model.tokens.bos ?? undefined,
      prependBos: model.tokens.shouldPrependBosToken,
      bosText: model.tokens.bosString ?? '',
      eosText: model.tokens.eosString ?? '',
    },
    tokenize: (text, special) => (text === '' ? new Uint32Array(0) : addon.model.tokenize(text, special)),
    // Control tokens are no text; user-defined ones (`<think>`) are.
    detokenize: (ids) => addon.model.detokenize(Uint32Array.from(ids), false),
    tokenText: (id) => addon.model.getTokenString(id),
    tokenTraits: (id) => traitsOf(addon.model.getTokenAttributes(id)),
    isEndOfGeneration: (id) => addon.model.isEogToken(id),
    createSampler: () => new SamplerHandle(new addon.Sampler(addon.model)),
    beginBatch: (tokens) => addon.context.initBatch(tokens),
    addToBatch: (slot, position, tokens, sampled) => {
      const last = sampled ? Uint32Array.of(tokens.length - 1) : noTokens;
      return addon.context.addToBatch(ids[slot] ?? -1, position, tokens, last)[0];
    },
    decode: (threads) => {
      addon.context.setThreads(threads);
      return addon.context.decodeBatch();
    },
    sample: async (wanted) => {
      const one = ({ logits, sampler }: Wanted) => addon.context.sampleToken(logits, samplerOf(sampler));
      const [first, ...others] = wanted;
      if (first === undefined) return [];
      // llama.cpp puts the logits of a batch into order when they are first asked for, without a lock: two samplers at that
      // moment swap the answers of two requests (seen 53 times in 20,000 steps of 4). The first one goes alone.
      const id = await one(first);
      return [id, ...(await Promise.all(others.map(one)))];
    },
    truncate: (slot, length) => {
      const id = ids[slot] ?? -1;
      const removed = addon.context.removeTokenCellsFromSequence(id, length, -1);
      // Sliding windows forget their beginning and recurrent states cannot go back: such a cache is of no use.
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

export interface OpenOptions {
  readonly modelFile: string;
  /** Tokens per sequence; lowered to what the model was trained for. */
  readonly contextLength: number;
  /** Sequences wanted; lowered to what fits the cache budget. */
  readonly slots: number;
  readonly batchTokens: number;
  readonly prefillThreads: number;
  readonly gpu: false | 'auto';
  /** Budget of the key-value cache; a quarter of the free memory when not given. */
  readonly cacheBytesMax?: number;
}

/** What a token may do: control tokens steer the model, user-defined ones are found in any text before it is split. */
export interface TokenTraits {
  readonly kind: 'control' | 'user-defined' | 'plain';
  /** The token swallows white space before or after it. */
  readonly stripsBefore: boolean;
  readonly stripsAfter: boolean;
}

export interface ModelFacts {
  readonly slots: number;
  readonly contextLength: number;
  /** Most tokens that one decode takes. */
  readonly batchTokens: number;
  readonly cacheBytesPerToken: number;
  readonly vocabularySize: number;
  readonly chatTemplate: string | undefined;
  readonly bos: number | undefined;
  readonly prependBos: boolean;
  readonly bosText: string;
  readonly eosText: string;
}

/** A loaded model with one context. Only one batch is in work at a time: begin, add, decode, sample. */
export interface LlamaModel {
  readonly facts: ModelFacts;
  /** `special` = literals of control tokens become those tokens. User-defined tokens are found either way. */
  tokenize(text: string, special: boolean): Uint32Array;
  /** Incomplete UTF-8 comes out as U+FFFD. */
  detokenize(ids: readonly number[]): string;
  tokenText(id: number): string;
  tokenTraits(id: number): TokenTraits;
  isEndOfGeneration(id: number): boolean;
  createSampler(): Sampler;
  beginBatch(tokens: number): void;
  /** `sampled` asks for logits after the last token and answers where they will be. */
  addToBatch(slot: number, position: number, tokens: Uint32Array, sampled: boolean): number | undefined;
  decode(threads: number): Promise<void>;
  /** A token for each answer of the batch, -1 where none fits. Runs on the thread pool, on several cores. */
  sample(wanted: readonly Wanted[]): Promise<readonly number[]>;
  /** Forgets a slot's tokens from `length` on; answers how many are left, which may be 0. */
  truncate(slot: number, length: number): number;
  cachedTokens(slot: number): number;
  dispose(): Promise<void>;
}

/** Where the logits are (`addToBatch`), and what picks the token. */
export interface Wanted {
  readonly logits: number;
  readonly sampler: Sampler;
}

/** Every number is finite; a key that is present but undefined would be an error inside the addon. */
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
}

/** Keeps its random state over `configure` as long as the seed is the same. */
export interface Sampler {
  configure(config: SamplerConfig): void;
  dispose(): void;
}

/** One thread a decode is fastest (the prebuilt binary starts and joins threads at every step), all of them a prefill. */
export const defaultDecodeThreads = 1;
export const defaultPrefillThreads = (): number => availableParallelism();

const noTokens = new Uint32Array(0);

interface AddonModel {
  tokenize(text: string, special: boolean): Uint32Array;
  detokenize(tokens: Uint32Array, special: boolean): string;
  getTokenString(id: number): string;
  getTokenAttributes(id: number): number;
  isEogToken(id: number): boolean;
}
interface AddonContext {
  initBatch(size: number): void;
  addToBatch(sequence: number, position: number, tokens: Uint32Array, logits: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
  sampleToken(logits: number, sampler: AddonSampler): Promise<number>;
  removeTokenCellsFromSequence(sequence: number, start: number, end: number): boolean;
  getSequenceKvCacheMinPosition(sequence: number): number;
  getSequenceKvCacheMaxPosition(sequence: number): number;
  setThreads(threads: number): void;
}
interface AddonSampler {
  applyConfig(config: SamplerConfig): void;
  dispose(): void;
}
interface Addon {
  readonly model: AddonModel;
  readonly context: AddonContext;
  readonly Sampler: new (model: AddonModel) => AddonSampler;
}

/** The addon's objects inside the package's, checked method by method: another version fails here, in words. */
function addonOf(objects: { readonly llama: object; readonly model: object; readonly context: object }): Addon {
  const model = member(objects.model, '_model');
  const context = member(objects.context, '_ctx');
  const bindings = member(objects.llama, '_bindings');
  const methods = {
    model: ['tokenize', 'detokenize', 'getTokenString', 'getTokenAttributes', 'isEogToken'],
    context: [
      'initBatch',
      'addToBatch',
      'decodeBatch',
      'sampleToken',
      'removeTokenCellsFromSequence',
      'getSequenceKvCacheMinPosition',
      'getSequenceKvCacheMaxPosition',
      'setThreads',
    ],
    bindings: ['AddonSampler'],
  };
  for (const [object, names] of [
    [model, methods.model],
    [context, methods.context],
    [bindings, methods.bindings],
  ] as const) {
    for (const name of names) {
      if (typeof (object as Record<string, unknown>)[name] !== 'function') {
        throw new Error(`node-llama-cpp has no ${name}: this engine needs the version that package.json pins`);
      }
    }
  }
  return {
    model: model as AddonModel,
    context: context as AddonContext,
    Sampler: (bindings as { readonly AddonSampler: Addon['Sampler'] }).AddonSampler,
  };
}

function member(object: object, name: string): object {
  const value = (object as Record<string, unknown>)[name];
  if (!isRecord(value))
    throw new Error(`node-llama-cpp has no ${name}: this engine needs the version that package.json pins`);
  return value;
}

class SamplerHandle implements Sampler {
  readonly addon: AddonSampler;
  constructor(addon: AddonSampler) {
    this.addon = addon;
  }
  configure(config: SamplerConfig): void {
    this.addon.applyConfig(config);
  }
  dispose(): void {
    this.addon.dispose();
  }
}

function samplerOf(sampler: Sampler): AddonSampler {
  if (!(sampler instanceof SamplerHandle)) throw new Error('a sampler of another model');
  return sampler.addon;
}

// llama_token_attr in llama.h
const attribute = { control: 8, userDefined: 16, stripsBefore: 128, stripsAfter: 256 };

function traitsOf(attributes: number): TokenTraits {
  const has = (bit: number) => (attributes & bit) !== 0;
  return {
    kind: has(attribute.control) ? 'control' : has(attribute.userDefined) ? 'user-defined' : 'plain',
    stripsBefore: has(attribute.stripsBefore),
    stripsAfter: has(attribute.stripsAfter),
  };
}

function vocabularySizeOf(tokenizer: unknown): number {
  const tokens = isRecord(tokenizer) && isRecord(tokenizer['ggml']) ? tokenizer['ggml']['tokens'] : undefined;
  if (!Array.isArray(tokens)) throw new Error('the model file has no vocabulary');
  return tokens.length;
}

/** Keys and values of all layers, two bytes each: 23,040 for SmolLM2-135M. */
function cacheBytesPerToken(metadata: unknown): number {
  if (!isRecord(metadata) || !isRecord(metadata['general'])) return 0;
  const architecture = metadata[String(metadata['general']['architecture'])];
  if (!isRecord(architecture) || !isRecord(architecture['attention'])) return 0;
  const attention = architecture['attention'];
  const layers = numberOf(architecture['block_count']);
  const heads = numberOf(attention['head_count']);
  const width = heads === 0 ? 0 : numberOf(architecture['embedding_length']) / heads;
  const perHead = (numberOf(attention['key_length']) || width) + (numberOf(attention['value_length']) || width);
  const keyHeads = attention['head_count_kv'];
  const headsInAll = Array.isArray(keyHeads)
    ? keyHeads.reduce<number>((sum, count) => sum + numberOf(count), 0)
    : (numberOf(keyHeads) || heads) * layers;
  return headsInAll * perHead * 2;
}

function slotsWithin(wanted: number, bytesPerSlot: number, budgetBytes: number): number {
  const fitting = bytesPerSlot === 0 ? wanted : Math.floor(budgetBytes / bytesPerSlot);
  return Math.max(1, Math.min(wanted, fitting));
}

function numberOf(value: unknown): number {
  return typeof value === 'number' || typeof value === 'bigint' ? Number(value) : 0;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
