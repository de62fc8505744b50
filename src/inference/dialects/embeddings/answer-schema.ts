import Type from 'typebox';

/** The schema of the answers of `POST /v1/embeddings`, for the API description; tests check the encoder against it. */
export const embeddingsUsage = Type.Object(
  {
    prompt_tokens: Type.Integer({ description: 'Tokens of all inputs.' }),
    total_tokens: Type.Integer({ description: 'The same: nothing is generated.' }),
  },
  { description: 'The billed tokens.' },
);

export const embeddingList = Type.Object(
  {
    object: Type.Literal('list', { description: 'Always `list`.' }),
    data: Type.Array(
      Type.Object(
        {
          object: Type.Literal('embedding', { description: 'Always `embedding`.' }),
          index: Type.Integer({ minimum: 0, description: 'Number of the input, from 0.' }),
          embedding: Type.Union([Type.Array(Type.Number()), Type.String()], {
            description:
              'A vector of length 1; with `encoding_format: base64` its 32-bit floats, little-endian, in base64.',
          }),
        },
        { description: 'The embedding of an input.' },
      ),
      { description: 'One embedding for each input, in their order.' },
    ),
    model: Type.String({ description: 'Id of the model, as its card writes it.' }),
    usage: embeddingsUsage,
  },
  { description: 'Embeddings.' },
);
