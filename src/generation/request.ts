/**
 * A client's request, in the single format that every dialect decodes into and every engine reads. Everything in this folder is plain,
 * readonly data and imports nothing.
 */

import type { Tier } from './tier.ts';

/** Tiers of reasoning effort, in the order used to measure distances between them (specification §4.2.5(3)). */
export const efforts = ['none', 'low', 'medium', 'high', 'xhigh', 'max'] as const;
export type Effort = (typeof efforts)[number];

/** Sampling fields as the client sent them; undefined: not sent. */
export interface Sampling {
  readonly temperature: number | undefined;
  readonly topP: number | undefined;
  readonly topK: number | undefined;
  readonly minP: number | undefined;
  readonly presencePenalty: number | undefined;
  readonly frequencyPenalty: number | undefined;
  /** Multiplicative; 1 has no effect. */
  readonly repetitionPenalty: number | undefined;
  readonly seed: number | undefined;
}

/** A part of a message. `at` is its path in the client's body, used as the `param` of an error. */
export type Part =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image-url'; readonly url: string; readonly at: string }
  | ImagePart
  | {
      readonly type: 'file';
      readonly fileId: string | undefined;
      readonly data: string | undefined;
      /** Set for a document that is to be fetched. */
      readonly url?: string;
      readonly filename: string | undefined;
      readonly at: string;
    };

/** An image whose bytes are present, checked as far as its header allows. */
export interface ImagePart {
  readonly type: 'image';
  readonly mediaType: ImageMediaType;
  /** Strict base64 of the whole file. */
  readonly base64: string;
  readonly size: ImageSize;
  readonly at: string;
}

export type ImageMediaType = 'image/png' | 'image/jpeg' | 'image/gif' | 'image/webp';

/** In pixels. */
export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** The number of image tokens in a prompt: an estimate on the low side, and an upper bound. */
export interface ImageTokens {
  readonly likely: number;
  readonly most: number;
}

/** Reasoning sent back from an earlier turn. */
export interface ReasoningText {
  /** Empty if only the signature contains it, encrypted. */
  readonly text: string;
  readonly signature: ReasoningSignature | undefined;
}

/** What an encoder attached to reasoning, as the client sent it back, not yet checked. `at` is the field that held it. */
export interface ReasoningSignature {
  readonly value: string;
  readonly at: string;
}

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text, exactly as written by the model or the client. */
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
      /** Marks the last message of a conversation if the answer continues its words instead of being a separate turn. */
      readonly isBeginning?: boolean;
    }
  | { readonly role: 'tool'; readonly toolCallId: string | undefined; readonly content: readonly Part[] };

/** Whether the answer continues the last message, which the client has begun for the model. */
export const continuesLast = (prompt: Prompt): boolean => beginningOf(prompt) !== undefined;

/** The message that the answer continues. */
export function beginningOf(prompt: Prompt): Extract<Message, { readonly role: 'assistant' }> | undefined {
  const last = prompt.type === 'messages' ? prompt.messages.at(-1) : undefined;
  return last?.role === 'assistant' && last.isBeginning === true ? last : undefined;
}

/** A service tier as a client may ask for it. */
export type AskedTier = 'priority' | 'default' | 'flex';

/** One conversation, or lists of ready prompts (text completions): choice = prompt index × n + i. */
export type Prompt =
  | { readonly type: 'messages'; readonly messages: readonly Message[] }
  | { readonly type: 'token-ids'; readonly prompts: readonly (readonly number[])[] }
  | { readonly type: 'texts'; readonly prompts: readonly string[] };

/**
 * The result requested for each prompt instead of an answer: its embedding, or its relevance to a query. Nothing is generated, so there are
 * no completion tokens and no stream. `field` is the request body's name for the prompts.
 */
export type Task =
  | { readonly type: 'embed'; readonly field: string; readonly dimensions: number | undefined }
  | { readonly type: 'rank'; readonly field: string; readonly query: string };

export interface Tool {
  /** The type as sent by the client; only `function` can be offered to a model. */
  readonly type: string;
  readonly name: string;
  readonly description: string | undefined;
  /** JSON Schema of the arguments; undefined if the client sent none. */
  readonly parameters: unknown;
}

export type ToolChoice =
  { readonly type: 'auto' | 'none' | 'required' } | { readonly type: 'function'; readonly name: string };

/** A constraint on the form of the answer, in its original text. */
export type Constraint =
  | { readonly type: 'json-object' }
  | { readonly type: 'json-schema'; readonly schema: unknown; readonly name: string | undefined }
  | { readonly type: 'grammar'; readonly text: string }
  | { readonly type: 'regex'; readonly pattern: string };

/** A constraint as the client sent it, and as a grammar text for llama.cpp and its relatives. */
export interface EngineConstraint {
  readonly source: Constraint;
  /** GBNF with the start rule `root`; undefined until it is compiled. */
  readonly gbnf: string | undefined;
  /** The form for `inference/constraints/acceptor.ts`; absent until it is compiled, in which case an answer cannot be checked. */
  readonly program?: Int32Array;
}

/**
 * Where reasoning goes: beside the answer, into the answer between the model's own tags (§4.2.5(1)), or nowhere, neither as text nor as a
 * separate count (§4.2.5(4)).
 */
export type ReasoningForm = 'separate' | 'inline' | 'hidden';

/** The client's reasoning setting: a tier as sent, not yet checked, or a switch; `at` is the field that held it. */
export type RequestedEffort =
  | { readonly type: 'tier'; readonly value: string; readonly at: string }
  | { readonly type: 'switch'; readonly on: boolean; readonly at: string };

/** Token-level settings of text completions (contracts §1.1). */
export interface TokenControls {
  /** Whether the answer is preceded by its prompt, with probabilities too if `logprobs` are requested. */
  readonly echo: boolean;
  /** Whether token ids of the prompt and the answer are returned. */
  readonly returnsIds: boolean;
  /** Whether tokens with logprobs are identified by their ids. */
  readonly namesIds: boolean;
  /** Tokens that end the answer and are not part of it. */
  readonly stopIds: readonly number[];
  /** Whether the model's end-of-generation tokens are suppressed. */
  readonly ignoresEnd: boolean;
  /** Minimum number of tokens before anything can end the answer. */
  readonly tokensMin: number;
  /** Whether control tokens have no text. */
  readonly skipsSpecial: boolean;
  /** Whether what ended the answer, a stop sequence or a token of `stopIds`, is part of it. */
  readonly includesStop: boolean;
  /** Whether the special tokens required by the vocabulary are added before a text. */
  readonly addsSpecial: boolean;
}

/** The request body's names for the fields that errors refer to in their `param`. */
export interface FieldPaths {
  /** The field that holds the whole prompt. */
  readonly prompt: string;
  readonly toolChoice: string;
  readonly toolChoiceName: string;
  /** The field that selects the form of the answer, and the one that holds the form's own text. */
  readonly constraintType: string;
  readonly constraintText: string;
  /** The field that conflicts with `tools` when both give the answer a form. */
  readonly constraint: string;
  /** The field that asks for log probabilities; absent: `logprobs`. */
  readonly logprobs?: string;
  /** The field of stop sequences; absent: `stop`. */
  readonly stop?: string;
  /** The field of the tool with this index in `tools`. */
  tool(index: number, part: 'type' | 'name' | 'parameters'): string;
  /** The field of the message of role `tool` with this index in the prompt. */
  toolCallId(message: number): string;
  /** The field of one of several prompts that are tasks. */
  promptAt?(prompt: number): string;
  /** The field of a token in a list of ids, if prompts may be such lists. */
  tokenId?(prompt: number, index: number): string;
}

/** A decoded request, before the policy of the model's card has been applied to it. */
export interface GenerationRequest {
  /** The model's id as the client wrote it. */
  readonly model: string;
  readonly stream: boolean;
  readonly prompt: Prompt;
  /** Absent: answers are generated. */
  readonly task?: Task;
  /** Whether the client sent a system text, possibly empty, beside the conversation rather than as a message. */
  readonly sendsSystem?: boolean;
  /** `n`: the number of answers to each prompt. */
  readonly choices: number;
  /** Maximum completion tokens that the client requested, reasoning included; undefined if not specified. */
  readonly maxTokens: number | undefined;
  readonly sampling: Sampling;
  readonly stop: readonly string[];
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice | undefined;
  readonly parallelToolCalls: boolean | undefined;
  readonly constraint: Constraint | undefined;
  readonly effort: RequestedEffort | undefined;
  /** The service tier that the client asked for; undefined: that of its key or account. */
  readonly tier?: AskedTier | undefined;
  readonly preserveThinking: boolean;
  /** Number of alternatives to report beside each chosen token; undefined: no logprobs. */
  readonly logprobs: number | undefined;
  readonly logitBias: Readonly<Record<string, number>> | undefined;
  /** Set only if prompts are texts or ids. */
  readonly tokens?: TokenControls;
  readonly at: FieldPaths;
}

/** An engine's input: a request after every policy has been applied, with nothing left open. */
export interface EngineRequest {
  /** The ledger's id of the request (UUIDv7 as 32 hex digits); unique, generated here, safe to send upstream. */
  readonly id: string;
  readonly prompt: Prompt;
  /** Absent: answers are generated. Otherwise the prompts are `texts` or `token-ids`, and each is one choice. */
  readonly task?: Task | undefined;
  readonly choices: number;
  /** Maximum completion tokens, reasoning included, after §4.2.1. */
  readonly maxTokens: number;
  readonly sampling: Sampling;
  readonly stop: readonly string[];
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
  readonly parallelToolCalls: boolean;
  readonly constraint: EngineConstraint | undefined;
  readonly effort: Effort;
  readonly reasoningForm: ReasoningForm;
  /** Tokens that reasoning may take beyond `maxTokens` (§4.2.1(5)). */
  readonly reasoningRoomTokens: number;
  /** The service tier that serves it; absent: `default`. */
  readonly tier?: Tier | undefined;
  readonly logprobs: number | undefined;
  readonly logitBias: Readonly<Record<string, number>> | undefined;
  readonly tokens?: TokenControls | undefined;
  /** Cached prompts may be shared only between requests with the same value: one per account (reliability §3.5). */
  readonly cacheScope: string;
  /** false under zero data retention: nothing from the request may outlive it, prompt caches included. */
  readonly retain: boolean;
}
