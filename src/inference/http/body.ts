import type { IncomingMessage } from 'node:http';
import { Transform } from 'node:stream';

import { ApiError } from '../../platform/errors.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { BodyShare } from './body-budget.ts';

/** Contracts decision 24: any content type is accepted when the body parses as JSON, except multipart. */
export function checkContentType(request: IncomingMessage): void {
  const type = request.headers['content-type'];
  if (type !== undefined && /^\s*multipart\//i.test(type)) {
    throw new ApiError('http_415', 'This route needs application/json, not multipart.');
  }
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new ApiError('http_415', 'Compressed request bodies are not supported.');
  }
}

/** Refuses a body that its headers declare too large. */
export function checkDeclaredLength(request: IncomingMessage, bytesMax: number): void {
  const declared = declaredLength(request);
  if (declared !== undefined && declared >= bytesMax) throw tooLarge(bytesMax);
}

/** The length that the headers declare; a chunked body declares none. */
export function declaredLength(request: IncomingMessage): number | undefined {
  const declared = request.headers['content-length'];
  return declared === undefined ? undefined : Number(declared);
}

/** A body as received. */
export interface Body {
  readonly length: number;
  /** Its bytes, in order. In a body above `largeBodyBytes`, each block owns its memory and can be transferred. */
  readonly blocks: readonly Buffer<ArrayBuffer>[];
}

/** Bodies above this are parsed on another thread, and are the first to be refused under load (reliability §5). */
export const largeBodyBytes = 1_048_576;

/**
 * Reads a body of fewer than `bytesMax` bytes, and takes memory for the part that was not expected; the caller gives it back, even when
 * this rejects: with `ApiError` (also when the client goes away), with the signal's reason, or with the failure of `admitLarge`, which is
 * called once the body turns out to be large, and is awaited before reading on.
 */
export function readBody(
  request: IncomingMessage,
  bytesMax: number,
  share: Pick<BodyShare, 'arrive'>,
  signal: StopSignal,
  admitLarge: () => Promise<void> | void,
): Promise<Body> {
  return new Promise((resolve, reject) => {
    const blocks = new Blocks();
    let length = 0;
    const stop = (): void => {
      request.off('data', onData).off('end', onEnd).off('close', onClose);
      signal.removeEventListener('abort', onAbort);
    };
    const fail = (error: unknown): void => {
      if (request.isPaused()) request.resume();
      stop();
      blocks.drop();
      reject(error as Error);
    };
    const onData = (chunk: Buffer<ArrayBuffer>): void => {
      const before = length;
      try {
        if (length + chunk.length >= bytesMax) throw tooLarge(bytesMax);
        share.arrive(chunk.length);
        if (before <= largeBodyBytes && before + chunk.length > largeBodyBytes) {
          const admitted = admitLarge();
          if (admitted !== undefined) {
            request.pause();
            admitted.then(() => request.resume(), fail);
          }
        }
      } catch (error) {
        fail(error);
        return;
      }
      length += chunk.length;
      blocks.add(chunk);
    };
    const onEnd = (): void => {
      stop();
      resolve({ length, blocks: blocks.take() });
    };
    const onClose = (): void => fail(new ApiError('http_408', 'The client left before its request had arrived.'));
    const onAbort = (): void => fail(signal.reason);
    request.on('data', onData).on('end', onEnd).on('close', onClose);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

/**
 * The bytes of a body of at most `bytesMax` as they arrive, read only as fast as they are consumed. They fail with `ApiError` or with the
 * reason of the signal. `end` must be called; what still arrives then is discarded, so that the connection can be used again.
 */
export function arriving(
  { request, signal }: { readonly request: IncomingMessage; readonly signal: StopSignal },
  bytesMax: number,
): { readonly bytes: AsyncIterable<Uint8Array>; end(): void } {
  let length = 0;
  const bytes = new Transform({
    transform: (chunk: Uint8Array, _encoding, pass) => {
      length += chunk.length;
      if (length > bytesMax) pass(tooLarge(bytesMax + 1));
      else pass(null, chunk);
    },
  });
  const stop = (error: unknown): void => void bytes.destroy(error as Error);
  const onClose = (): void => {
    if (!request.complete) stop(new ApiError('http_408', 'The client left before its request had arrived.'));
  };
  const onAbort = (): void => stop(signal.reason);
  // The reader gets the error.
  bytes.on('error', () => undefined);
  request.on('close', onClose).on('error', onClose);
  signal.addEventListener('abort', onAbort, { once: true });
  request.pipe(bytes);
  if (signal.aborted) onAbort();
  return {
    bytes,
    end: () => {
      request.off('close', onClose).off('error', onClose).unpipe(bytes);
      signal.removeEventListener('abort', onAbort);
      bytes.destroy();
      request.resume();
    },
  };
}

const blockBytesMin = 65_536;
const blockBytesMax = 1_048_576;

/**
 * Collects a body. A body in one piece is kept as it is. Any other is copied piece by piece into blocks, which never takes long at a time
 * and needs no more memory than its bytes: pieces of one byte each, kept as they are, would need a hundred times that.
 */
class Blocks {
  #onlyPiece: Buffer<ArrayBuffer> | undefined;
  #blocks: Buffer<ArrayBuffer>[] = [];
  /** Bytes in use in the last block; those before it are full. */
  #used = 0;

  add(piece: Buffer<ArrayBuffer>): void {
    if (this.#onlyPiece === undefined && this.#blocks.length === 0 && piece.length <= blockBytesMin) {
      this.#onlyPiece = piece;
      return;
    }
    // The piece is part of a larger shared buffer, and may be one of thousands.
    if (this.#onlyPiece !== undefined) this.#copy(this.#onlyPiece);
    this.#onlyPiece = undefined;
    this.#copy(piece);
  }

  take(): readonly Buffer<ArrayBuffer>[] {
    const last = this.#blocks.pop();
    const blocks = last === undefined ? [] : [...this.#blocks, last.subarray(0, this.#used)];
    const taken = this.#onlyPiece === undefined ? blocks : [this.#onlyPiece];
    this.drop();
    return taken;
  }

  drop(): void {
    this.#onlyPiece = undefined;
    this.#blocks = [];
    this.#used = 0;
  }

  #copy(piece: Buffer<ArrayBuffer>): void {
    for (let from = 0; from < piece.length;) {
      let last = this.#blocks.at(-1);
      if (last === undefined || this.#used === last.length) {
        last = Buffer.allocUnsafeSlow(Math.min(blockBytesMax, Math.max(blockBytesMin, 2 * (last?.length ?? 0))));
        this.#blocks.push(last);
        this.#used = 0;
      }
      const count = piece.copy(last, this.#used, from);
      this.#used += count;
      from += count;
    }
  }
}

const tooLarge = (bytesMax: number): ApiError =>
  new ApiError('request_body_too_large', `The body must have fewer than ${bytesMax} bytes.`);
