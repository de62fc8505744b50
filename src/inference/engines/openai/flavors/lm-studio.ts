import { openModelImageTokens } from '../../image-tokens.ts';
import type { Flavor } from './flavor.ts';
import { openai } from './openai.ts';
import { noImages, unenforceable } from './refusals.ts';
import { responseFormat } from './response-format.ts';

/**
 * LM Studio; names from its documentation (lmstudio-ai/docs at c6854fb) and messages that its users report. It answers 200 to any path, and
 * ignores fields that it does not know: `n`, `logprobs`, and the reasoning effort, which is set there.
 */
export const lmStudio: Flavor = {
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
