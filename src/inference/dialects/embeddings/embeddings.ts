import type { Dialect } from '../dialect.ts';
import { decodeEmbeddingsRequest } from './request.ts';
import { embeddingsFormat } from './response.ts';

/** Embeddings, as OpenAI's API has them. */
export const embeddings: Dialect = {
  decodeRequest: (body) => {
    const { request, encoding } = decodeEmbeddingsRequest(body);
    return { request, format: embeddingsFormat(encoding), references: [] };
  },
  encodeError: (error) => JSON.stringify({ error }),
};
