import type { Dialect } from '../dialect.ts';
import { decodeCompletionRequest } from './request.ts';
import { completionFormat, encodeCompletionError } from './response.ts';

/** Text completions (specification §4.3). */
export const completions: Dialect = {
  decodeRequest: (body) => {
    const request = decodeCompletionRequest(body);
    return { request, format: completionFormat(request), references: [] };
  },
  encodeError: encodeCompletionError,
};
