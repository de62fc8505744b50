import type { GpuUse } from './compute.ts';

export interface EngineChoice {
  /** `false`: the processor is used. */
  readonly gpu: false | GpuUse;
  readonly threadsMax: number;
}

export interface OpenOptions extends EngineChoice {
  readonly modelFile: string;
  /** A LoRA, and how strongly it is applied. */
  readonly adapter?: { readonly file: string; readonly scale: number } | undefined;
  /** Tokens per sequence; lowered to the model's training length. */
  readonly contextLength: number;
  /** Number of sequences; each reserves the memory for all of its tokens from the start. */
  readonly slots: number;
  readonly batchTokens: number;
}

/** A token's traits: control tokens steer the model; user-defined ones are recognized in any text before it is split. */
export interface TokenTraits {
  readonly kind: 'control' | 'user-defined' | 'plain';
  /** Whether the token swallows white space before or after it. */
  readonly stripsBefore: boolean;
  readonly stripsAfter: boolean;
}

export interface ModelFacts {
  readonly slots: number;
  readonly contextLength: number;
  /** Maximum tokens of one decode. */
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
  /** Incomplete UTF-8 becomes U+FFFD. */
  detokenize(ids: readonly number[]): string;
  tokenText(id: number): string;
  /** The bytes of a token, even if they are half a character. */
  tokenBytes(id: number): readonly number[];
  tokenTraits(id: number): TokenTraits;
  isEndOfGeneration(id: number): boolean;
  createSampler(): Sampler;
  /** Throws if llama.cpp cannot read it. The start rule is `root`. */
  createGrammar(gbnf: string): Grammar;
  /** For the chosen token and the `top` likeliest ones. */
  createLogprobs(top: number): Logprobs;
  beginBatch(tokens: number): void;
  /** `sampled` requests logits after the last token; returns where they will be. */
  addToBatch(slot: number, position: number, tokens: Uint32Array, sampled: boolean): number | undefined;
  /** Like `addToBatch`, with logits after each token. They take 4 bytes per token of the vocabulary. */
  addScoredToBatch(slot: number, position: number, tokens: Uint32Array): readonly number[];
  /**
   * Decodes on another thread. With `hereMs` it first tries this thread, where possible, and gives up after that many milliseconds; on
   * success the batch is done when the call returns, and there is no promise.
   */
  decode(threads: number, hereMs?: number): Promise<void> | undefined;
  /** Must be called before `logprobs` if nothing in the batch was sampled. */
  settle(logits: number, logprobs: Logprobs): Promise<void>;
  /** Returns a token for each answer in the batch, -1 where none fits. Runs on the thread pool, on several cores. */
  sample(wanted: readonly Wanted[], done?: (index: number) => void): Promise<readonly number[]>;
  /** Returns the model's probability for a token there, unaffected by samplers. Only after `sample` of the same batch. */
  logprobs(logits: number, logprobs: Logprobs, id: number): Promise<TokenLogprobs>;
  /** Drops a slot's tokens from `length` on; returns how many are left, which may be 0. */
  truncate(slot: number, length: number): number;
  cachedTokens(slot: number): number;
  dispose(): Promise<void>;
}

/** Where the logits are (`addToBatch`), and the sampler that picks the token. */
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
  /** The grammar advances with each sampled token, except for the end of a generation. */
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
  /** Returns 1 in the place of each token that may come next, else 0; `undefined`: it takes too long. */
  allowsEach(ids: Uint32Array): ArrayLike<number> | undefined;
  /** Advances by a token that was not sampled; `false`: it does not fit, and the state is unusable from now on. */
  take(id: number): boolean;
}

/** The state for computing one answer's probabilities. */
export interface Logprobs {
  dispose(): void;
}

/** Natural logarithms of probabilities over the whole vocabulary. */
export interface TokenLogprobs {
  readonly logprob: number;
  /** The likeliest tokens, as many as requested. */
  readonly top: readonly { readonly id: number; readonly logprob: number }[];
}

/** Keeps its random state across `configure` as long as the seed is the same. */
export interface Sampler {
  configure(config: SamplerConfig): void;
  dispose(): void;
}
