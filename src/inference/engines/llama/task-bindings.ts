import type { LlamaContext } from 'node-llama-cpp';
import {
  checked,
  isRecord,
  layersOn,
  member,
  openEngine,
  threadsAtFirst,
  traitsOf,
  vocabularySizeOf,
  wordPieceVocabulary,
} from './addon.ts';
import type { OpenOptions, TokenTraits } from './llama-model.ts';

/**
 * Like `bindings.ts`, for models that embed or rank. The addon returns only the vector of sequence 0, whatever else a batch has, so inputs
 * cannot share a batch: several contexts compute in parallel instead, each with one input. `tests/inference/engines/llama/tasks.test.ts`
 * holds what each call must do.
 */
export async function openTaskModel(options: OpenTaskOptions): Promise<TaskModel> {
  const llama = await openEngine(options);
  const model = await llama.loadModel({
    modelPath: options.modelFile,
    gpuLayers: layersOn(options.gpu),
    defaultContextFlashAttention: 'auto',
  });
  const { metadata } = model.fileInfo;
  const tokenizer: unknown = metadata.tokenizer;
  const contexts: TaskContext[] = [];
  for (const { window, batchTokens } of options.contexts) {
    const context = await model.createContext({
      sequences: 1,
      contextSize: Math.min(window, model.trainContextSize),
      batchSize: Math.min(batchTokens, model.trainContextSize),
      threads: threadsAtFirst,
      flashAttention: 'auto',
      // Both are missing from the package's types: its own classes for them cost a lock and a copy of the input for each call.
      ...({ _embeddings: true, _ranking: options.purpose === 'rank' } as object),
    });
    contexts.push(contextOf(context));
  }
  const addon = addonModelOf(model);
  const { bos, eos, sep } = model.tokens;
  const isWordPiece = addon.getVocabularyType() === wordPieceVocabulary;
  const only = (id: number | null): readonly number[] => (id === null ? [] : [id]);
  // As llama.cpp puts them around a text, and llama-server around a query and a document.
  const begin = isWordPiece || addon.shouldPrependBosToken() ? only(bos) : [];
  const end = addon.shouldAppendEosToken() ? only(eos ?? sep) : [];
  const stated = isRecord(tokenizer) && isRecord(tokenizer['ggml']) ? tokenizer['ggml'] : {};
  const between = [...end, ...((stated['add_sep_token'] ?? isWordPiece) ? only(sep) : [])];
  const unknown = stated['unknown_token_id'];
  const template = isRecord(tokenizer) ? tokenizer['chat_template.rerank'] : undefined;
  return {
    facts: {
      contextLength: contexts[0]!.window,
      vocabularySize: vocabularySizeOf(tokenizer),
      unknown: typeof unknown === 'number' ? unknown : isWordPiece ? 100 : undefined,
      dimensions: addon.getEmbeddingVectorSize(),
      marks: { begin, end: isWordPiece ? only(sep) : end },
      pairMarks: { begin, between, end },
      pairTemplate: typeof template === 'string' ? template : undefined,
      // The classifier of these architectures ends in a softmax (`build_pooling` in llama.cpp).
      scoresAreLogits: !['qwen3', 'qwen3vl'].includes(String(metadata.general?.architecture)),
    },
    contexts,
    tokenize: (text, special) => (text === '' ? new Uint32Array(0) : addon.tokenize(text, special)),
    tokenText: (id) => addon.getTokenString(id),
    tokenTraits: (id) => traitsOf(addon.getTokenAttributes(id)),
    dispose: () => llama.dispose(),
  };
}

export interface OpenTaskOptions extends Pick<OpenOptions, 'modelFile' | 'threadsMax' | 'gpu'> {
  readonly purpose: 'embed' | 'rank';
  /** Each takes one input at a time and computes `batchTokens` of it together. The first one's window is the model's. */
  readonly contexts: readonly { readonly window: number; readonly batchTokens: number }[];
}

/** A loaded model that embeds or ranks. */
export interface TaskModel {
  readonly facts: {
    readonly contextLength: number;
    readonly vocabularySize: number;
    readonly unknown: number | undefined;
    readonly dimensions: number;
    /** Tokens around a text. */
    readonly marks: { readonly begin: readonly number[]; readonly end: readonly number[] };
    /** Tokens around a query and a document. */
    readonly pairMarks: {
      readonly begin: readonly number[];
      readonly between: readonly number[];
      readonly end: readonly number[];
    };
    /** A text with `{query}` and `{document}`, if the file has one; it then replaces the marks. */
    readonly pairTemplate: string | undefined;
    /** Whether scores are logits; otherwise they are probabilities. */
    readonly scoresAreLogits: boolean;
  };
  readonly contexts: readonly TaskContext[];
  tokenize(text: string, special: boolean): Uint32Array;
  tokenText(id: number): string;
  tokenTraits(id: number): TokenTraits;
  dispose(): Promise<void>;
}

/** Computes one input at a time; several contexts work at the same time. */
export interface TaskContext {
  /** Maximum tokens of an input. */
  readonly window: number;
  /**
   * Returns the pooled vector of an input, or the classifier's numbers. Nothing of the input is kept. `goesOn` is called between batches.
   */
  compute(ids: Uint32Array, threads: number, goesOn: () => boolean): Promise<Float64Array | undefined>;
}

function contextOf(context: LlamaContext): TaskContext {
  const addon = checked<AddonTaskContext>(member(context, '_ctx'), [
    'initBatch',
    'addToBatch',
    'decodeBatch',
    'getEmbedding',
    'removeTokenCellsFromSequence',
    'setThreads',
  ]);
  // The sequence object reserves the id, and its finaliser gives it back.
  const sequence = context.getSequence();
  const { batchSize } = context;
  let threadsNow: number | undefined;
  return {
    window: context.contextSize,
    compute: async (ids, threads, goesOn) => {
      if (threads !== threadsNow) addon.setThreads(threads);
      threadsNow = threads;
      try {
        for (let from = 0; from < ids.length; from += batchSize) {
          if (!goesOn()) return undefined;
          const some = ids.subarray(from, from + batchSize);
          addon.initBatch(some.length);
          addon.addToBatch(0, from, some, Uint32Array.from(some.keys()));
          await addon.decodeBatch();
        }
        return goesOn() ? addon.getEmbedding(ids.length) : undefined;
      } finally {
        if (!sequence.disposed) addon.removeTokenCellsFromSequence(0, 0, -1);
      }
    },
  };
}

interface AddonTaskContext {
  initBatch(size: number): void;
  addToBatch(sequence: number, position: number, tokens: Uint32Array, outputs: Uint32Array): Uint32Array;
  decodeBatch(): Promise<void>;
  getEmbedding(tokens: number): Float64Array;
  removeTokenCellsFromSequence(sequence: number, start: number, end: number): boolean;
  setThreads(threads: number): void;
}

interface AddonTaskModel {
  tokenize(text: string, special: boolean): Uint32Array;
  getTokenString(id: number): string;
  getTokenAttributes(id: number): number;
  getVocabularyType(): number;
  getEmbeddingVectorSize(): number;
  shouldPrependBosToken(): boolean;
  shouldAppendEosToken(): boolean;
}

const addonModelOf = (model: object): AddonTaskModel =>
  checked(member(model, '_model'), [
    'tokenize',
    'getTokenString',
    'getTokenAttributes',
    'getVocabularyType',
    'getEmbeddingVectorSize',
    'shouldPrependBosToken',
    'shouldAppendEosToken',
  ]);
