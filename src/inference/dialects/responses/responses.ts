import type { AnswerFormat, CountFormat, Dialect } from '../dialect.ts';
import type { Asked } from './asked.ts';
import { decodeResponsesRequest } from './request.ts';
import { encodeError, encodeResponse, itemsToKeep } from './response.ts';
import { ResponseStream } from './stream.ts';

/** Responses (specification §4.5, contracts §1.3). */
export const responses: Dialect = {
  decodeRequest(body, context) {
    const { request, format, references } = decodeResponsesRequest(body, context);
    return { request, format: formatOf(format), references };
  },
  encodeError,
};

/** Counts the tokens of the input of such a request. */
export const responsesInputTokens: Dialect<CountFormat> = {
  decodeRequest(body, context) {
    const { request, references } = decodeResponsesRequest(body, context);
    return { request, format: countFormat, references };
  },
  encodeError,
};

const formatOf = (asked: Asked): AnswerFormat => ({
  encodeResponse: (generation, head) => encodeResponse(generation, head, asked),
  openStream: (head) => new ResponseStream(head, asked),
  ...(asked.isKept ? { itemsOf: itemsToKeep } : {}),
});

const countFormat: CountFormat = {
  encodeCount: (inputTokens) => JSON.stringify({ object: 'response.input_tokens', input_tokens: inputTokens }),
};
