import { openModelImageTokens } from '../../image-tokens.ts';
import { reasoningBudgetTokens } from '../../reasoning-effort.ts';
import { llamaServerReport, slotsReport } from '../server-report.ts';
import type { Flavor } from './flavor.ts';
import { foreignToken, noImages, unenforceable } from './refusals.ts';
import { isJson, responseFormat } from './response-format.ts';

/**
 * llama.cpp's server. Its answers are recorded in tests/fixtures/upstream/llama-server; field names are those of
 * tools/server/server-schema.cpp and server-common.cpp. `return_progress` makes it report the prompt's length before the answer.
 */
export const llamaServer: Flavor = {
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
