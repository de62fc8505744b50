import { sglangReport } from '../server-report.ts';
import type { Flavor } from './flavor.ts';
import { foreignToken, unenforceable } from './refusals.ts';
import { isJson, responseFormat } from './response-format.ts';
import { vllm } from './vllm.ts';

/**
 * SGLang; names from sglang/srt/entrypoints/openai/protocol.py. Its answers are recorded in tests/fixtures/upstream/sglang. Older versions
 * cannot count messages and refuse to; then the prompt's length is estimated.
 */
export const sglang: Flavor = {
  ...vllm,
  // Higher is earlier. What is served already is only stopped for what is 10 higher, and so never.
  priorities: { priority: 3, default: 2, flex: 1, batch: 0 },
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
