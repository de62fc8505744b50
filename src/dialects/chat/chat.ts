import type { Dialect } from '../dialect.ts';
import { decodeChatRequest } from './request.ts';
import { encodeChatError, encodeChatResponse, openChatStream } from './response.ts';

/** Chat completions (specification §4.2). */
export const chat: Dialect = {
  decodeRequest: decodeChatRequest,
  encodeResponse: encodeChatResponse,
  openStream: openChatStream,
  encodeError: encodeChatError,
};
