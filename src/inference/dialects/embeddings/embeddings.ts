import type { Dialect } from '../dialect.ts';
import { decodeEmbeddingsRequest } from './request.ts';
import { embeddingsFormat } from './response.ts';

/** Embeddings, as in OpenAI's API. */
export const embeddings: Dialect = {
  decodeRequest: (body) => {
    const { request, encoding } = decodeEmbeddingsRequest(body);
    return { request, format: embeddingsFormat(encoding), references: [] };
  },
  encodeError: (error) => JSON.stringify({ error }),
};
