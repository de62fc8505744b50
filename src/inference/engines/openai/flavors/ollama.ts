import { openModelImageTokens } from '../../image-tokens.ts';
import type { Flavor } from './flavor.ts';
import { openai } from './openai.ts';
import { noImages, unenforceable } from './refusals.ts';

/**
 * Ollama; names from openai/openai.go and server/routes.go at fb307609. It silently ignores fields that it does not know:
 * `max_completion_tokens`, which would leave an answer unlimited, `tool_choice`, `n`, `logit_bias`, and the sampling fields beyond
 * OpenAI's, which are set in its Modelfile.
 */
export const ollama: Flavor = {
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
