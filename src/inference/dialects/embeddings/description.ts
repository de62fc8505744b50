import { modelText } from '../common-fields.ts';
import { named, plainError, self } from '../description.ts';
import type { EndpointDescription } from '../description.ts';
import { embeddingList, embeddingsUsage } from './answer-schema.ts';
import { embeddingsRequestSchema } from './schema.ts';

/** `POST /v1/embeddings` in the API description. */
export const embeddingsDescription: EndpointDescription = {
  operationId: 'createEmbedding',
  tag: 'Embeddings',
  summary: 'Make embeddings of texts',
  description:
    'A vector of length 1 for each input. Only prompt tokens are billed; there are no streams. An input that is longer than the window of the model is refused, with its number in `param`.',
  request: embeddingsRequestSchema,
  answer: embeddingList,
  error: plainError,
  named: {
    EmbeddingsRequest: named(embeddingsRequestSchema, {
      model: modelText,
      input: 'A text, the ids of its tokens, or a list of either with at most 2,048 inputs; none of them empty.',
      dimensions:
        'Length of the vectors, which are cut and made to have length 1 again. Only for models whose card has `embeddings.dimensions`.',
      encoding_format: '`float`: lists of numbers, the default; `base64`: 32-bit floats, little-endian.',
      user: 'Accepted without effect.',
    }),
    EmbeddingList: self(embeddingList),
    EmbeddingsUsage: self(embeddingsUsage),
  },
  examples: [
    {
      name: 'text',
      summary: 'Two texts',
      needs: [],
      body: (model) => ({ model, input: ['The sky is blue.', 'Grass is green.'] }),
    },
    {
      name: 'base64',
      summary: 'One text, its vector in base64',
      needs: [],
      body: (model) => ({ model, input: 'The sky is blue.', encoding_format: 'base64' }),
    },
  ],
};
