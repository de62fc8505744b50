import { modelText } from '../common-fields.ts';
import { named, plainError, self } from '../description.ts';
import type { EndpointDescription } from '../description.ts';
import { rerankResults, rerankUsage } from './answer-schema.ts';
import { rerankRequestSchema } from './schema.ts';

/** `POST /v1/rerank` in the API description. */
export const rerankDescription: EndpointDescription = {
  operationId: 'rerank',
  tag: 'Embeddings',
  summary: 'Order documents by their relevance to a query',
  description: 'Each document is read together with the query. Only prompt tokens are billed; there are no streams.',
  request: rerankRequestSchema,
  answer: rerankResults,
  error: plainError,
  named: {
    RerankRequest: named(rerankRequestSchema, {
      model: modelText,
      query: 'What the documents are compared with.',
      documents: 'At most 2,048 texts, or objects with a `text`; none of them empty.',
      'documents.text': 'The text of the document.',
      top_n: 'How many results to return; all when absent.',
      return_documents: 'Whether each result has its document.',
    }),
    RerankResults: self(rerankResults),
    RerankUsage: self(rerankUsage),
  },
  examples: [
    {
      name: 'documents',
      summary: 'Two documents',
      needs: [],
      body: (model) => ({
        model,
        query: 'Why is the sky blue?',
        documents: ['Air scatters blue light.', 'Grass grows.'],
      }),
    },
    {
      name: 'best',
      summary: 'The most relevant document, with its text',
      needs: [],
      body: (model) => ({
        model,
        query: 'Why is the sky blue?',
        documents: [{ text: 'Grass grows.' }, { text: 'Air scatters blue light.' }],
        top_n: 1,
        return_documents: true,
      }),
    },
  ],
};
