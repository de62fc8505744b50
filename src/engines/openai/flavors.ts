import type { Constraint, Effort } from '../../generation/request.ts';
import type { ErrorCode } from '../../errors.ts';

export const flavorNames = ['llama-server', 'vllm', 'sglang', 'openai'] as const;
export type FlavorName = (typeof flavorNames)[number];

/** What a kind of server calls things, and where it departs from the OpenAI wire. Nothing else knows which kind it is. */
export interface Flavor {
  /** Fields of every request. */
  readonly always: Readonly<Record<string, unknown>>;
  /** Names of sampling fields; `undefined`: the server does not know it, so it is not sent. */
  readonly topK: string | undefined;
  readonly minP: string | undefined;
  readonly repetitionPenalty: string | undefined;
  /** Seeds are taken modulo this. */
  readonly seedModulus: number;
  readonly effort: (effort: Effort) => Readonly<Record<string, unknown>>;
  /** The field of an assistant message that carries its reasoning back. */
  readonly reasoningField: string | undefined;
  /** A forced function: by name, or (servers that know only the words) as the one tool of a `required` choice. */
  readonly namedToolChoice: 'by-name' | 'as-only-tool';
  /** The fields of a constraint, or `undefined` when the server cannot enforce it. */
  readonly constraint: (constraint: Constraint) => Readonly<Record<string, unknown>> | undefined;
  /** Whether text completions take token ids and texts, several at once. */
  readonly hasCompletions: boolean;
  /**
   * How cached prompts are kept apart (reliability §3.5): by a salt in the request; by switching the cache off as soon
   * as a second scope appears; or not at all, where the server offers nothing.
   */
  readonly cacheIsolation: 'salt' | 'switch' | 'none';
  readonly closingUsage: 'total' | 'per-choice';
  readonly counting: 'apply-template' | 'tokenize-messages' | 'none';
  /** Idle sockets end before the server ends them, so that no request meets a closing one. */
  readonly keepAliveMs: number;
  readonly requestsPerSocket: number | undefined;
  /** A 503 with such a text: the server is loading its model. */
  readonly loading: RegExp | undefined;
  /** Refusals that the client's request has caused for certain. */
  readonly refusals: readonly Refusal[];
}

export interface Refusal {
  readonly text: RegExp;
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string;
}

/** Tiers beyond the three that chat templates know count as the highest of these (specification §4.2.5). */
const templateEffort = (effort: Effort): string => (effort === 'xhigh' || effort === 'max' ? 'high' : effort);

const responseFormat = (constraint: Constraint): Readonly<Record<string, unknown>> | undefined => {
  if (constraint.type === 'json-object') return { response_format: { type: 'json_object' } };
  if (constraint.type !== 'json-schema') return undefined;
  const { name = 'answer', schema } = constraint;
  return { response_format: { type: 'json_schema', json_schema: { name, schema, strict: true } } };
};

/**
 * llama.cpp's server. Its answers are recorded in tests/fixtures/upstream/llama-server; field names are those of
 * tools/server/server-schema.cpp. `return_progress` makes it tell the prompt's length before it writes.
 */
const llamaServer: Flavor = {
  always: { stream_options: { include_usage: true }, return_progress: true },
  topK: 'top_k',
  minP: 'min_p',
  repetitionPenalty: 'repeat_penalty',
  // 2^32 − 1 means "random".
  seedModulus: 2 ** 32 - 1,
  effort: (effort) =>
    effort === 'none'
      ? { chat_template_kwargs: { enable_thinking: false } }
      : { chat_template_kwargs: { enable_thinking: true, reasoning_effort: templateEffort(effort) } },
  reasoningField: 'reasoning_content',
  // An object is read as "auto", without an error.
  namedToolChoice: 'as-only-tool',
  constraint: (constraint) =>
    constraint.type === 'grammar' ? { grammar: constraint.text } : responseFormat(constraint),
  hasCompletions: true,
  cacheIsolation: 'switch',
  // Each choice ends with a usage chunk of its own, without a choice in it.
  closingUsage: 'per-choice',
  counting: 'apply-template',
  // It closes after 5 s or 100 requests.
  keepAliveMs: 4_000,
  requestsPerSocket: 90,
  loading: /loading model/i,
  refusals: [
    {
      text: /(image|audio|video) input is not supported/i,
      code: 'unsupported_feature',
      message: 'The model does not take images. Leave them out, or choose a model whose card has `vision`.',
    },
    {
      text: /failed to (download|load) image/i,
      code: 'model_request_rejected',
      message: 'An image could not be fetched or read. Send it as a data URI.',
    },
    {
      text: /failed to parse grammar|JSON schema error|Unable to generate parser|cannot resolve \$ref/i,
      code: 'unsupported_value',
      message: 'The model cannot enforce this schema or grammar. Check its syntax and references, or make it simpler.',
    },
  ],
};

/** vLLM; names of vllm/entrypoints/openai/chat_completion/protocol.py. */
const vllm: Flavor = {
  always: { stream_options: { include_usage: true, continuous_usage_stats: true } },
  topK: 'top_k',
  minP: 'min_p',
  repetitionPenalty: 'repetition_penalty',
  seedModulus: Number.MAX_SAFE_INTEGER,
  effort: (effort) =>
    effort === 'none'
      ? { chat_template_kwargs: { enable_thinking: false } }
      : { chat_template_kwargs: { enable_thinking: true }, reasoning_effort: templateEffort(effort) },
  reasoningField: 'reasoning_content',
  namedToolChoice: 'by-name',
  constraint: (constraint) => {
    if (constraint.type === 'grammar') return { structured_outputs: { grammar: constraint.text } };
    if (constraint.type === 'regex') return { structured_outputs: { regex: constraint.pattern } };
    return responseFormat(constraint);
  },
  hasCompletions: true,
  cacheIsolation: 'salt',
  closingUsage: 'total',
  counting: 'tokenize-messages',
  // uvicorn closes after 5 s.
  keepAliveMs: 4_000,
  requestsPerSocket: undefined,
  loading: undefined,
  refusals: [
    {
      text: /(is not a multimodal model|At most 0 image)/i,
      code: 'unsupported_feature',
      message: 'The model does not take images. Leave them out, or choose a model whose card has `vision`.',
    },
  ],
};

/** SGLang; names of sglang/srt/entrypoints/openai/protocol.py. */
const sglang: Flavor = {
  ...vllm,
  effort: (effort) =>
    effort === 'none'
      ? { chat_template_kwargs: { thinking: false, enable_thinking: false } }
      : {
          chat_template_kwargs: { thinking: true, enable_thinking: true },
          reasoning_effort: templateEffort(effort),
        },
  constraint: (constraint) => {
    if (constraint.type === 'grammar') return { ebnf: constraint.text };
    if (constraint.type === 'regex') return { regex: constraint.pattern };
    return responseFormat(constraint);
  },
  counting: 'none',
  refusals: [],
};

/** Any other server: only what the OpenAI API documents, because some refuse fields that they do not know. */
const openai: Flavor = {
  always: { stream_options: { include_usage: true } },
  topK: undefined,
  minP: undefined,
  repetitionPenalty: undefined,
  seedModulus: Number.MAX_SAFE_INTEGER,
  effort: (effort) => (effort === 'none' ? {} : { reasoning_effort: templateEffort(effort) }),
  reasoningField: undefined,
  namedToolChoice: 'by-name',
  constraint: responseFormat,
  hasCompletions: false,
  cacheIsolation: 'none',
  closingUsage: 'total',
  counting: 'none',
  keepAliveMs: 4_000,
  requestsPerSocket: undefined,
  loading: undefined,
  refusals: [],
};

export const flavors: Readonly<Record<FlavorName, Flavor>> = { 'llama-server': llamaServer, vllm, sglang, openai };
