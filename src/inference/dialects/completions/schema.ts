import Type from 'typebox';

import {
  integer,
  jsonSchema,
  logitBias,
  modelId,
  optional,
  responseFormat,
  samplingFields,
  serviceTier,
} from '../common-fields.ts';

/** The body of `POST /v1/completions` (specification §4.3, contracts §1.1). Unknown fields are accepted and ignored (§1). */
/** Maximum prompts in one request, and maximum answers to all of them. */
export const promptsMax = 128;

/** An id outside the model's vocabulary has its own error code, thrown once the model is known. */
const tokenId = Type.Integer();
const tokenIds = Type.Array(tokenId, { minItems: 1 });
const text = Type.String({ minLength: 1 });

export const completionRequestSchema = Type.Object({
  model: modelId,
  prompt: Type.Union([text, tokenIds, Type.Array(text, { minItems: 1 }), Type.Array(tokenIds, { minItems: 1 })]),
  // §4.2.1(3): a limit beyond any window is ignored, not refused.
  max_tokens: optional(integer(0, Number.MAX_VALUE)),
  ...samplingFields,
  n: optional(integer(1, promptsMax)),
  best_of: optional(integer(0, Number.MAX_VALUE)),
  suffix: optional(Type.String()),
  logprobs: optional(integer(0, 5)),
  echo: optional(Type.Boolean()),
  logit_bias: logitBias,
  stream: optional(Type.Boolean()),
  service_tier: serviceTier,
  stream_options: optional(Type.Object({})),
  ebnf: optional(Type.String()),
  regex: optional(Type.String()),
  json_schema: optional(Type.String()),
  response_format: responseFormat,
  structured_outputs: optional(
    Type.Object({
      json: optional(Type.Union([...jsonSchema.anyOf, Type.String()])),
      json_object: optional(Type.Boolean()),
      regex: optional(Type.String()),
      choice: optional(Type.Array(Type.String(), { minItems: 1 })),
      grammar: optional(Type.String()),
      structural_tag: Type.Optional(Type.Unknown()),
    }),
  ),
  return_token_ids: optional(Type.Boolean()),
  return_tokens_as_token_ids: optional(Type.Boolean()),
  stop_token_ids: optional(Type.Array(integer(0, 2 ** 31 - 1), { maxItems: 128 })),
  ignore_eos: optional(Type.Boolean()),
  min_tokens: optional(integer(0, Number.MAX_VALUE)),
  skip_special_tokens: optional(Type.Boolean()),
  include_stop_str_in_output: optional(Type.Boolean()),
  no_stop_trim: optional(Type.Boolean()),
  add_special_tokens: optional(Type.Boolean()),
});

export type CompletionRequestBody = Type.Static<typeof completionRequestSchema>;
