import Type from 'typebox';

import { ApiError } from '../../platform/errors.ts';
import type { AskedTier, Constraint, GenerationRequest, Sampling } from '../../generation/request.ts';
import { checkFreeForm } from './validate.ts';

/** Fields shared by the requests of several dialects: their schema, their meaning, and their text in the API description. */

/** An optional field where null counts as absent, as clients of these APIs expect. */
export const optional = <Schema extends Type.TSchema>(schema: Schema) =>
  Type.Optional(Type.Union([schema, Type.Null()]));
export const integer = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum });
export const number = (minimum: number, maximum: number) => Type.Number({ minimum, maximum });

export const modelId = Type.String({ minLength: 1, maxLength: 512 });
/** §4.2.1(3): a limit beyond any window is ignored, not refused. */
export const tokenLimit = integer(1, Number.MAX_VALUE);
/** Any JSON Schema: an object, or true or false. */
export const jsonSchema = Type.Union([Type.Object({}), Type.Boolean()]);
/** Not `Type.Record`: its name pattern does not match a name with a line feed, whose value would go unchecked. */
export const mapOf = <Value extends Type.TSchema>(value: Value) =>
  Type.Unsafe<Record<string, Type.Static<Value>>>(Type.Object({}, { additionalProperties: value }));

/** Several clients use 64-bit seeds. */
const largestSeed = 2 ** 63;

/** Messages has the first three; the other dialects have them all. */
export const samplingFields = {
  temperature: optional(number(0, 2)),
  top_p: optional(number(0, 1)),
  // −1 and 0 mean "no limit" on several servers.
  top_k: optional(integer(-1, 1_000_000)),
  min_p: optional(number(0, 1)),
  frequency_penalty: optional(number(-2, 2)),
  presence_penalty: optional(number(-2, 2)),
  repetition_penalty: optional(Type.Number({ exclusiveMinimum: 0, maximum: 10 })),
  stop: optional(Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 16 })])),
  seed: optional(integer(-largestSeed, largestSeed)),
};

/** The service tier. Any value is accepted (contracts §1.2, §1.3), and one that is not a tier has no effect. */
export const serviceTier = Type.Optional(Type.Unknown());
export const serviceTierText =
  'The place in the queue, and its price: `priority` goes first and costs more, `flex` waits and costs less, where the card of the model has them; anything else: the usual one of the key. A tier that the model does not have is served and charged as `default`, and the answer says so.';
export const tierInAnswer = Type.Optional(
  Type.Enum(['default', 'flex', 'priority'], {
    description:
      'The tier that served, which is the one that is charged. Absent when it is the usual one and none was asked for.',
  }),
);

export const decodeTier = (tier: unknown): AskedTier | undefined =>
  tier === 'default' || tier === 'flex' || tier === 'priority' ? tier : undefined;

/** Biases by token id. */
export const logitBias = optional(mapOf(number(-100, 100)));

/** The response format of chat completions and completions. */
export const responseFormat = optional(
  Type.Object({
    type: Type.String(),
    json_schema: optional(
      Type.Object({ name: optional(Type.String()), strict: optional(Type.Boolean()), schema: optional(jsonSchema) }),
    ),
    grammar: optional(Type.String()),
  }),
);

const ignored = 'Most models ignore it and use their own default.';

/** Descriptions of these fields for the API description. */
export const modelText = 'Id of a model of `GET /v1/models`, in any case.';
export const streamText = 'Whether the answer is streamed as events while it is generated.';
export const logitBiasText = 'Added to the logits of tokens, by token id. Only on some backends.';
export const samplingTexts = {
  temperature: `Randomness of the choice of tokens. ${ignored}`,
  top_p: `Nucleus sampling: tokens are chosen from this share of the probability. ${ignored}`,
  top_k: 'Number of most likely tokens that the next one is chosen from; 0 and -1: all.',
  min_p: 'Tokens less likely than this share of the most likely one are excluded.',
  frequency_penalty: `Makes tokens less likely each time that they have occurred. ${ignored}`,
  presence_penalty: `Makes tokens less likely once they have occurred. ${ignored}`,
  repetition_penalty: 'Divides the likelihood of tokens that have occurred; 1 changes nothing.',
  stop: 'Stop sequences; they end the answer and are not part of it.',
  seed: 'The same seed gives the same answer, as far as the backend can.',
};

type SamplingBody = {
  readonly [Name in Exclude<keyof typeof samplingFields, 'stop'>]?: number | null | undefined;
};

export function decodeSampling(body: SamplingBody): Sampling {
  return {
    temperature: body.temperature ?? undefined,
    topP: body.top_p ?? undefined,
    topK: body.top_k ?? undefined,
    minP: body.min_p ?? undefined,
    presencePenalty: body.presence_penalty ?? undefined,
    frequencyPenalty: body.frequency_penalty ?? undefined,
    repetitionPenalty: body.repetition_penalty ?? undefined,
    // A 64-bit seed does not survive JSON, nor every engine; the same seed always maps to the same value.
    seed: typeof body.seed === 'number' ? body.seed % (Number.MAX_SAFE_INTEGER + 1) : undefined,
  };
}

export function decodeStop(stop: string | readonly string[] | null | undefined): readonly string[] {
  const list = typeof stop === 'string' ? [stop] : (stop ?? []);
  return list.filter((sequence) => sequence !== '').map((sequence) => sequence.toWellFormed());
}

/** An empty map is treated as absent. */
export function decodeLogitBias(bias: Record<string, number> | null | undefined): GenerationRequest['logitBias'] {
  const tokens = Object.keys(bias ?? {});
  if (!tokens.every((token) => /^(0|[1-9][0-9]{0,8})$/.test(token))) {
    throw new ApiError('schema_validation_failed', "'logit_bias' must be a map from token ids to numbers.", {
      param: 'logit_bias',
    });
  }
  return tokens.length === 0 ? undefined : (bias ?? undefined);
}

/** Returns the constraint, and the field that holds its text. `text` constrains nothing. */
export function decodeResponseFormat(
  format: Type.Static<typeof responseFormat> | undefined,
): { readonly constraint: Constraint; readonly textAt: string } | undefined {
  switch (format?.type) {
    case undefined:
    case 'text':
      return undefined;
    case 'json_object':
      return { constraint: { type: 'json-object' }, textAt: 'response_format' };
    case 'json_schema': {
      const textAt = 'response_format.json_schema.schema';
      const definition = present(format?.json_schema, 'response_format.json_schema');
      const schema = present(definition.schema, textAt);
      checkFreeForm(schema, textAt);
      return { constraint: { type: 'json-schema', schema, name: definition.name?.toWellFormed() }, textAt };
    }
    case 'grammar': {
      const textAt = 'response_format.grammar';
      const text = present(format?.grammar, textAt).toWellFormed();
      return { constraint: { type: 'grammar', text }, textAt };
    }
    default:
      throw new ApiError(
        'unsupported_response_format',
        "'response_format.type' must be one of text, json_object, json_schema, grammar.",
        { param: 'response_format.type' },
      );
  }
}

/** Checks a field that is required only with certain values of other fields. */
export function present<Value>(value: Value | undefined | null, param: string): Value {
  if (value === undefined || value === null)
    throw new ApiError('schema_validation_failed', `'${param}' is required.`, { param });
  return value;
}
