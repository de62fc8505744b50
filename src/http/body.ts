import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';

import { ApiError } from '../errors.ts';

/** Bytes of request bodies that are in memory at once, over all requests (contracts decision 23). */
export class BodyBudget {
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Throws `backend_at_capacity` 429 when there is no room. */
  take(bytes: number): void {
    if (this.#bytes + bytes > this.#bytesMax) {
      throw new ApiError('backend_at_capacity', 'Too many large requests are being read. Try again shortly.', {
        retryAfterSeconds: 1,
      });
    }
    this.#bytes += bytes;
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** Contracts decision 24: any type is taken when the body parses as JSON, except multipart. */
export function checkContentType(request: IncomingMessage): void {
  const type = request.headers['content-type'];
  if (type !== undefined && /^\s*multipart\//i.test(type)) {
    throw new ApiError('http_415', 'This route takes application/json, not multipart.');
  }
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new ApiError('http_415', 'Compressed request bodies are not supported.');
  }
}

/** Refuses a body that is too large by what its headers say. */
export function checkDeclaredLength(request: IncomingMessage, bytesMax: number): void {
  const declared = request.headers['content-length'];
  if (declared !== undefined && Number(declared) >= bytesMax) throw tooLarge(bytesMax);
}

/**
 * Reads a body of fewer than `bytesMax` bytes. Its bytes are taken from the budget; the caller gives them back with
 * `budget.give(body.length)` when the body is no longer needed. Rejects with `ApiError`, also when the client goes away,
 * or with the reason of the signal.
 */
export function readBody(
  request: IncomingMessage,
  bytesMax: number,
  budget: BodyBudget,
  signal: AbortSignal,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const fail = (error: unknown): void => {
      request.off('data', onData).off('end', onEnd).off('close', onClose);
      signal.removeEventListener('abort', onAbort);
      budget.give(length);
      length = 0;
      chunks.length = 0;
      reject(error);
    };
    const onData = (chunk: Buffer): void => {
      try {
        if (length + chunk.length >= bytesMax) throw tooLarge(bytesMax);
        budget.take(chunk.length);
      } catch (error) {
        fail(error);
        return;
      }
      length += chunk.length;
      chunks.push(chunk);
    };
    const onEnd = (): void => {
      request.off('close', onClose);
      signal.removeEventListener('abort', onAbort);
      const [first] = chunks;
      resolve(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks, length));
    };
    const onClose = (): void => fail(new ApiError('http_408', 'The client left before its request had arrived.'));
    const onAbort = (): void => fail(signal.reason);
    request.on('data', onData).on('end', onEnd).on('close', onClose);
    signal.addEventListener('abort', onAbort, { once: true });
  });
}

/** Specification §7.2: an empty body and broken JSON are `invalid_json_request`. */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) throw new ApiError('invalid_json_request', 'The body is empty; send a JSON object.');
  // Lossy decoding would let two different texts through as one (reliability §3.4).
  if (!isUtf8(body)) throw new ApiError('invalid_json_request', 'The body is not valid UTF-8.');
  try {
    return JSON.parse(body.toString('utf8')) as unknown;
  } catch (error) {
    const place = error instanceof SyntaxError ? /at position \d+/.exec(error.message)?.[0] : undefined;
    throw new ApiError(
      'invalid_json_request',
      `The body is not valid JSON${place === undefined ? '' : ` (${place})`}.`,
    );
  }
}

const tooLarge = (bytesMax: number): ApiError =>
  new ApiError('request_body_too_large', `The body must have fewer than ${bytesMax} bytes.`);
