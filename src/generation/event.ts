/** A token and how likely the model found it. */
export interface TokenProbability {
  readonly token: string;
  readonly tokenId: number | undefined;
  /** The bytes of the token, where the backend knows more than its text (half a character has no text). */
  readonly bytes: readonly number[] | undefined;
  /**
   * Natural logarithm of the model's own probability: before temperature, penalties, biases and constraints, as vLLM and
   * llama-server report it by default.
   */
  readonly logprob: number;
}

/** The chosen token at a position of the answer, with the likeliest ones there. */
export interface TokenLogprob extends TokenProbability {
  readonly top: readonly TokenProbability[];
  /** Where its text begins in the text of the answer, in UTF-16 code units, where the engine knows it. */
  readonly start?: number;
}

/** A token of a prompt. Nothing precedes the first one, so it has no probability. */
export interface PromptToken extends Omit<TokenLogprob, 'logprob'> {
  readonly logprob: number | undefined;
}

/** Token counts. `cachedTokens` are inside `promptTokens`, `reasoningTokens` inside `completionTokens`. */
export interface Usage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** Usage as reported by an engine: `promptTokens` is `undefined` until its backend has reported it. */
export interface UsageReport extends Omit<Usage, 'promptTokens'> {
  readonly promptTokens: number | undefined;
}

/** The figures that a client sees: the pipeline's meter has an estimate, so nothing is left unknown. */
export function knownUsage(report: UsageReport): Usage {
  const { promptTokens } = report;
  if (promptTokens === undefined) throw new Error('a usage without the prompt reached an encoder');
  return { ...report, promptTokens };
}

export type FinishReason = 'stop' | 'length' | 'tool-calls';

/** Why an answer was cut to `length`, where the engine knows. `constraint`: no token of the model continues it any more. */
export type FinishCause = 'max-tokens' | 'window' | 'repetition' | 'credit' | 'constraint';

/** A prompt as its engine read it. */
export interface ReadPrompt {
  /** Empty unless it is to be echoed. */
  readonly text: string;
  /** Present when ids are requested. */
  readonly tokenIds?: readonly number[];
  /** Present when it is to be echoed with probabilities. */
  readonly tokens?: readonly PromptToken[];
}

/**
 * The output of an engine. Deltas only: a dialect that draws block boundaries derives them. `choice` counts from 0 over prompts ×
 * n. `call` counts the tool calls of a choice from 0.
 */
export type GenerationEvent =
  /**
   * Always the first event of a stream. `undefined`: the backend does not report the prompt's length before it writes; readers
   * that need a figure keep their estimate until a `usage` arrives.
   */
  | { readonly type: 'start'; readonly promptTokens: number | undefined; readonly cachedTokens?: number }
  /** The prompt of the choice, when the request asks for it (`TokenControls`): once, before anything else of the choice. */
  | ({ readonly type: 'prompt'; readonly choice: number } & ReadPrompt)
  | {
      readonly type: 'text';
      readonly choice: number;
      readonly text: string;
      readonly logprobs?: readonly TokenLogprob[];
      readonly tokenIds?: readonly number[];
    }
  | { readonly type: 'reasoning'; readonly choice: number; readonly text: string }
  | {
      readonly type: 'tool-call';
      readonly choice: number;
      readonly call: number;
      readonly id: string;
      readonly name: string;
    }
  | { readonly type: 'tool-arguments'; readonly choice: number; readonly call: number; readonly text: string }
  /** What a task makes of the prompt with this number: its only event before its `finish`. The vector has unit length. */
  | { readonly type: 'vector'; readonly choice: number; readonly vector: Float32Array }
  /** The same for a rank, between 0 and 1. */
  | { readonly type: 'score'; readonly choice: number; readonly score: number }
  | {
      readonly type: 'finish';
      readonly choice: number;
      readonly reason: FinishReason;
      readonly stopSequence?: string;
      readonly stopTokenId?: number;
      readonly cause?: FinishCause;
    }
  /**
   * Cumulative; a later one replaces an earlier one, and one ends each batch with text, reasoning or a call. `counted` marks figures that
   * the engine counted or estimated itself because its backend reported none that can be true.
   */
  | { readonly type: 'usage'; readonly usage: UsageReport; readonly counted?: boolean };

/** The events of one read from the engine; never empty. */
export type GenerationBatch = readonly GenerationEvent[];

/**
 * Takes a batch, in the turn that brought it; most of them cost no promise. A promise holds the engine back: the next batch comes
 * when it has resolved. `false` or a throw ends the generation here.
 */
export type TakeBatch = (batch: GenerationBatch) => boolean | Promise<boolean>;
