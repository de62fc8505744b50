import type { FlavorName } from '../../../generation/flavor-names.ts';
import type { Constraint, Effort, EngineConstraint } from '../../../generation/request.ts';
import type { ErrorCode } from '../../../platform/errors.ts';
import { openAiImageTokens, openModelImageTokens } from '../image-tokens.ts';
import type { ImageTokenRule } from '../image-tokens.ts';
import { plainEffort, reasoningBudgetTokens } from '../reasoning-effort.ts';
import { llamaServerReport, sglangReport, slotsReport, vllmReport, type ReportPage } from './server-report.ts';

/**
 * The names that a kind of server has for the fields of text completions beyond OpenAI's (contracts §1.1). `undefined`: it has no such
 * field, so a request that needs it is refused, because these servers ignore unknown fields.
 */
export interface CompletionNames {
  /**
   * Whether the server begins an answer with the prompt, in one piece with the first text and with the logprobs of both. If it does not,
   * texts are put before the answer here, without logprobs.
   */
  readonly echo: boolean;
  /** The field that requests the answer's `token_ids` and `prompt_token_ids`, whose names are the same on all servers. */
  readonly returnsIds: string | undefined;
  /** Tokens of logprobs come as `token_id:7` if requested by this name, or always with their ids. */
  readonly namesIds: string | 'always' | undefined;
  readonly stopIds: string | undefined;
  readonly ignoresEnd: string | undefined;
  readonly tokensMin: string | undefined;
  readonly skipsSpecial: string | undefined;
  readonly includesStop: string | undefined;
  readonly addsSpecial: string | undefined;
  /** Whether constraints work, in the fields of chat; for models that reason they may not. */
  readonly constrains: 'always' | 'without-reasoning' | 'never';
}

/** How a kind of server ranks documents. */
export interface RankWire {
  /** Whether its path is next to the API's version or below it. */
  readonly path: 'root' | 'versioned';
  readonly documents: 'documents' | 'texts';
  /**
   * `logit`: any number, which the logistic function turns into a relevance. `relevance-or-cosine`: for an embedding model, the cosine of
   * two vectors; a negative one means no relevance.
   */
  readonly scores: 'relevance' | 'logit' | 'relevance-or-cosine';
  /** Fields sent with every request. */
  readonly always?: Readonly<Record<string, unknown>>;
}

/**
 * How a kind of server embeds, which is OpenAI's way for all of them, and ranks. `promptsMax`: maximum prompts per request; `rank`: absent
 * if it cannot rank; `byFlag`: it does either only if started for it, and may still answer chats; `takesIds`: false if it turns token ids
 * into a text and reads that; `tokensHeader`: the header with the number of tokens read, if the answer does not state it.
 */
export interface TaskWire {
  readonly promptsMax?: number;
  readonly rank?: RankWire;
  readonly byFlag?: boolean;
  readonly takesIds?: boolean;
  readonly tokensHeader?: string;
}

/** A kind of server's names, and its deviations from the OpenAI wire format. No other code knows which kind a server is. */
export interface Flavor {
  /** Fields sent with every request. */
  readonly always: Readonly<Record<string, unknown>>;
  /** Names of sampling fields; `undefined`: the server does not know the field, so it is not sent. */
  readonly topK: string | undefined;
  readonly minP: string | undefined;
  readonly repetitionPenalty: string | undefined;
  readonly presencePenalty: string | undefined;
  /** Seeds are taken modulo this value, and without their sign unless the server accepts one. */
  readonly seedModulus: number;
  readonly hasSignedSeeds: boolean;
  /** The name of the token limit for models that reason; `max_tokens` for all others. */
  readonly reasoningLimit: 'max_tokens' | 'max_completion_tokens';
  /** Returns the fields that set a reasoning model's effort. The tiers are those of the model's card: its server knows them. */
  readonly effort: (effort: Effort, isConstrained: boolean) => Readonly<Record<string, unknown>>;
  /**
   * How to force a function: by name, or (for servers that know only keywords) as the one tool of a `required` choice. `ignored`: the
   * server does not support a choice, so a request that forces a call is refused.
   */
  readonly namedToolChoice: 'by-name' | 'as-only-tool' | 'ignored';
  /** Constraints that the server enforces. Others are never sent to it. */
  readonly enforces: readonly Constraint['type'][];
  /** Constraints that the server would also apply to the reasoning: with them reasoning is switched off. */
  readonly constrainsReasoning: readonly Constraint['type'][];
  /**
   * Whether the server gets the schema and converts it itself, as is necessary where the reasoning before the answer must stay free.
   * Otherwise it gets the service's grammar, and answers are checked against that exactly.
   */
  readonly convertsItself: (type: Constraint['type'], effort: Effort) => boolean;
  /** Returns the fields for a constraint that it enforces. */
  readonly constraint: (constraint: EngineConstraint, effort: Effort) => Readonly<Record<string, unknown>>;
  /** Fields that make the server continue the assistant's words at the end of the conversation; `undefined` if there are none. */
  readonly continuation: Readonly<Record<string, unknown>> | undefined;
  /** Whether its answer then begins with these words. */
  readonly echoesBeginning: boolean;
  /** Whether it leaves a stop sequence at the end of its answer, where it is then removed here. */
  readonly keepsStop: boolean;
  /** Whether it reports which stop sequence ended an answer, and thus also that none did. */
  readonly returnsStop: boolean;
  /** Whether it binds the arguments of a forced call only if the tool is marked as `strict`. */
  readonly bindsStrictTools: boolean;
  /** Whether a tool without parameters is an error. */
  readonly needsParameters: boolean;
  /** Whether an answer that is a whole call has no finish reason: only a truncated one has. */
  readonly endsCallsWithoutReason: boolean;
  /** Additional fields of a forced call, besides those of its tools. */
  readonly forcedCall: Readonly<Record<string, unknown>>;
  /** Whether `top_p: 0` is an error; for other servers it means the likeliest token. */
  readonly refusesNoTopP: boolean;
  /** Whether `top_p: 1` is an error; for other servers it means all tokens, as without the field. */
  readonly refusesWholeTopP: boolean;
  /** Whether several choices at temperature 0 are an error. */
  readonly refusesGreedyChoices: boolean;
  /** The fewest alternatives that may be requested for a chosen token. */
  readonly topLogprobsMin: number;
  /** Whether it continues a text as it is; a server that puts the text into its template would answer it, so it gets none. */
  readonly continuesTexts: boolean;
  /** The fields of text completions that the server supports. */
  readonly completions: CompletionNames;
  /**
   * How cached prompts are isolated (reliability §3.5): by a salt in the request; by switching the cache off, except on a server that was
   * fresh and until a second scope appears; or not at all, if the server has no means.
   */
  readonly cacheIsolation: 'salt' | 'switch' | 'none';
  readonly closingUsage: 'total' | 'per-choice';
  /** Whether each delta of its streams is one token, so that an answer abandoned before its usage arrives is counted by them. */
  readonly hasTokenPerDelta: boolean;
  readonly counting: 'apply-template' | 'tokenize-messages' | 'tokenize-inputs' | 'tokenize-chat' | 'none';
  /** Where it reports its own load, the best page first; empty if it does not. */
  readonly reports: readonly ReportPage[];
  readonly tasks: TaskWire;
  readonly imageTokens: ImageTokenRule;
  /** Idle sockets are closed before the server closes them, so that no request meets a closing one. */
  readonly keepAliveMs: number;
  readonly requestsPerSocket: number | undefined;
  /** A 503 with this text: the server is loading its model. */
  readonly loading: RegExp | undefined;
  /** An error with this text means, regardless of its status, that the server is overloaded. */
  readonly overloaded: RegExp | undefined;
  /** Refusals that the client's request has certainly caused. */
  readonly refusals: readonly Refusal[];
}

export interface Refusal {
  readonly text: RegExp;
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string;
}

/** Returns the response format. A schema without a name gets one, because several servers require one. */
function responseFormat(constraint: Constraint): Readonly<Record<string, unknown>> {
  switch (constraint.type) {
    case 'json-object':
      return { response_format: { type: 'json_object' } };
    case 'json-schema': {
      const { name = 'answer', schema } = constraint;
      return { response_format: { type: 'json_schema', json_schema: { name, schema, strict: true } } };
    }
    case 'grammar':
    case 'regex':
      throw new Error(`response_format cannot carry a ${constraint.type}`);
  }
}

function isJson(type: Constraint['type']): boolean {
  return type === 'json-object' || type === 'json-schema';
}

const noImages: Refusal = {
  text: /(image|audio|video) input is not supported|is not a multimodal model|At most 0 image/i,
  code: 'unsupported_feature',
  message: 'The model does not accept images. Leave them out, or choose a model whose card has `vision`.',
};

/** For a prompt of ids; the token's path replaces the field. */
const foreignToken: Refusal = {
  text: /out of vocabulary|prompt contains invalid tokens|greater than or equal to the vocab|exceeds? (the )?vocab(ulary)?[ _]size/i,
  code: 'unsupported_value',
  message: "A token id is not in the model's vocabulary.",
  param: 'prompt',
};

/** For logit biases and stop tokens. */
const foreignTokenIn = (param: string): Refusal => ({
  text: new RegExp(`in ${param} contain out-of-vocab`, 'i'),
  code: 'unsupported_value',
  message: `A token id in '${param}' is not in the model's vocabulary.`,
  param,
});

const unenforceable: Omit<Refusal, 'text'> = {
  code: 'unsupported_value',
  message: 'The model cannot enforce this schema or grammar. Check its syntax and references, or make it simpler.',
};

/**
 * llama.cpp's server. Its answers are recorded in tests/fixtures/upstream/llama-server; field names are those of
 * tools/server/server-schema.cpp and server-common.cpp. `return_progress` makes it report the prompt's length before the answer.
 */
const llamaServer: Flavor = {
  always: { stream_options: { include_usage: true }, return_progress: true },
  topK: 'top_k',
  minP: 'min_p',
  repetitionPenalty: 'repeat_penalty',
  presencePenalty: 'presence_penalty',
  // 2^32 − 1 means "random".
  seedModulus: 2 ** 32 - 1,
  hasSignedSeeds: false,
  reasoningLimit: 'max_tokens',
  // Some templates have no tiers, or no switch at all: a budget ends the reasoning at the model's tag. With a grammar, it would force that
  // tag against the grammar.
  effort: (effort, isConstrained) => ({
    chat_template_kwargs:
      effort === 'none'
        ? { enable_thinking: false, thinking: false }
        : { enable_thinking: true, thinking: true, reasoning_effort: effort },
    ...(isConstrained || effort === 'max' ? {} : { reasoning_budget_tokens: reasoningBudgetTokens[effort] }),
  }),
  // An object is read as "auto", without an error.
  namedToolChoice: 'as-only-tool',
  enforces: ['json-object', 'json-schema', 'regex', 'grammar'],
  constrainsReasoning: ['regex', 'grammar'],
  // Its own schema converter silently drops keywords, so the service's grammar is sent (lessons of ggml-org/llama.cpp#19051). That grammar
  // would also apply to the reasoning; `response_format` applies only after it.
  convertsItself: (type, effort) => effort !== 'none' && isJson(type),
  constraint: ({ source, gbnf }, effort) =>
    effort !== 'none' && isJson(source.type) ? responseFormat(source) : { grammar: gbnf },
  // It always continues them, except where the template lets the model think first.
  continuation: { chat_template_kwargs: { enable_thinking: false, thinking: false } },
  echoesBeginning: true,
  keepsStop: false,
  returnsStop: false,
  bindsStrictTools: false,
  needsParameters: false,
  endsCallsWithoutReason: false,
  forcedCall: {},
  refusesNoTopP: false,
  refusesWholeTopP: false,
  refusesGreedyChoices: false,
  // 0 means "no logprobs at all".
  topLogprobsMin: 1,
  continuesTexts: true,
  // Fields of tools/server/server-schema.cpp; it refuses an echo, and a stream does not report every token.
  completions: {
    echo: false,
    returnsIds: undefined,
    namesIds: 'always',
    stopIds: undefined,
    ignoresEnd: 'ignore_eos',
    tokensMin: undefined,
    skipsSpecial: undefined,
    includesStop: undefined,
    addsSpecial: undefined,
    constrains: 'always',
  },
  cacheIsolation: 'switch',
  // Each choice ends with a separate usage chunk, without a choice in it.
  closingUsage: 'per-choice',
  hasTokenPerDelta: true,
  counting: 'apply-template',
  reports: [
    { path: '/metrics', read: llamaServerReport },
    { path: '/slots', read: slotsReport },
  ],
  // tools/server/server-context.cpp answers with the rank's logit. A model that can also write still answers chats.
  tasks: { byFlag: true, rank: { path: 'versioned', documents: 'documents', scores: 'logit' } },
  imageTokens: openModelImageTokens,
  // It closes after 5 s or 100 requests.
  keepAliveMs: 4_000,
  requestsPerSocket: 90,
  loading: /loading model/i,
  overloaded: undefined,
  refusals: [
    noImages,
    foreignToken,
    {
      text: /failed to (download|load) image/i,
      code: 'model_request_rejected',
      message: 'An image could not be fetched or read. Send it as a data URI.',
    },
    {
      text: /logprobs is not supported with tools/i,
      code: 'unsupported_parameter',
      message: 'The model does not support logprobs together with tools.',
      param: 'logprobs',
    },
    {
      ...unenforceable,
      text: /failed to parse grammar|JSON schema error|Unable to generate parser|cannot resolve \$ref/i,
    },
  ],
};

/**
 * vLLM 0.8 and later; names from vllm/entrypoints/openai/chat_completion/protocol.py and, before 0.13, from
 * vllm/entrypoints/openai/protocol.py. Its answers are recorded in tests/fixtures/upstream/vllm, vllm-0.32 and vllm-0.11.
 */
const vllm: Flavor = {
  always: { stream_options: { include_usage: true, continuous_usage_stats: true } },
  topK: 'top_k',
  minP: 'min_p',
  repetitionPenalty: 'repetition_penalty',
  presencePenalty: 'presence_penalty',
  seedModulus: Number.MAX_SAFE_INTEGER,
  hasSignedSeeds: true,
  reasoningLimit: 'max_tokens',
  // Templates of Qwen and GLM read `enable_thinking`, those of DeepSeek, Kimi and Granite `thinking`. Versions up to 0.11 refuse tiers
  // above high as a top-level field; the template's arguments take precedence over it, and are not validated.
  effort: (effort) =>
    effort === 'none'
      ? { chat_template_kwargs: { enable_thinking: false, thinking: false } }
      : {
          chat_template_kwargs: { enable_thinking: true, thinking: true, reasoning_effort: effort },
          reasoning_effort: plainEffort(effort),
        },
  namedToolChoice: 'by-name',
  enforces: ['json-object', 'json-schema', 'regex', 'grammar'],
  constrainsReasoning: [],
  // vLLM and SGLang both read grammars in the notation of xgrammar, which is GBNF. Its own schema converter silently drops keywords
  // (`allOf`), its regular expressions do not support `\p{L}` and `(?i)`, and its white space in JSON is unbounded, so all four kinds are
  // sent as the service's grammar; it applies after a thought, not to it. `structured_outputs` came with 0.10.2, `guided_*` went with 0.12.
  // Each version ignores the name that it does not know.
  convertsItself: () => false,
  constraint: ({ gbnf }) => ({ structured_outputs: { grammar: gbnf }, guided_grammar: gbnf }),
  continuation: { add_generation_prompt: false, continue_final_message: true },
  echoesBeginning: false,
  keepsStop: false,
  returnsStop: true,
  bindsStrictTools: true,
  needsParameters: false,
  endsCallsWithoutReason: false,
  // Its parser holds back chunks of calls, and the usage with them: a client that left would not pay for them.
  forcedCall: { return_token_ids: true },
  refusesNoTopP: true,
  refusesWholeTopP: false,
  refusesGreedyChoices: true,
  topLogprobsMin: 0,
  continuesTexts: true,
  // vllm/entrypoints/openai/completion/protocol.py.
  completions: {
    echo: true,
    returnsIds: 'return_token_ids',
    namesIds: 'return_tokens_as_token_ids',
    stopIds: 'stop_token_ids',
    ignoresEnd: 'ignore_eos',
    tokensMin: 'min_tokens',
    skipsSpecial: 'skip_special_tokens',
    includesStop: 'include_stop_str_in_output',
    addsSpecial: 'add_special_tokens',
    // With a reasoning parser it constrains only what follows the end of a thought, and a continued text has no thought.
    constrains: 'without-reasoning',
  },
  cacheIsolation: 'salt',
  closingUsage: 'total',
  hasTokenPerDelta: false,
  counting: 'tokenize-messages',
  reports: [{ path: '/metrics', read: vllmReport }],
  tasks: { rank: { path: 'versioned', documents: 'documents', scores: 'relevance-or-cosine' } },
  imageTokens: openModelImageTokens,
  // uvicorn closes after 5 s.
  keepAliveMs: 4_000,
  requestsPerSocket: undefined,
  loading: undefined,
  overloaded: undefined,
  refusals: [
    noImages,
    foreignTokenIn('logit_bias'),
    foreignTokenIn('stop_token_ids'),
    foreignToken,
    {
      ...unenforceable,
      text: /not supported by xgrammar|(Invalid|Failed to (convert|parse|compile))[^"]{0,40}(grammar|regex|json schema)/i,
    },
  ],
};

/**
 * SGLang; names from sglang/srt/entrypoints/openai/protocol.py. Its answers are recorded in tests/fixtures/upstream/sglang. Older versions
 * cannot count messages and refuse to; then the prompt's length is estimated.
 */
const sglang: Flavor = {
  ...vllm,
  reports: [{ path: '/metrics', read: sglangReport }],
  hasSignedSeeds: false,
  bindsStrictTools: false,
  forcedCall: {},
  refusesGreedyChoices: false,
  convertsItself: isJson,
  // Besides the template's arguments, some versions would take the tier as a second value of the same name.
  effort: (effort) =>
    effort === 'none'
      ? { chat_template_kwargs: { thinking: false, enable_thinking: false } }
      : { chat_template_kwargs: { thinking: true, enable_thinking: true }, reasoning_effort: effort },
  constraint: ({ source, gbnf }) => {
    switch (source.type) {
      case 'json-object':
      case 'json-schema':
        return responseFormat(source);
      case 'regex':
        return { regex: source.pattern };
      case 'grammar':
        return { ebnf: gbnf };
    }
  },
  // CompletionRequest in the same file.
  completions: {
    ...vllm.completions,
    constrains: 'always',
    namesIds: undefined,
    includesStop: 'no_stop_trim',
    addsSpecial: undefined,
  },
  // The head of a cross-encoder, without an activation.
  tasks: { rank: { path: 'versioned', documents: 'documents', scores: 'logit' } },
  refusals: [foreignToken, { ...unenforceable, text: /(Failed to compile|Invalid) (json|regex|ebnf|grammar)/i }],
};

/**
 * Any other server, for example OpenAI's (tests/fixtures/upstream/openai): only what the OpenAI API documents, because some refuse fields
 * that they do not know.
 */
const openai: Flavor = {
  always: { stream_options: { include_usage: true } },
  topK: undefined,
  minP: undefined,
  repetitionPenalty: undefined,
  presencePenalty: 'presence_penalty',
  seedModulus: Number.MAX_SAFE_INTEGER,
  hasSignedSeeds: false,
  // "max_tokens is not compatible with o-series models"; older servers know only this name.
  reasoningLimit: 'max_completion_tokens',
  effort: (effort) => ({ reasoning_effort: effort }),
  namedToolChoice: 'by-name',
  enforces: ['json-object', 'json-schema'],
  constrainsReasoning: [],
  convertsItself: () => true,
  constraint: ({ source }) => responseFormat(source),
  continuation: undefined,
  echoesBeginning: false,
  keepsStop: false,
  returnsStop: false,
  bindsStrictTools: false,
  needsParameters: false,
  endsCallsWithoutReason: false,
  forcedCall: {},
  refusesNoTopP: false,
  refusesWholeTopP: false,
  refusesGreedyChoices: false,
  topLogprobsMin: 0,
  continuesTexts: true,
  completions: {
    echo: false,
    returnsIds: undefined,
    namesIds: undefined,
    stopIds: undefined,
    ignoresEnd: undefined,
    tokensMin: undefined,
    skipsSpecial: undefined,
    includesStop: undefined,
    addsSpecial: undefined,
    constrains: 'never',
  },
  cacheIsolation: 'none',
  closingUsage: 'total',
  hasTokenPerDelta: false,
  counting: 'none',
  reports: [],
  tasks: {},
  imageTokens: openAiImageTokens,
  keepAliveMs: 4_000,
  requestsPerSocket: undefined,
  loading: undefined,
  overloaded: undefined,
  // It refuses a schema that it would not enforce strictly.
  refusals: [
    { ...unenforceable, text: /Invalid schema for response_format/i, param: 'response_format' },
    foreignToken,
    {
      text: /not supported in the v1\/completions endpoint/i,
      code: 'unsupported_feature',
      message: 'The model accepts only messages and cannot continue a text.',
      param: 'prompt',
    },
  ],
};

/**
 * Hugging Face's text-embeddings-inference, which only embeds and ranks; checked against version 1.9.3. By default it takes 32 texts per
 * request (`--max-client-batch-size`), and silently truncates longer texts (`--auto-truncate`): texts to embed are counted first, and for
 * texts to rank it is asked not to truncate.
 */
const tei: Flavor = {
  ...openai,
  counting: 'tokenize-inputs',
  tasks: {
    promptsMax: 32,
    takesIds: false,
    tokensHeader: 'x-compute-tokens',
    rank: { path: 'root', documents: 'texts', scores: 'relevance', always: { truncate: false } },
  },
  loading: /Model is not ready|starting/i,
};

/**
 * Ollama; names from openai/openai.go and server/routes.go at fb307609. It silently ignores fields that it does not know:
 * `max_completion_tokens`, which would leave an answer unlimited, `tool_choice`, `n`, `logit_bias`, and the sampling fields beyond
 * OpenAI's, which are set in its Modelfile.
 */
const ollama: Flavor = {
  ...openai,
  // A negative seed is random.
  seedModulus: 2 ** 31 - 1,
  reasoningLimit: 'max_tokens',
  namedToolChoice: 'ignored',
  // A model that thinks is constrained only after a thought has ended; one that is asked not to think is constrained from the start.
  constrainsReasoning: ['json-object', 'json-schema'],
  continuesTexts: false,
  imageTokens: openModelImageTokens,
  refusals: [
    noImages,
    {
      text: /does not support tools/i,
      code: 'unsupported_feature',
      message: 'The model does not call functions.',
      param: 'tools',
    },
    { ...unenforceable, text: /failed to parse grammar|expected "json" or a valid JSON Schema/i },
  ],
};

/**
 * LM Studio; names from its documentation (lmstudio-ai/docs at c6854fb) and messages that its users report. It answers 200 to any path, and
 * ignores fields that it does not know: `n`, `logprobs`, and the reasoning effort, which is set there.
 */
const lmStudio: Flavor = {
  ...openai,
  topK: 'top_k',
  repetitionPenalty: 'repeat_penalty',
  seedModulus: 2 ** 31 - 1,
  reasoningLimit: 'max_tokens',
  effort: () => ({}),
  // "Invalid tool_choice type: 'object'. Supported string values: none, auto, required".
  namedToolChoice: 'as-only-tool',
  // "'response_format.type' must be 'json_schema' or 'text'".
  constraint: ({ source }) =>
    responseFormat(
      source.type === 'json-object' ? { type: 'json-schema', name: undefined, schema: { type: 'object' } } : source,
    ),
  imageTokens: openModelImageTokens,
  refusals: [noImages, { ...unenforceable, text: /failed to parse grammar|Invalid (JSON|structured output) schema/i }],
};

/**
 * Hugging Face's text-generation-inference; names from router/src/lib.rs, validation.rs and chat.rs at db931fcf. Its streams report a
 * refused request inside an answer with status 200. Its text completions would end with their stop sequence and have no logprobs, so none
 * are sent to it.
 */
const tgi: Flavor = {
  ...openai,
  // Its chat API has none of these fields, and turns a presence penalty, even of 0, into a repetition penalty of 2 or more.
  presencePenalty: undefined,
  reasoningLimit: 'max_tokens',
  effort: () => ({}),
  enforces: ['json-schema', 'regex'],
  convertsItself: isJson,
  constraint: ({ source }) => {
    switch (source.type) {
      case 'json-schema':
        return { response_format: { type: 'json', value: source.schema } };
      case 'regex':
        return { response_format: { type: 'regex', value: source.pattern } };
      case 'json-object':
      case 'grammar':
        throw new Error(`TGI enforces no ${source.type}`);
    }
  },
  // It always continues the assistant's words at the end.
  continuation: {},
  keepsStop: true,
  returnsStop: true,
  needsParameters: true,
  endsCallsWithoutReason: true,
  refusesNoTopP: true,
  refusesWholeTopP: true,
  continuesTexts: false,
  counting: 'tokenize-chat',
  imageTokens: openModelImageTokens,
  overloaded: /^Model is overloaded/,
  refusals: [
    { ...unenforceable, text: /grammar is not (valid|supported)|cannot compile regex from schema/ },
    {
      text: /`stop` supports up to/,
      code: 'unsupported_value',
      message: 'The model takes fewer stop sequences.',
      param: 'stop',
    },
    {
      text: /`top_n_tokens` must be/,
      code: 'unsupported_value',
      message: "The model reports fewer alternatives: lower 'top_logprobs'.",
      param: 'top_logprobs',
    },
    { ...noImages, text: /modality is not supported/ },
    {
      text: /invalid image|Could not fetch image|Failed to read image data|base64 encoding is invalid/,
      code: 'model_request_rejected',
      message: 'An image could not be read. Send it as a data URI.',
    },
  ],
};

export const flavors: Readonly<Record<FlavorName, Flavor>> = {
  'llama-server': llamaServer,
  'lm-studio': lmStudio,
  ollama,
  vllm,
  sglang,
  tei,
  tgi,
  openai,
};
