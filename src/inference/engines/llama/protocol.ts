import type { ErrorCode } from '../../../platform/errors.ts';
import type { GenerationEvent } from '../../../generation/event.ts';
import type { EngineRequest } from '../../../generation/request.ts';
import type { GpuUse } from './compute.ts';
import type { Purpose } from './purpose.ts';

/**
 * The calls between the service and an engine child, over the channel of `fork`. `request` numbers are assigned by the service and never
 * reused for the same child.
 */

/** `load` is first and comes once; calls after it wait until the model is loaded. */
export type ChildCalls = {
  /** Rejects if the model cannot be used, with a message that says why. */
  readonly load: (options: LoadOptions) => ModelFacts;
  readonly ping: (nothing: null) => ChildMeasure;
  readonly count: (order: { readonly request: number; readonly work: Work }) => Counted;
  /** One-way; answered by `events` and `refused`. */
  readonly generate: (order: { readonly request: number; readonly work: Work }) => void;
  /** One-way: the reader has taken this many more tokens. */
  readonly taken: (read: { readonly request: number; readonly tokens: number }) => void;
  /** One-way. */
  readonly cancel: (request: number) => void;
};

/** One-way messages from the child. After `last` or `refused` nothing more follows for a request. */
export type HostCalls = {
  readonly events: (made: {
    readonly request: number;
    readonly events: readonly GenerationEvent[];
    readonly tokens: number;
    readonly last: boolean;
  }) => void;
  readonly refused: (refused: { readonly request: number; readonly refusal: Refusal }) => void;
  /** More of a request's prompts has been read; at most five times a second. */
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
  /** Answers that are being made or wait in it. */
  readonly working: number;
}

export type Counted = { readonly tokens: number } | { readonly refusal: Refusal };

/** A LoRA as a GGUF file, and how strongly it is applied. */
export interface AdapterUse {
  readonly file: string;
  readonly scale: number;
}

export interface LoadOptions {
  readonly modelFile: string;
  readonly adapter: AdapterUse | undefined;
  readonly purpose: Purpose;
  readonly contextLength: number;
  readonly slots: number;
  /** For a model that embeds or ranks: one per slot. */
  readonly contexts: readonly { readonly window: number; readonly batchTokens: number }[];
  readonly defaultSystem: 'template' | 'none';
  /** `false`: the processor is used. */
  readonly gpu: false | GpuUse;
  /** `undefined`: chosen by timing. */
  readonly decodeThreads: number | undefined;
  readonly threadsMax: number;
  /** Maximum time until the first token for reading a request's prompts. */
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
