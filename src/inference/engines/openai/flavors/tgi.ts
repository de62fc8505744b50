import { openModelImageTokens } from '../../image-tokens.ts';
import type { Flavor } from './flavor.ts';
import { openai } from './openai.ts';
import { noImages, unenforceable } from './refusals.ts';
import { isJson } from './response-format.ts';

/**
 * Hugging Face's text-generation-inference; names from router/src/lib.rs, validation.rs and chat.rs at db931fcf. Its streams report a
 * refused request inside an answer with status 200. Its text completions would end with their stop sequence and have no logprobs, so none
 * are sent to it.
 */
export const tgi: Flavor = {
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
