import { openModelImageTokens } from '../../image-tokens.ts';
import { plainEffort } from '../../reasoning-effort.ts';
import { vllmReport } from '../server-report.ts';
import type { Flavor, Refusal } from './flavor.ts';
import { foreignToken, noImages, unenforceable } from './refusals.ts';

/**
 * vLLM 0.8 and later; names from vllm/entrypoints/openai/chat_completion/protocol.py and, before 0.13, from
 * vllm/entrypoints/openai/protocol.py. Its answers are recorded in tests/fixtures/upstream/vllm, vllm-0.32 and vllm-0.11.
 */
export const vllm: Flavor = {
  always: { stream_options: { include_usage: true, continuous_usage_stats: true } },
  topK: 'top_k',
  minP: 'min_p',
  // Lower is earlier, and 0 what a request without the field has (vllm/entrypoints/openai/chat_completion/protocol.py).
  priorities: { priority: -1, default: 0, flex: 1, batch: 2 },
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

/** For logit biases and stop tokens. */
function foreignTokenIn(param: string): Refusal {
  return {
    text: new RegExp(`in ${param} contain out-of-vocab`, 'i'),
    code: 'unsupported_value',
    message: `A token id in '${param}' is not in the model's vocabulary.`,
    param,
  };
}
