import type { FinishCause } from '../../../generation/event.ts';
import type { Grammar, TokenLogprobs } from './llama-model.ts';
import type { BannedTokens, SamplingSettings } from './sampling.ts';
import type { CacheUser } from './slots.ts';

/** One answer to one prompt. */
export interface Job extends CacheUser {
  readonly maxTokens: number;
  readonly sampling: SamplingSettings;
  /** Ids that begin the answer before anything is sampled. */
  readonly opening?: readonly number[];
  readonly constraint?: JobConstraint | undefined;
  /** Whether to report the probability of each token, with this many alternatives. */
  readonly topLogprobs?: number | undefined;
  readonly banned?: BannedTokens;
  /** Tokens that end the answer like the model's own end token; `included`: they are part of it. */
  readonly stopTokens?: { readonly ids: readonly number[]; readonly included: boolean };
  /** Jobs with the same object are answers to one request. */
  readonly group?: object;
  readonly reader: JobReader;
}

export interface JobConstraint {
  readonly grammar: Grammar;
  /** `reader`: from where the reader says so. */
  readonly from: 'opening' | 'reader';
}

/**
 * Receives a job's progress. Calls come from the loop, one at a time: a token while the next step decodes, and always before the
 * token after it is chosen.
 */
export interface JobReader {
  /** `false` while too much is unread: the job is then skipped. */
  readonly takesMore: boolean;
  /** Tokens so far that do not count toward `maxTokens`; `undefined`: all of them count. */
  readonly tokensBeyond?: number | undefined;
  started(cachedTokens: number): void;
  /** Called when a step has read more of the prompt. */
  reads?(): void;
  /** Called with the probability of the prompt's second token, its third, and so on, before any token of the answer. */
  scored?(logprobs: TokenLogprobs): void;
  token(token: MadeToken): Direction | undefined;
  /** Called when the model ends the answer; returns ids to use in place of its end. */
  insteadOfEnd?(): readonly number[] | undefined;
  ended(ending: JobEnding): void;
}

export interface MadeToken {
  readonly id: number;
  readonly logprobs: TokenLogprobs | undefined;
}

/** What the text so far implies for the next token. */
export interface Direction {
  /** The answer ends here, with the stop sequence that the token completed or without one. */
  readonly stop?: { readonly sequence?: string };
  /** Ids that come next, regardless of the model's choice. */
  readonly force?: readonly number[];
  /** The constraint holds after them; this text was already written under it. */
  readonly constrainFrom?: string;
}

export type JobEnding =
  /** Without a stop sequence, the model itself ended. */
  | { readonly type: 'stop'; readonly stopSequence?: string; readonly stopTokenId?: number }
  | { readonly type: 'length'; readonly cause: FinishCause }
  | { readonly type: 'cancelled' }
  /** Its constraint took llama.cpp too long. */
  | { readonly type: 'too-slow' }
  /** `detail` is a sentence from the service or from llama.cpp, for the log; it holds no content. */
  | { readonly type: 'failed'; readonly detail: string };
