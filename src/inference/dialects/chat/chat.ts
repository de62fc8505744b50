import type { AnswerFormat, Dialect } from '../dialect.ts';
import { decodeChatRequest } from './request.ts';
import { encodeChatError, encodeChatResponse, openChatStream } from './response.ts';

/** The answer format, the same for every request. */
export const chatFormat: AnswerFormat = { encodeResponse: encodeChatResponse, openStream: openChatStream };

/** Chat completions (specification §4.2). */
export const chat: Dialect = {
  decodeRequest: (body) => ({ request: decodeChatRequest(body), format: chatFormat, references: [] }),
  encodeError: encodeChatError,
};
