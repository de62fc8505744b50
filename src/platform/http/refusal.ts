import { STATUS_CODES } from 'node:http';

import { errorBody } from '../errors.ts';
import type { ApiError } from '../errors.ts';

/** The request that a refusal answers. */
export interface RefusalHead {
  readonly publicId: string;
  readonly accountUrl: string;
  /** False for HEAD. */
  readonly hasBody: boolean;
  /** Additional headers. */
  readonly further?: Readonly<Record<string, string>> | undefined;
}

/**
 * The bytes of an answer that ends its connection, for requests that reach no route: like every other answer, they have the
 * envelope and a request id (reliability I9).
 */
export function refusalBytes(error: ApiError, { publicId, accountUrl, hasBody, further }: RefusalHead): string {
  const body = JSON.stringify({ error: errorBody(error, publicId, accountUrl) });
  let head = `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? 'Refused'}\r\n`;
  head += 'content-type: application/json\r\ncache-control: no-cache\r\n';
  head += `content-length: ${Buffer.byteLength(body)}\r\nx-request-id: ${publicId}\r\nrequest-id: ${publicId}\r\n`;
  for (const [name, value] of Object.entries({ ...further, ...error.headers })) head += `${name}: ${value}\r\n`;
  head += `date: ${new Date().toUTCString()}\r\nconnection: close\r\n\r\n`;
  return hasBody ? head + body : head;
}
