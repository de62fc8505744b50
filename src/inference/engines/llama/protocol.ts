import type { ErrorCode } from '../../../platform/errors.ts';
import type { GenerationEvent } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import type { GpuUse } from './compute.ts';
import type { Purpose } from './purpose.ts';

/**
 * What the service and an engine child call at each other, over the channel of `fork`. `request` numbers are the service's own and
 * are never used twice for one child.
 */

/** `load` is first and comes once; what follows waits until the model is loaded. */
export type ChildCalls = {
  /** Rejects when the model cannot be used, with a message that says why. */
  readonly load: (options: LoadOptions) => ModelFacts;
  readonly ping: (nothing: null) => ChildMeasure;
  readonly count: (order: { readonly request: number; readonly work: Work }) => Counted;
  /** A note; `events` and `refused` answer it. */
  readonly generate: (order: { readonly request: number; readonly work: Work }) => void;
  /** A note: the reader has taken this many more tokens. */
  readonly taken: (read: { readonly request: number; readonly tokens: number }) => void;
  /** A note. */
  readonly cancel: (request: number) => void;
};

/** Notes of the child. After `last` or `refused` nothing more follows for a request. */
export type HostCalls = {
  readonly events: (made: {
    readonly request: number;
    readonly events: readonly GenerationEvent[];
    readonly tokens: number;
    readonly last: boolean;
  }) => void;
  readonly refused: (refused: { readonly request: number; readonly refusal: Refusal }) => void;
  /** More of a request's prompts has been read; five times a second at most. */
  readonly reading: (request: number) => void;
};

export interface ModelFacts {
  readonly slots: number;
  readonly contextLength: number;
  readonly vocabularySize: number;
  readonly removesDefaultSystem: boolean;
}

/** A child's report about itself. */
export interface ChildMeasure {
  readonly rssBytes: number;
  /** Answers that it is making or that wait in it. */
  readonly working: number;
}

export type Counted = { readonly tokens: number } | { readonly refusal: Refusal };

export interface LoadOptions {
  readonly modelFile: string;
  readonly purpose: Purpose;
  readonly contextLength: number;
  readonly slots: number;
  /** Of a model that embeds or ranks: one for each slot. */
  readonly contexts: readonly { readonly window: number; readonly batchTokens: number }[];
  readonly defaultSystem: 'template' | 'none';
  /** `false`: it is computed with the processor. */
  readonly gpu: false | GpuUse;
  /** `undefined`: chosen by timing. */
  readonly decodeThreads: number | undefined;
  readonly threadsMax: number;
  /** How long a request's prompts may take until the first token. */
  readonly readingMsMax: number;
}

/** The fields of a request that the child needs. */
export type Work = Pick<
  EngineRequest,
  | 'prompt'
  | 'task'
  | 'choices'
  | 'maxTokens'
  | 'sampling'
  | 'stop'
  | 'tools'
  | 'toolChoice'
  | 'parallelToolCalls'
  | 'effort'
  | 'reasoningForm'
  | 'reasoningRoomTokens'
  | 'logprobs'
  | 'logitBias'
  | 'tokens'
  | 'cacheScope'
  | 'retain'
> & {
  /** The grammar of the answer, and the field that it comes from. */
  readonly gbnf: string | undefined;
  readonly constraintParam: string | undefined;
};

/** An `ApiError` in a form that survives the channel. `detail` is for the log only. */
export interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param: string | undefined;
  readonly extra: Readonly<Record<string, unknown>>;
  readonly detail: string | undefined;
}

/** Tokens of one request that may lie unread before its generation pauses. */
export const unreadTokensMax = 256;
