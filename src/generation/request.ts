/**
 * What a client asks for, in the one language that every dialect decodes into and every engine reads.
 * Everything in this folder is plain, readonly data and imports nothing.
 */

/** Tiers of reasoning effort, in the order in which distances between them are counted (specification §4.2.5(3)). */
export const efforts = ['none', 'low', 'medium', 'high', 'xhigh', 'max'] as const;
export type Effort = (typeof efforts)[number];

/** Sampling fields as the client sent them; `undefined` means that the client said nothing. */
export interface Sampling {
  readonly temperature: number | undefined;
  readonly topP: number | undefined;
  readonly topK: number | undefined;
  readonly minP: number | undefined;
  readonly presencePenalty: number | undefined;
  readonly frequencyPenalty: number | undefined;
  /** Multiplicative; 1 changes nothing. */
  readonly repetitionPenalty: number | undefined;
  readonly seed: number | undefined;
}

/** A piece of a message. `at` is the path in the client's body, for the `param` of an error. */
export type Part =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image-url'; readonly url: string; readonly at: string }
  | {
      readonly type: 'file';
      readonly fileId: string | undefined;
      readonly data: string | undefined;
      readonly filename: string | undefined;
      readonly at: string;
    };

/** Reasoning that comes back from an earlier turn; `seal` is what our own encoder attached to it. */
export interface ReasoningText {
  readonly text: string;
  readonly seal: string | undefined;
}

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text, exactly as the model or the client wrote it. */
  readonly arguments: string;
}

/** `developer` is decoded as `system`; a system message keeps its place in the conversation (contracts §0.1). */
export type Message =
  | { readonly role: 'system' | 'user'; readonly content: readonly Part[] }
  | {
      readonly role: 'assistant';
      readonly content: readonly Part[];
      readonly reasoning: readonly ReasoningText[];
      readonly toolCalls: readonly ToolCall[];
    }
  | { readonly role: 'tool'; readonly toolCallId: string | undefined; readonly content: readonly Part[] };

/** One conversation, or lists of ready prompts (text completions): choice = prompt index × n + i. */
export type Prompt =
  | { readonly type: 'messages'; readonly messages: readonly Message[] }
  | { readonly type: 'token-ids'; readonly prompts: readonly (readonly number[])[] }
  | { readonly type: 'texts'; readonly prompts: readonly string[] };

export interface Tool {
  /** The wire's own type; only `function` can be offered to a model. */
  readonly type: string;
  readonly name: string;
  readonly description: string | undefined;
  /** JSON Schema of the arguments; `undefined` when the client sent none. */
  readonly parameters: unknown;
}

export type ToolChoice =
  { readonly type: 'auto' | 'none' | 'required' } | { readonly type: 'function'; readonly name: string };

/** A bound on the shape of the answer, in its original text. */
export type Constraint =
  | { readonly type: 'json-object' }
  | { readonly type: 'json-schema'; readonly schema: unknown; readonly name: string | undefined }
  | { readonly type: 'grammar'; readonly text: string }
  | { readonly type: 'regex'; readonly pattern: string };

/** What the client said of reasoning: a tier as written, not yet checked, or a switch; `at` is the field that held it. */
export type RequestedEffort =
  | { readonly type: 'tier'; readonly value: string; readonly at: string }
  | { readonly type: 'switch'; readonly on: boolean; readonly at: string };

/** A decoded request, before the policy of the model's card has been applied to it. */
export interface GenerationRequest {
  /** The model's id as the client wrote it. */
  readonly model: string;
  readonly stream: boolean;
  readonly prompt: Prompt;
  /** `n`: how many answers to each prompt. */
  readonly choices: number;
  /** Largest number of generated tokens that the client asked for, reasoning included; `undefined` when it did not say. */
  readonly maxTokens: number | undefined;
  readonly sampling: Sampling;
  readonly stop: readonly string[];
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice | undefined;
  readonly parallelToolCalls: boolean | undefined;
  readonly constraint: Constraint | undefined;
  readonly effort: RequestedEffort | undefined;
  readonly preserveThinking: boolean;
  /** How many alternatives to report beside each chosen token; `undefined` = no logprobs. */
  readonly logprobs: number | undefined;
  readonly logitBias: Readonly<Record<string, number>> | undefined;
}

/** What an engine is asked to do: a request after every policy, with nothing left open. */
export interface EngineRequest {
  /** The ledger's id of the request (UUIDv7 as 32 hex digits); unique, ours, safe to send upstream. */
  readonly id: string;
  readonly prompt: Prompt;
  readonly choices: number;
  /** Generated tokens, reasoning included, after §4.2.1. */
  readonly maxTokens: number;
  readonly sampling: Sampling;
  readonly stop: readonly string[];
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly parallelToolCalls: boolean;
  readonly constraint: Constraint | undefined;
  readonly effort: Effort;
  readonly preserveThinking: boolean;
  readonly logprobs: number | undefined;
  readonly logitBias: Readonly<Record<string, number>> | undefined;
  /** Cached prompts may be shared only between requests with the same value: one per account (reliability §3.5). */
  readonly cacheScope: string;
  /** false under zero data retention: nothing of the request may outlive it, prompt caches included. */
  readonly retain: boolean;
}
