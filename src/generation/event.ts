/** One alternative at a position of the answer, or the chosen token itself. */
export interface TokenLogprob {
  readonly token: string;
  readonly tokenId: number | undefined;
  /** Natural logarithm, after temperature. */
  readonly logprob: number;
  readonly top: readonly { readonly token: string; readonly tokenId: number | undefined; readonly logprob: number }[];
}

/** Token counts. `cachedTokens` are inside `promptTokens`, `reasoningTokens` inside `completionTokens`. */
export interface Usage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** Usage as an engine knows it: `promptTokens` is `undefined` while its backend has said nothing about the prompt. */
export interface UsageReport extends Omit<Usage, 'promptTokens'> {
  readonly promptTokens: number | undefined;
}

/** The figures that a client sees: after the pipeline's meter, which knows an estimate, nothing is left unknown. */
export function knownUsage(report: UsageReport): Usage {
  const { promptTokens } = report;
  if (promptTokens === undefined) throw new Error('a usage without the prompt reached an encoder');
  return { ...report, promptTokens };
}

export type FinishReason = 'stop' | 'length' | 'tool-calls';

/** Why an answer was cut to `length`, where the engine knows. */
export type FinishCause = 'max-tokens' | 'window' | 'repetition' | 'credit';

/**
 * What an engine says while it generates. Deltas only: a dialect that draws block boundaries derives them.
 * `choice` counts from 0 over prompts × n. `call` counts the tool calls of a choice from 0.
 */
export type GenerationEvent =
  /** Always the first event of a stream. `undefined`: the backend does not tell the prompt's length before it writes; whoever needs a figure keeps its estimate until a `usage` says more. */
  | { readonly type: 'start'; readonly promptTokens: number | undefined; readonly cachedTokens?: number }
  | {
      readonly type: 'prompt';
      readonly choice: number;
      readonly tokenIds: readonly number[];
      readonly logprobs?: readonly TokenLogprob[];
    }
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
  | {
      readonly type: 'finish';
      readonly choice: number;
      readonly reason: FinishReason;
      readonly stopSequence?: string;
      readonly stopTokenId?: number;
      readonly cause?: FinishCause;
    }
  /** Cumulative; a later one replaces an earlier one. `counted` marks figures that the engine counted itself because its backend reported none. */
  | { readonly type: 'usage'; readonly usage: UsageReport; readonly counted?: boolean };

/** What one read from the engine brought; never empty. */
export type GenerationBatch = readonly GenerationEvent[];

/** Ends by returning after a `finish` for every choice, or by throwing. */
export type GenerationStream = AsyncIterable<GenerationBatch>;
