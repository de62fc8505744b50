import type { ErrorCode } from '../../../platform/errors.ts';
import type { GenerationEvent } from '../../../generation/event.ts';
import type { EngineRequest, Sampling } from '../../../generation/request.ts';
import type { PromptRequest } from './prompt.ts';

/**
 * Messages between the service and an engine child, over the channel of `fork` with structured cloning. `request` numbers are the
 * service's own and are never used twice for one child.
 */

/** From the service to the child. `load` is first and comes once. */
export type HostMessage =
  | { readonly type: 'load'; readonly options: LoadOptions }
  | { readonly type: 'generate'; readonly request: number; readonly work: Work }
  | { readonly type: 'count'; readonly request: number; readonly work: PromptRequest }
  /** The reader has taken this many more tokens. */
  | { readonly type: 'taken'; readonly request: number; readonly tokens: number }
  | { readonly type: 'cancel'; readonly request: number }
  | { readonly type: 'ping' };

/** From the child to the service. After `last`, `refused` or `counted` nothing more follows for a request. */
export type ChildMessage =
  | {
      readonly type: 'ready';
      readonly slots: number;
      readonly contextLength: number;
      readonly vocabularySize: number;
      readonly removesDefaultSystem: boolean;
    }
  | { readonly type: 'unusable'; readonly detail: string }
  | {
      readonly type: 'events';
      readonly request: number;
      readonly events: readonly GenerationEvent[];
      readonly tokens: number;
      readonly last: boolean;
    }
  | { readonly type: 'refused'; readonly request: number; readonly refusal: Refusal }
  | { readonly type: 'counted'; readonly request: number; readonly tokens: number }
  /** `working`: answers that are being made or wait for a slot. */
  | { readonly type: 'pong'; readonly rssBytes: number; readonly working: number };

export interface LoadOptions {
  readonly modelFile: string;
  readonly contextLength: number;
  readonly slots: number;
  readonly defaultSystem: 'template' | 'none';
  readonly samplingDefaults: Partial<Sampling>;
  readonly gpu: false | 'auto';
  /** `undefined`: chosen by timing. */
  readonly decodeThreads: number | undefined;
  readonly threadsMax: number;
}

/** The fields of a request that the child needs. */
export type Work = Pick<
  EngineRequest,
  | 'prompt'
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
