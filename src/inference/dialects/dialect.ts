import type { ErrorBody } from '../../platform/errors.ts';
import type { GenerationBatch } from '../../generation/event.ts';
import type { Generation } from '../../generation/fold.ts';
import type { GenerationRequest } from '../../generation/request.ts';

/** What a request's headers say, by lower-case name. */
export type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

/** What a body is read with. */
export interface DecodeContext {
  readonly headers: Headers;
  /** What the ids in `Decoded.references` stand for, as far as they are known; `undefined` while nobody has looked. */
  readonly items: ReadonlyMap<string, unknown> | undefined;
  /** Nothing of the request or its answer will be kept, whatever the body asks for; absent: false. */
  readonly isZeroRetention?: boolean;
}

/** A body, read. */
export interface Decoded<Format> {
  readonly request: GenerationRequest;
  /** How this request wants its answer printed. */
  readonly format: Format;
  /** Ids of items of earlier answers that the body names in place of their content. When there are any, it is read again with them. */
  readonly references: readonly string[];
}

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
  /** Seals reasoning, so that it is known again when it comes back. */
  readonly seals: Seals;
  /** Seconds since 1970, now: when an answer is complete; absent: when it was begun. */
  readonly now?: () => number;
}

/** For one account. What either makes is opaque text, in the letters of base64url and a prefix. */
export interface Seals {
  /** Proves that the text is ours. */
  sign(text: string): string;
  /** Holds the text, readable for us alone. Other bytes each time. */
  encrypt(text: string): string;
}

/** Prints one stream. Each method returns the bytes to send now, as text; it may be empty. */
export interface StreamEncoder {
  batch(batch: GenerationBatch): string;
  /** After the last batch of a whole answer. */
  end(): string;
  /** After any number of batches, when the answer cannot go on (contracts §1.0, "Error after the stream has started"). */
  error(error: ErrorBody): string;
}

/** How the answer to one request is printed. */
export interface AnswerFormat {
  encodeResponse(generation: Generation, head: ResponseHead): string;
  openStream(head: ResponseHead): StreamEncoder;
  /** What later requests may name by its id instead of sending it again, as they would send it; absent: nothing. */
  itemsOf?(generation: Generation, head: ResponseHead): ReadonlyMap<string, unknown>;
}

/** How the answer to a request that only counts its input is printed. */
export interface CountFormat {
  encodeCount(inputTokens: number): string;
}

/** One API family: two pure halves on the internal language. A dialect knows no engine and no policy. */
export interface Dialect<Format = AnswerFormat> {
  /** Throws `ApiError`: `invalid_json_request` for a missing required field, `schema_validation_failed` for a wrong shape. */
  decodeRequest(body: unknown, context: DecodeContext): Decoded<Format>;
  /** The body of an error answer before the stream has started. */
  encodeError(error: ErrorBody): string;
}

/** Keeps a silent line alive; harmless to every client tested (contracts §0.17). */
export const keepAliveComment = ': keep-alive\n\n';
