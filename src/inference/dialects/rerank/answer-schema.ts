import Type from 'typebox';

/** The schema of the answers of `POST /v1/rerank`, for the API description; tests check the encoder against it. */
export const rerankUsage = Type.Object(
  {
    prompt_tokens: Type.Integer({ description: 'Tokens of all pairs of query and document.' }),
    total_tokens: Type.Integer({ description: 'The same: nothing is generated.' }),
  },
  { description: 'The billed tokens.' },
);

export const rerankResults = Type.Object(
  {
    id: Type.String({ description: 'Id of the answer.' }),
    model: Type.String({ description: 'Id of the model, as its card writes it.' }),
    results: Type.Array(
      Type.Object(
        {
          index: Type.Integer({ minimum: 0, description: 'Number of the document in the request, from 0.' }),
          relevance_score: Type.Number({ description: 'Between 0 and 1.' }),
          document: Type.Optional(
            Type.Object(
              { text: Type.String({ description: 'Its text.' }) },
              { description: 'With `return_documents`: the document.' },
            ),
          ),
        },
        { description: 'A document and its relevance.' },
      ),
      { description: 'The most relevant documents first, `top_n` at most.' },
    ),
    usage: rerankUsage,
  },
  { description: 'Documents in the order of their relevance.' },
);
