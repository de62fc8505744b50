import type { EngineRequest, Message, Prompt } from '../../../generation/request.ts';
import { abortSignalOf, type StopSignal } from '../../../platform/stop-signal.ts';
import { jsonBody, type JsonBody } from './image-body.ts';
import { longJsonBody, measureJson, type JsonLength } from './json-pieces.ts';
import { upstreamRequest, withCaching } from './request-body.ts';
import type { UpstreamRequest, UpstreamServer } from './request-body.ts';

/** A request as it is sent, and the number of its images. */
export type OutgoingRequest = UpstreamRequest & JsonBody & { readonly images: number };

/** A request in its backend's wire format, and its length. */
export interface WrittenRequest {
  readonly upstream: UpstreamRequest;
  readonly measured: JsonLength;
}

/** From this length on a request is written in pieces. A quarter of a megabyte takes a millisecond. */
const longCharacters = 262_144;

/** Returns whether a request is so long that it is measured before it is sent. */
export const isLong = ({ prompt }: EngineRequest): boolean => promptCharacters(prompt) >= longCharacters;

/**
 * Measures a long request before it is sent, in pieces, so that it does not block others. Only after that is it known whether its prompt
 * may be cached. A failure here recurs when it is opened.
 */
export async function measuredRequest(
  request: EngineRequest,
  server: UpstreamServer,
  signal: StopSignal,
): Promise<WrittenRequest | undefined> {
  try {
    const upstream = upstreamRequest(request, server, false);
    return { upstream, measured: await measureJson(upstream.body, abortSignalOf(signal)) };
  } catch {
    return undefined;
  }
}

/** Returns a request as it is sent; `written` if it was measured before. */
export function outgoingRequest(
  request: EngineRequest,
  server: UpstreamServer,
  mayCache: boolean,
  written: WrittenRequest | undefined,
): OutgoingRequest {
  const images = imageCount(request.prompt);
  if (written === undefined) {
    const { path, body } = upstreamRequest(request, server, mayCache);
    const { text, pieces, length, textLength } = jsonBody(body, images > 0);
    return { path, body, images, text, pieces, length, textLength };
  }
  const { path, body, addedBytes } = withCaching(written.upstream, request, server, mayCache);
  const { text, pieces, length, textLength } = longJsonBody(body, {
    length: written.measured.length + addedBytes,
    textLength: written.measured.textLength + addedBytes,
  });
  return { path, body, images, text, pieces, length, textLength };
}

function promptCharacters(prompt: Prompt): number {
  switch (prompt.type) {
    case 'token-ids':
      return 0;
    case 'texts':
      return prompt.prompts.reduce((sum, text) => sum + text.length, 0);
    case 'messages':
      return prompt.messages.reduce((sum, message) => sum + messageCharacters(message), 0);
  }
}

function messageCharacters(message: Message): number {
  let sum = 0;
  for (const part of message.content) if (part.type === 'text') sum += part.text.length;
  if (message.role === 'assistant') for (const call of message.toolCalls) sum += call.arguments.length;
  return sum;
}

function imageCount(prompt: Prompt): number {
  if (prompt.type !== 'messages') return 0;
  let images = 0;
  for (const message of prompt.messages) for (const part of message.content) if (part.type === 'image') images++;
  return images;
}
