import { parseJson } from '../../platform/http/json/parse.ts';
import { ApiError } from '../../platform/errors.ts';
import type { FileLine } from './split-lines.ts';

/** What the body may have beside its requests, each of which leaves two bytes. */
const restBytesMax = 65_536;
const bytesPerRequest = 2;

const quote = 0x22;
const backslash = 0x5c;
const isOpening = (byte: number): boolean => byte === 0x7b || byte === 0x5b; // { [
const isClosing = (byte: number): boolean => byte === 0x7d || byte === 0x5d; // } ]
const isSpace = (byte: number): boolean => byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;

export interface SplitBounds {
  readonly requestsMax: number;
  /** Bytes that a request may have. */
  readonly requestBytesMax: number;
}

/**
 * Finds the requests in the body `{"requests": [{…}, …]}` of a batch while its bytes arrive; memory holds one of them. The rest of the
 * body is kept with a `0` in the place of each request, and must be a JSON object with as many zeros, so nothing that is not JSON passes.
 * The requests themselves are not parsed.
 */
export class RequestSplitter {
  readonly #bounds: SplitBounds;
  readonly #rest: number[] = [];
  #count = 0;
  /** Bytes before the chunk that is read. */
  #at = 0;
  #depth = 0;
  #string: 'outside' | 'inside' | 'escaped' = 'outside';
  /** Whether the array at depth 2 is that of the requests. */
  #isInRequests = false;
  #request: { readonly begunAt: number; length: number; parts: Uint8Array[] } | undefined;

  constructor(bounds: SplitBounds) {
    this.#bounds = bounds;
  }

  /** Returns the requests that end in the chunk. Throws `ApiError`. */
  push(chunk: Uint8Array): readonly FileLine[] {
    const ended: FileLine[] = [];
    // Where the part of a request begins in this chunk.
    let from = 0;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at]!;
      if (this.#string !== 'outside') {
        at = this.#inString(chunk, at);
        continue;
      }
      const isInRequest = this.#request !== undefined;
      if (byte === quote) this.#string = 'inside';
      else if (isOpening(byte)) {
        if (byte === 0x7b && !isInRequest && this.#isInRequests && this.#depth === 2) {
          this.#begin(at);
          from = at;
        } else if (byte === 0x5b && this.#depth === 1) this.#isInRequests = this.#isAtRequests();
        this.#depth++;
      } else if (isClosing(byte)) {
        this.#depth--;
        if (isInRequest && this.#depth === 2) {
          ended.push(this.#end(chunk.subarray(from, at + 1)));
          continue;
        }
        if (this.#depth === 1) this.#isInRequests = false;
      }
      if (this.#request === undefined) this.#keep(byte);
    }
    if (this.#request !== undefined) this.#add(chunk.subarray(from));
    this.#at += chunk.length;
    return ended;
  }

  /** Checks that the body is whole; returns how many requests it has. Throws `ApiError`. */
  end(): number {
    const body = this.#request === undefined ? parseJson(Buffer.from(this.#rest)) : undefined;
    const { requests } = (typeof body === 'object' && body !== null ? body : {}) as { readonly requests?: unknown };
    if (!Array.isArray(requests) || requests.length !== this.#count)
      throw wrong('requests', 'is required: a list of objects');
    if (this.#count === 0) throw wrong('requests', 'is empty');
    return this.#count;
  }

  /** Returns the place of the last byte that belongs to the string. */
  #inString(chunk: Uint8Array, begin: number): number {
    let at = begin;
    for (; at < chunk.length; at++) {
      const byte = chunk[at]!;
      if (this.#request === undefined) this.#keep(byte);
      if (this.#string === 'escaped') this.#string = 'inside';
      else if (byte === backslash) this.#string = 'escaped';
      else if (byte === quote) {
        this.#string = 'outside';
        break;
      }
    }
    return at;
  }

  /** Whether the rest ends with the name of the requests. */
  #isAtRequests(): boolean {
    const end = this.#rest.slice(-64).filter((byte) => !isSpace(byte));
    return Buffer.from(end).toString('latin1').endsWith('"requests":');
  }

  #begin(at: number): void {
    const { requestsMax } = this.#bounds;
    if (++this.#count > requestsMax) throw wrong('requests', `has more than ${requestsMax} requests`);
    this.#request = { begunAt: this.#at + at, length: 0, parts: [] };
  }

  #add(part: Uint8Array): void {
    const request = this.#request!;
    request.length += part.length;
    const { requestBytesMax } = this.#bounds;
    if (request.length > requestBytesMax)
      throw new ApiError(
        'request_body_too_large',
        `requests.${this.#count - 1} has more than ${requestBytesMax} bytes.`,
      );
    // Copied: a chunk may be part of a larger buffer, and its memory is used again.
    request.parts.push(Buffer.from(part));
  }

  #end(part: Uint8Array): FileLine {
    this.#add(part);
    const { begunAt, length, parts } = this.#request!;
    this.#request = undefined;
    this.#keep(0x30);
    return { line: this.#count, offsetBytes: begunAt, length, bytes: Buffer.concat(parts, length) };
  }

  #keep(byte: number): void {
    if (isSpace(byte) && isSpace(this.#rest.at(-1) ?? 0x20) && this.#string === 'outside') return;
    if (this.#rest.length > restBytesMax + bytesPerRequest * this.#count)
      throw new ApiError('request_body_too_large', 'The body has too much beside its requests.');
    this.#rest.push(byte);
  }
}

/** The requests of a body that has been checked while it arrived. */
export async function* splitRequests(
  source: AsyncIterable<Uint8Array>,
  requestBytesMax: number,
): AsyncGenerator<FileLine> {
  const splitter = new RequestSplitter({ requestsMax: Infinity, requestBytesMax });
  for await (const chunk of source) yield* splitter.push(chunk);
}

const wrong = (param: string, why: string): ApiError =>
  new ApiError('schema_validation_failed', `'${param}' ${why}.`, { param });
