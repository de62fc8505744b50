import type { Dialect } from '../dialect.ts';
import { decodeRerankRequest } from './request.ts';
import { rerankFormat } from './response.ts';

/** Orders documents by their relevance to a query, in the form that Jina's and Cohere's APIs share. */
export const rerank: Dialect = {
  decodeRequest: (body) => {
    const { request, form } = decodeRerankRequest(body);
    return { request, format: rerankFormat(form), references: [] };
  },
  encodeError: (error) => JSON.stringify({ error }),
};
