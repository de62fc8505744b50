import type { ErrorBody } from '../../platform/errors.ts';
import type { GenerationBatch } from '../../generation/event.ts';
import type { Generation } from '../../generation/fold.ts';
import type { GenerationRequest } from '../../generation/request.ts';
import type { Tier } from '../../generation/tier.ts';

/** A request's headers, by lower-case name. */
export type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Context for reading a body. */
export interface DecodeContext {
  readonly headers: Headers;
  /** The items for the ids in `Decoded.references`, if known; `undefined` before the lookup. */
  readonly items: ReadonlyMap<string, unknown> | undefined;
  /** Whether nothing of the request or its answer is kept, whatever the body asks for; absent: false. */
  readonly isZeroRetention?: boolean;
}

/** A decoded body. */
export interface Decoded<Format> {
  readonly request: GenerationRequest;
  /** How the answer to this request is encoded. */
  readonly format: Format;
  /** Ids of earlier items that the body references. If there are any, it is decoded again with them. */
  readonly references: readonly string[];
}

/** Everything that an encoder prints besides the generation; fixed before the first byte, so that encoders are pure. */
export interface ResponseHead {
  /** `x-request-id` of the answer. */
  readonly requestId: string;
  /** The ledger's id of the request, 32 hex digits; ids of items are derived from it. */
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  /** The model's id as printed on its card. */
  readonly model: string;
  /** The service tier that serves it; undefined: the usual one, which was not asked for. */
  readonly tier?: Tier | undefined;
  /** Signs or encrypts reasoning, so that it is recognized when it comes back. */
  readonly signer: ReasoningSigner;
  /** Returns the current time in seconds since 1970, for the completion time of an answer; absent: the time when it began. */
  readonly now?: () => number;
}

/** Signs one account's reasoning. Both kinds of signatures are opaque text: base64url letters with a prefix. */
export interface ReasoningSigner {
  /** Proves that the text is ours. */
  sign(text: string): string;
  /** Contains the text, readable only by this service. Different bytes each time. */
  encrypt(text: string): string;
}

/** Encodes one stream. Each method returns the text to send now; it may be empty. */
export interface StreamEncoder {
  batch(batch: GenerationBatch): string;
  /** Called after the last batch of a complete answer. */
  end(): string;
  /** Called after any number of batches, if the answer cannot continue (contracts §1.0, "Error after the stream has started"). */
  error(error: ErrorBody): string;
}

/** How the answer to one request is encoded. */
export interface AnswerFormat {
  encodeResponse(generation: Generation, head: ResponseHead): string;
  openStream(head: ResponseHead): StreamEncoder;
  /** Items that later requests may reference by id instead of sending them again, in the form that clients would send; absent: none. */
  itemsOf?(generation: Generation, head: ResponseHead): ReadonlyMap<string, unknown>;
}

/** How the answer to a request that only counts its input is encoded. */
export interface CountFormat {
  encodeCount(inputTokens: number): string;
}

/** One API family: two pure halves that convert between its API and the internal language. A dialect knows no engine and no policy. */
export interface Dialect<Format = AnswerFormat> {
  /** Throws `ApiError`: `invalid_json_request` for a missing required field, `schema_validation_failed` for a wrong shape. */
  decodeRequest(body: unknown, context: DecodeContext): Decoded<Format>;
  /** Encodes the body of an error answer before the stream has started. */
  encodeError(error: ErrorBody): string;
}

/** The tier in an answer of OpenAI's APIs, which know no batch there. */
export const tierName = ({ tier = 'default' }: ResponseHead): string => (tier === 'batch' ? 'default' : tier);

/** The same as the text of a field, in front of others. */
export const tierField = (head: ResponseHead): string =>
  head.tier === undefined ? '' : `"service_tier":"${tierName(head)}",`;

/** Keeps a silent connection alive; harmless to every client tested (contracts §0.17). */
export const keepAliveComment = ': keep-alive\n\n';
