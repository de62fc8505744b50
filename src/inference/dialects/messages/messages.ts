import type { AnswerFormat, CountFormat, Dialect, Headers } from '../dialect.ts';
import { decodeCountRequest, decodeMessagesRequest, omitsThinking } from './request.ts';
import { encodeMessage, encodeMessagesError, openMessageStream } from './response.ts';
import type { MessageStyle } from './response.ts';

/** Messages (specification §4.4, contracts §1.2). */
export const messages: Dialect = {
  decodeRequest(body, { headers }) {
    const request = decodeMessagesRequest(body);
    return {
      request,
      format: formatOf({ isRecent: isRecent(headers), omitsThinking: omitsThinking(body) }),
      references: [],
    };
  },
  encodeError: encodeMessagesError,
};

const formatOf = (style: MessageStyle): AnswerFormat => ({
  encodeResponse: (generation, head) => encodeMessage(generation, head, style),
  openStream: (head) => openMessageStream(head, style),
});

const countFormat: CountFormat = { encodeCount: (inputTokens) => `{"input_tokens":${inputTokens}}` };

/** Counts the tokens of the prompt of a Messages request. */
export const messageCount: Dialect<CountFormat> = {
  decodeRequest: (body) => ({ request: decodeCountRequest(body), format: countFormat, references: [] }),
  encodeError: encodeMessagesError,
};

/** Versions are dates; any other header value counts as an older one (contracts §0.15). */
function isRecent({ 'anthropic-version': version }: Headers): boolean {
  return typeof version === 'string' && /^\d{4}-\d{2}-\d{2}$/.test(version) && version >= '2026-10-21';
}
