import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';

import { Busboy } from '@fastify/busboy';

import { deferred } from '../../platform/deferred.ts';
import { ApiError } from '../../platform/errors.ts';

/** A multipart body being read: its file and its other fields. */
export interface MultipartUpload {
  /** Chosen by the client; not to be trusted. */
  readonly name: string | undefined;
  /** The bytes of the file as they arrive; read only as fast as they are consumed. */
  readonly file: AsyncIterable<Uint8Array>;
  /** The values of the known fields, once the whole body has been read: they may follow the file. */
  fields(): Promise<ReadonlyMap<string, string>>;
  /** Stops the upload, in any state; what still arrives is discarded. */
  abandon(): void;
}

export interface MultipartOptions {
  /** Largest size of the file, by its name; before the file begins, that of a file without a name applies. */
  readonly bytesMax: (name: string | undefined) => number;
  /** Fields to keep; all others are ignored, as everywhere (specification part 1). */
  readonly fields: ReadonlySet<string>;
}

/** Delimiters, headers of parts, and fields: everything outside the file counts. */
export const framingBytesMax = 65_536;
const partsMax = 16;
const partHeaderBytesMax = 8_192;
const fieldBytesMax = 1_024;
/** Bytes waiting between the parser and the disk. */
const waitingBytesMax = 65_536;

/**
 * Starts to read a body of `multipart/form-data` (RFC 7578) and resolves when its field `file` begins. Rejects with `ApiError`, or with the
 * reason of the signal. Every part of it is bounded: bytes, parts, headers, fields (reliability §3.4).
 */
export function readMultipart(
  request: IncomingMessage,
  options: MultipartOptions,
  signal: AbortSignal,
): Promise<MultipartUpload> {
  const contentType = request.headers['content-type'] ?? '';
  if (!/;\s*boundary=("[^"]{1,200}"|[^\s";,]{1,200})\s*(;|$)/i.test(contentType)) {
    return Promise.reject(malformed('its Content-Type has no boundary'));
  }
  let bytesMax = options.bytesMax(undefined);
  const begun = deferred<MultipartUpload>();
  const whole = deferred<ReadonlyMap<string, string>>();
  const values = new Map<string, string>();
  let state: UploadState = { kind: 'reading' };
  let file: Readable | undefined;
  let bytes = 0;

  const parser = parserOf(request, contentType);
  const stop = (): void => {
    request.off('data', onData).off('close', onClose).off('error', onClose);
    signal.removeEventListener('abort', onAbort);
    request.unpipe(parser);
    // What still arrives is discarded, so that the connection can be reused.
    request.resume();
  };
  const fail = (error: unknown): void => {
    if (state.kind !== 'reading') return;
    state = { kind: 'failed', error };
    stop();
    // Deferred, because the parser would continue with buffered data if destroyed from inside.
    const ended = file;
    if (ended !== undefined) process.nextTick(() => ended.destroy(error instanceof Error ? error : new Stopped(error)));
    begun.reject(error);
    whole.reject(error);
  };
  const finish = (): void => {
    if (state.kind !== 'reading') return;
    if (file === undefined) return fail(invalidField('file', 'is required: the bytes of the file'));
    state = { kind: 'whole' };
    stop();
    whole.resolve(values);
  };
  const onData = (chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes > bytesMax + framingBytesMax) fail(fileTooLarge(bytesMax));
  };
  const onClose = (): void => {
    if (!request.complete) fail(new ApiError('http_408', 'The client left before its request had arrived.'));
  };
  const onAbort = (): void => fail(signal.reason);

  parser.on('file', (field, stream, name) => {
    // Its failures are those of the body, which are reported below.
    stream.on('error', () => undefined);
    if (field !== 'file') {
      stream.resume();
      return;
    }
    if (file !== undefined) {
      stream.resume();
      fail(invalidField('file', 'is given twice; send one file at a time'));
      return;
    }
    file = stream;
    bytesMax = options.bytesMax(name);
    begun.resolve({
      name,
      file: bytesOf(stream, bytesMax, () => state),
      fields: () => whole.promise,
      abandon: () => fail(new Error('nobody wants the upload any more')),
    });
  });
  parser.on('field', (field, value, _nameTruncated, valueTruncated) => {
    if (!options.fields.has(field)) return;
    if (valueTruncated) fail(invalidField(field, `has more than ${fieldBytesMax} bytes`));
    else if (values.has(field)) fail(invalidField(field, 'is given twice'));
    else values.set(field, value);
  });
  parser.on('partsLimit', () => fail(malformed(`it has more than ${partsMax} parts`)));
  parser.on('error', () => fail(malformed('it is broken, or ends before its last boundary')));
  parser.on('finish', finish);
  request.on('data', onData).on('close', onClose).on('error', onClose);
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  else request.pipe(parser);
  return begun.promise;
}

type UploadState =
  { readonly kind: 'reading' } | { readonly kind: 'whole' } | { readonly kind: 'failed'; readonly error: unknown };

const parserOf = (request: IncomingMessage, contentType: string): InstanceType<typeof Busboy> =>
  new Busboy({
    headers: { ...request.headers, 'content-type': contentType },
    // A `file` part without a filename is a file as well.
    isPartAFile: (field, _type, name) => field === 'file' || name !== undefined,
    fileHwm: waitingBytesMax,
    limits: {
      fieldSize: fieldBytesMax,
      parts: partsMax,
      headerPairs: partsMax,
      headerSize: partHeaderBytesMax,
    },
  });

/** Wraps a reason that is not an error, because streams need one. */
class Stopped extends Error {
  readonly reason: unknown;

  constructor(reason: unknown) {
    super('the upload was stopped');
    this.reason = reason;
  }
}

/** Fails with the body's single failure, whatever the stream itself reports. */
async function* bytesOf(stream: Readable, bytesMax: number, stateOf: () => UploadState): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  const check = (): void => {
    const state = stateOf();
    if (state.kind === 'failed') throw state.error;
  };
  try {
    for await (const chunk of stream) {
      check();
      bytes += (chunk as Uint8Array).length;
      if (bytes > bytesMax) throw fileTooLarge(bytesMax);
      yield chunk as Uint8Array;
    }
  } catch (error) {
    check();
    throw error;
  }
  check();
}

export const fileTooLarge = (bytesMax: number): ApiError =>
  new ApiError('request_body_too_large', `A file may have at most ${bytesMax} bytes.`);

export const invalidField = (param: string, why: string): ApiError =>
  new ApiError('schema_validation_failed', `'${param}' ${why}.`, { param });

const malformed = (why: string): ApiError =>
  new ApiError('schema_validation_failed', `The body is not complete multipart/form-data: ${why}.`);
