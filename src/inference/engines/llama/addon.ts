import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { availableParallelism, constants } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Llama } from 'node-llama-cpp';
import { llamaLibraryUrl } from '../../../platform/entries.ts';
import type { GpuBuild, GpuDevices, GpuUse } from './compute.ts';
import type { EngineChoice, SamplerConfig, TokenTraits } from './llama-model.ts';

/** Loads the native library. Rejects, or ends the process, if the library cannot run. */
export async function openEngine({ gpu, threadsMax }: EngineChoice): Promise<Llama> {
  ownLibrary();
  // Only the engine child pays for this import; the service runs without the package.
  const { getLlama, Llama, LlamaLogLevel } = await import('node-llama-cpp');
  const quiet = {
    progressLogs: false,
    logLevel: LlamaLogLevel.disabled,
    logger: () => {},
    maxThreads: threadsMax,
  } as const;
  const llama =
    gpu === false || gpu.folder === undefined
      ? // "auto" would start a compiler if the prebuilt binary does not load. There is only one build for a Mac with Apple's processor; it
        // has Metal and is used for both.
        await getLlama({
          ...quiet,
          gpu: gpu === false ? hasMetal && 'metal' : gpu.kind,
          build: 'never',
          skipDownload: true,
        })
      : await openBuild(Llama, gpu.folder, gpu.furtherFolder, quiet);
  if (layersOn(gpu) === 0 || (await llama.getGpuDeviceNames()).length > 0) return llama;
  // Without a device llama.cpp would silently compute on the processor.
  throw new Error('the GPU is not there any more');
}

/** The thread count of a new context, which gets its pool when the count changes, as it does before its first step with several threads. */
export const threadsAtFirst = 1;

let loaded: { readonly library: Library | undefined } | undefined;

/**
 * Returns whether llama.cpp keeps its threads between two steps. `kept-threads.c` makes it do so, and must be loaded before llama.cpp.
 * Without it (not on Linux, or no compiler when the program was built) each step with several threads starts and joins them.
 */
export const keepThreads = (): boolean => ownLibrary() !== undefined;

/** The functions of `choice.c`. Contexts, grammars and samplers are addresses. */
export interface Library {
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

export function ownLibrary(): Library | undefined {
  loaded ??= { library: loadLibrary() };
  return loaded.library;
}

function loadLibrary(): Library | undefined {
  const module = { exports: {} };
  try {
    process.dlopen(module, fileURLToPath(llamaLibraryUrl()), constants.dlopen.RTLD_NOW | constants.dlopen.RTLD_GLOBAL);
    return module.exports as Library;
  } catch {
    return undefined;
  }
}

const hasMetal = process.platform === 'darwin' && process.arch === 'arm64';

export const layersOn = (gpu: false | GpuUse): number => (gpu === false ? 0 : gpu.layers);

/**
 * Opens a build in one of the service's own folders: the package only looks for builds among its dependencies. This does what the package
 * would do with such a folder (`loadExistingLlamaBinary` in its `getLlama.js`).
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

/** The package's default. */
const vramPaddingOf = (totalBytes: number): number => Math.floor(Math.min(totalBytes * 0.08, 1.6 * 2 ** 30));

/** Returns the devices that a build finds. */
export async function devicesOf(gpu: GpuBuild): Promise<GpuDevices> {
  const llama = await openEngine({ gpu: { ...gpu, layers: 0 }, threadsMax: 1 });
  const [names, { total, free, unifiedSize }] = await Promise.all([llama.getGpuDeviceNames(), llama.getVramState()]);
  return { names, totalBytes: total, freeBytes: free, isUnified: unifiedSize > 0 };
}

export const defaultThreads = (): number => availableParallelism();

export interface AddonModel {
  tokenize(text: string, special: boolean): Uint32Array;
  detokenize(tokens: Uint32Array, special: boolean): string;
  getTokenString(id: number): string;
  getTokenAttributes(id: number): number;
  isEogToken(id: number): boolean;
  getVocabularyType(): number;
}
export interface AddonContext {
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
export type AddonSamplerConfig = Partial<Omit<SamplerConfig, 'grammar'>> & {
  readonly grammarEvaluationState?: AddonGrammarState;
};
export interface AddonSampler {
  applyConfig(config: AddonSamplerConfig): void;
  dispose(): void;
}
export interface AddonSamplerClass {
  new (model: AddonModel): AddonSampler;
  acceptGrammarEvaluationStateToken(state: AddonGrammarState, id: number): void;
  canBeNextTokenForGrammarEvaluationState(state: AddonGrammarState, id: number): boolean;
}
export type AddonGrammar = object;
export type AddonGrammarState = object;
export interface Addon {
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

/** Returns the addon's objects behind the package's, checked method by method: another version fails here with a clear message. */
export function addonOf(objects: { readonly llama: object; readonly model: object; readonly context: object }): Addon {
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

/** Returns an object inside one of the package's objects. */
export function member(object: object, name: string): object {
  const value = (object as Record<string, unknown>)[name];
  if (!isRecord(value)) throw otherVersion(name);
  return value;
}

/** Returns the object, typed, after checking that it has these methods. */
export function checked<Addon extends object>(object: object, methods: readonly string[]): Addon {
  for (const name of methods)
    if (typeof (object as Record<string, unknown>)[name] !== 'function') throw otherVersion(name);
  return object as Addon;
}

const otherVersion = (name: string): Error =>
  new Error(`node-llama-cpp has no ${name}: this engine needs the version that package.json pins`);

/** llama_vocab_type in llama.h */
export const bytePairVocabulary = 2;
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
