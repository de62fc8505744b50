import type { Duplex } from 'node:stream';

import { ApiError, errorBody } from '../errors.ts';

/**
 * What Node's HTTP parser refuses has no request and no response. It gets the envelope and a request id too, on both
 * hosts (reliability I9). Returns the refusal, or `undefined` when nobody can be told.
 */
export function refuseUnparsed(
  error: Error & { readonly code?: string },
  socket: Duplex,
  publicId: string,
  accountUrl: string,
): ApiError | undefined {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return undefined;
  }
  const refusal = refusalOf(error.code);
  const body = JSON.stringify({ error: errorBody(refusal, publicId, accountUrl) });
  socket.end(
    `HTTP/1.1 ${refusal.status} Refused\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n` +
      `x-request-id: ${publicId}\r\nrequest-id: ${publicId}\r\nconnection: close\r\n\r\n${body}`,
  );
  return refusal;
}

function refusalOf(parserCode: string | undefined): ApiError {
  switch (parserCode) {
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError('http_431', 'The headers of the request are too large.');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ApiError('http_408', 'The request did not arrive in time.');
    case undefined:
    default:
      return new ApiError('http_400', 'The request is not well-formed HTTP.');
  }
}
