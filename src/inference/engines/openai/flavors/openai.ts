import { openAiImageTokens } from '../../image-tokens.ts';
import type { Flavor } from './flavor.ts';
import { foreignToken, unenforceable } from './refusals.ts';
import { responseFormat } from './response-format.ts';

/**
 * Any other server, for example OpenAI's (tests/fixtures/upstream/openai): only what the OpenAI API documents, because some refuse fields
 * that they do not know.
 */
export const openai: Flavor = {
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
