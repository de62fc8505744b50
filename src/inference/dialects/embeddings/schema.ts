import Type from 'typebox';

import { integer, modelId, optional } from '../common-fields.ts';

// Ids are checked once the model's vocabulary is known.
const tokenIds = Type.Array(Type.Integer(), { minItems: 1 });
const several = { minItems: 1 };

/** The body of `POST /v1/embeddings`, like OpenAI's `CreateEmbeddingRequest`. */
export const embeddingsRequestSchema = Type.Object({
  model: modelId,
  // Excess inputs and empty texts are refused later with their own messages: an error in a union names its first form.
  input: Type.Union([
    Type.String({ minLength: 1 }),
    tokenIds,
    Type.Array(Type.String(), several),
    Type.Array(tokenIds, several),
  ]),
  dimensions: optional(integer(1, 65_536)),
  encoding_format: optional(Type.Enum(['float', 'base64'])),
  user: optional(Type.String()),
});

export type EmbeddingsRequestBody = Type.Static<typeof embeddingsRequestSchema>;
