import type { ErrorBody } from '../errors.ts';
import type { GenerationBatch } from '../generation/event.ts';
import type { Generation } from '../generation/fold.ts';
import type { GenerationRequest } from '../generation/request.ts';

/** Everything an encoder prints that is not in the generation; fixed before the first byte, so that encoders are pure. */
export interface ResponseHead {
  /** `x-request-id` of the answer. */
  readonly requestId: string;
  /** The ledger's id of the request, 32 hex digits; ids of items are derived from it. */
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  /** The model's id as its card prints it. */
  readonly model: string;
}

/** Prints one stream. Each method returns the bytes to send now, as text; it may be empty. */
export interface StreamEncoder {
  batch(batch: GenerationBatch): string;
  /** After the last batch of a whole answer. */
  end(): string;
  /** After any number of batches, when the answer cannot go on (contracts §1.0, "Error after the stream has started"). */
  error(error: ErrorBody): string;
}

/** One API family: two pure halves on the internal language. A dialect knows no engine and no policy. */
export interface Dialect {
  /** Throws `ApiError`: `invalid_json_request` for a missing required field, `schema_validation_failed` for a wrong shape. */
  decodeRequest(body: unknown): GenerationRequest;
  encodeResponse(generation: Generation, head: ResponseHead): string;
  openStream(head: ResponseHead): StreamEncoder;
  /** The body of an error answer before the stream has started. */
  encodeError(error: ErrorBody): string;
}

/** Keeps a silent line alive; harmless to every client tested (contracts §0.17). */
export const keepAliveComment = ': keep-alive\n\n';
