import type { LlamaContextSequence } from 'node-llama-cpp';
import {
  addonOf,
  bytePairVocabulary,
  isRecord,
  layersOn,
  openEngine,
  threadsAtFirst,
  traitsOf,
  vocabularySizeOf,
  type Addon,
} from './addon.ts';
import type { LlamaModel, OpenOptions, Wanted } from './llama-model.ts';
import { LogprobsHandle, logprobsHandleOf } from './logprobs.ts';
import { chooserOf, GrammarStateHandle, QuickSampler, samplerOf, ThreadSampler, type Chooser } from './samplers.ts';
import { byteReader } from './token-bytes.ts';
import { TokenOrder } from './token-order.ts';

/**
 * Together with `task-bindings.ts` and their shared `addon.ts`, the only code that knows node-llama-cpp, including its internals: the
 * addon's own model, context and sampler objects. The package's generators cost two locks, a scheduler and a sampler configuration per
 * token; one loop over the addon reaches 0.98–1.02 of llama-server at 8 streams, the generators 0.57. The version is pinned, the shape is
 * checked when a model is opened, and `tests/inference/engines/llama/bindings.test.ts` holds what each call must do.
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
  const context = await model.createContext({ ...contextOf(options), contextSize: contextLength });
  const addon = addonOf({ llama, model, context });
  const chooser = chooserOf(addon.context);
  // Each object reserves one sequence id; its finaliser gives the id back, so they must stay referenced.
  const sequences: LlamaContextSequence[] = Array.from({ length: slots }, () => context.getSequence());
  const ids = sequences.map((sequence) => (sequence as unknown as { readonly _sequenceId: number })._sequenceId);
  const tokenizer: unknown = model.fileInfo.metadata.tokenizer;
  const template = isRecord(tokenizer) ? tokenizer['chat_template'] : undefined;
  const bytesOf = byteReader(addon.model, addon.model.getVocabularyType() === bytePairVocabulary);
  // An exception in a GPU driver would end the process.
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
      // A batch that cannot be computed also goes to the addon, which gives the reason.
      return addon.context.decodeBatch();
    },
    settle: async (logits, logprobs) => logprobsHandleOf(logprobs).settle(addon.context, logits),
    logprobs: (logits, logprobs, id) => logprobsHandleOf(logprobs).of(addon.context, logits, id),
    sample: (wanted, done) => sample(addon, wanted, done),
    truncate: (slot, length) => {
      const id = ids[slot] ?? -1;
      const removed = addon.context.removeTokenCellsFromSequence(id, length, -1);
      // Sliding windows forget their beginning, and recurrent states cannot go back: such a cache is useless.
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

const contextOf = ({ slots, batchTokens, adapter }: OpenOptions) => ({
  sequences: slots,
  batchSize: Math.max(batchTokens, slots),
  threads: threadsAtFirst,
  flashAttention: 'auto' as const,
  ...(adapter === undefined ? {} : { lora: { adapters: [{ filePath: adapter.file, scale: adapter.scale }] } }),
});

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
      // Created with the first grammar, before an answer has begun.
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
      // The token does not fit its grammar; this does not affect the other answers.
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

const noTokens = new Uint32Array(0);
