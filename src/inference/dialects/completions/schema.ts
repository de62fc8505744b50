import Type from 'typebox';

/**
 * The body of `POST /v1/completions` (specification §4.3, contracts §1.1). Unknown fields are accepted and ignored (§1); an
 * optional field that is null counts as absent.
 */
const optional = <Schema extends Type.TSchema>(schema: Schema) => Type.Optional(Type.Union([schema, Type.Null()]));

const integer = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum });
const number = (minimum: number, maximum: number) => Type.Number({ minimum, maximum });
/** Seeds are 64-bit numbers to several clients. */
const largestSeed = 2 ** 63;

/** Prompts of one request, and answers to all of them. */
export const promptsMax = 128;

/** An id outside the model's vocabulary has an error code of its own, thrown when the model is known. */
const tokenId = Type.Integer();
const tokenIds = Type.Array(tokenId, { minItems: 1 });
const text = Type.String({ minLength: 1 });

export const completionRequestSchema = Type.Object({
  model: Type.String({ minLength: 1, maxLength: 512 }),
  prompt: Type.Union([text, tokenIds, Type.Array(text, { minItems: 1 }), Type.Array(tokenIds, { minItems: 1 })]),
  // §4.2.1(3): a limit beyond any window is ignored, not refused.
  max_tokens: optional(integer(0, Number.MAX_VALUE)),
  temperature: optional(number(0, 2)),
  top_p: optional(number(0, 1)),
  // −1 and 0 mean "no limit" to several servers.
  top_k: optional(integer(-1, 1_000_000)),
  min_p: optional(number(0, 1)),
  frequency_penalty: optional(number(-2, 2)),
  presence_penalty: optional(number(-2, 2)),
  repetition_penalty: optional(Type.Number({ exclusiveMinimum: 0, maximum: 10 })),
  stop: optional(Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 16 })])),
  seed: optional(integer(-largestSeed, largestSeed)),
  n: optional(integer(1, promptsMax)),
  best_of: optional(integer(0, Number.MAX_VALUE)),
  suffix: optional(Type.String()),
  logprobs: optional(integer(0, 5)),
  echo: optional(Type.Boolean()),
  // Not `Type.Record`: its pattern for names does not match one with a line feed, whose value then goes unchecked.
  logit_bias: optional(
    Type.Unsafe<Record<string, number>>(Type.Object({}, { additionalProperties: number(-100, 100) })),
  ),
  stream: optional(Type.Boolean()),
  stream_options: optional(Type.Object({})),
  ebnf: optional(Type.String()),
  regex: optional(Type.String()),
  json_schema: optional(Type.String()),
  response_format: optional(
    Type.Object({
      type: Type.String(),
      json_schema: optional(
        Type.Object({
          name: optional(Type.String()),
          strict: optional(Type.Boolean()),
          schema: optional(Type.Union([Type.Object({}), Type.Boolean()])),
        }),
      ),
      grammar: optional(Type.String()),
    }),
  ),
  structured_outputs: optional(
    Type.Object({
      json: optional(Type.Union([Type.Object({}), Type.Boolean(), Type.String()])),
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
