/** A token and its probability according to the model. */
export interface TokenProbability {
  readonly token: string;
  readonly tokenId: number | undefined;
  /** The bytes of the token, if the backend knows more than its text (half a character has no text). */
  readonly bytes: readonly number[] | undefined;
  /**
   * Natural logarithm of the model's own probability: before temperature, penalties, biases and constraints, as vLLM and
   * llama-server report it by default.
   */
  readonly logprob: number;
}

/** The chosen token at a position of the answer, with the most likely tokens there. */
export interface TokenLogprob extends TokenProbability {
  readonly top: readonly TokenProbability[];
  /** Where its text begins in the answer's text, in UTF-16 code units, if the engine knows. */
  readonly start?: number;
}

/** A token of a prompt. Nothing precedes the first one, so it has no probability. */
export interface PromptToken extends Omit<TokenLogprob, 'logprob'> {
  readonly logprob: number | undefined;
}

/** Token counts. `cachedTokens` are included in `promptTokens`, `reasoningTokens` in `completionTokens`. */
export interface Usage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** Usage as reported by an engine: `promptTokens` is undefined until its backend has reported it. */
export interface UsageReport extends Omit<Usage, 'promptTokens'> {
  readonly promptTokens: number | undefined;
}

/** The figures that a client sees: the pipeline's meter has an estimate, so all of them are known. */
export function knownUsage(report: UsageReport): Usage {
  const { promptTokens } = report;
  if (promptTokens === undefined) throw new Error('a usage without the prompt reached an encoder');
  return { ...report, promptTokens };
}

export type FinishReason = 'stop' | 'length' | 'tool-calls';

/** Why an answer was cut to `length`, if the engine knows. `constraint`: no token of the model can continue it. */
export type FinishCause = 'max-tokens' | 'window' | 'repetition' | 'credit' | 'constraint';

/** A prompt as its engine read it. */
export interface ReadPrompt {
  /** Empty unless the prompt is to be echoed. */
  readonly text: string;
  /** Set if ids are requested. */
  readonly tokenIds?: readonly number[];
  /** Set if the prompt is to be echoed with probabilities. */
  readonly tokens?: readonly PromptToken[];
}

/**
 * The output of an engine. Deltas only: a dialect that needs block boundaries derives them. `choice` counts from 0 over prompts × n. `call`
 * counts the tool calls of a choice from 0.
 */
export type GenerationEvent =
  /**
   * Always the first event of a stream. undefined: the backend does not report the prompt's length before it generates; readers that need a
   * figure keep their estimate until a `usage` arrives.
   */
  | { readonly type: 'start'; readonly promptTokens: number | undefined; readonly cachedTokens?: number }
  /** The prompt of the choice, if the request asks for it (`TokenControls`): once, before any other event of the choice. */
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
  /** A task's result for the prompt with this number: its only event before its `finish`. The vector has unit length. */
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
   * Cumulative; a later one replaces an earlier one, and each batch with text, reasoning or a call ends with one. `counted` marks figures
   * that the engine counted or estimated itself because its backend reported no plausible ones.
   */
  | { readonly type: 'usage'; readonly usage: UsageReport; readonly counted?: boolean };

/** The events of one read from the engine; never empty. */
export type GenerationBatch = readonly GenerationEvent[];

/**
 * Takes a batch, in the turn that delivered it; most batches need no promise. A promise applies backpressure: the next batch comes when it
 * has resolved. `false` or a throw ends the generation here.
 */
export type TakeBatch = (batch: GenerationBatch) => boolean | Promise<boolean>;
