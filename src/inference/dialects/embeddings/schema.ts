import Type from 'typebox';

import { integer, modelId, optional } from '../common-fields.ts';

// Ids are checked where the vocabulary of the model is known.
const tokenIds = Type.Array(Type.Integer(), { minItems: 1 });
const several = { minItems: 1 };

/** Body of `POST /v1/embeddings`, as OpenAI's `CreateEmbeddingRequest`. */
export const embeddingsRequestSchema = Type.Object({
  model: modelId,
  // How many there are, and empty texts among them, are refused in words of their own: a fault in a union names its first form.
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
