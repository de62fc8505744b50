import Type from 'typebox';

import { integer, modelId, optional } from '../common-fields.ts';
import { taskPromptsMax } from '../tasks.ts';

const text = Type.String({ minLength: 1 });

/** The body of `POST /v1/rerank`: the common subset of Jina's and Cohere's APIs. */
export const rerankRequestSchema = Type.Object({
  model: modelId,
  query: text,
  documents: Type.Array(Type.Union([text, Type.Object({ text })]), { minItems: 1, maxItems: taskPromptsMax }),
  top_n: optional(integer(1, Number.MAX_VALUE)),
  return_documents: optional(Type.Boolean()),
});
