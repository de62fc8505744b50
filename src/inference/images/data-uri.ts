import { setImmediate } from 'node:timers/promises';
import { ApiError } from '../../platform/errors.ts';
import type { ImagePart } from '../../generation/request.ts';
import { measure } from './measure.ts';
import type { ByteSource } from './measure.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/** Whether the address of an image contains the image; everything else is checked by `checkUrl`. */
export const isDataUri = (text: string): boolean => /^data:/i.test(text);

/**
 * Characters checked per step: 1 ms on a busy machine. A whole body of 50 MB would take 130 ms and, with a character in it that is not
 * base64, 650 ms.
 */
export const decodeStepCharacters = 262_144;

/**
 * Reads an image inside the request. Throws `unsupported_value` with `param: at` if it is not an image, not of its declared type, or not
 * strict base64. Yields to other requests after each step.
 */
export async function readDataUri(uri: string, at: string, signal: StopSignal): Promise<ImagePart> {
  const refuse = (why: string): ApiError => new ApiError('unsupported_value', `The image ${why}.`, { param: at });
  const head = /^data:([^,]{0,200}),/i.exec(uri.slice(0, 256));
  const [, declared, further] = /^(image\/[a-z+.-]+)((?:;[^;]*)*);base64$/i.exec(head?.[1] ?? '') ?? [];
  if (head === null || declared === undefined || further === undefined) {
    throw refuse('must be a data URI of base64, such as data:image/png;base64,…');
  }
  const base64 = uri.slice(head[0].length);
  if (base64 === '') throw refuse('is empty');
  if (base64.length % 4 !== 0) throw refuse(notBase64(base64));
  for (let start = 0; start < base64.length; start += decodeStepCharacters) {
    if (start > 0) {
      await setImmediate();
      signal.throwIfAborted();
    }
    const isLast = start + decodeStepCharacters >= base64.length;
    const step = base64.slice(start, start + decodeStepCharacters);
    if (decodeStep(step, isLast) === undefined) throw refuse(notBase64(step));
  }
  const found = measure(new Base64Source(base64));
  if (typeof found === 'string') throw refuse(found);
  const { mediaType, size } = found;
  // Many programs write the file's extension.
  if (declared.toLowerCase().replace('image/jpg', 'image/jpeg') !== mediaType) {
    throw refuse(`is ${mediaType}, but its data URI declares another type`);
  }
  return { type: 'image', mediaType, base64, size, at };
}

/**
 * Says what is wrong with a text, or a step of one, that is not the strict base64 of RFC 4648 §4. Searches for single characters, which
 * takes milliseconds even in the longest texts.
 */
export function notBase64(text: string): string {
  const has = (...characters: readonly string[]): boolean => characters.some((one) => text.includes(one));
  if (has('\n', '\r', ' ', '\t')) return 'is base64 with line breaks or blanks in it; send it without them';
  if (has('%')) return 'is base64 that is percent-encoded; send it as it is';
  if (has('-', '_')) return 'is base64 in the letters of URLs; write + for - and / for _';
  return text.length % 4 === 0
    ? 'is not base64: it contains other characters'
    : 'is not whole base64: its length is not a multiple of 4; add the padding (=) at its end, if it was left out';
}

/**
 * Decodes a piece of base64 whose length is a multiple of 4; `undefined` if it contains anything else. Node skips invalid characters and
 * accepts the URL alphabet too, so the text must decode to its full length.
 */
export function decodeStep(step: string, isLast: boolean): Buffer | undefined {
  const padding = !isLast || !step.endsWith('=') ? 0 : step.endsWith('==') ? 2 : 1;
  if (step.includes('-') || step.includes('_')) return undefined;
  const bytes = Buffer.from(step, 'base64');
  return bytes.length === (step.length / 4) * 3 - padding ? bytes : undefined;
}

/** Characters decoded together: headers are read in pieces of a few bytes that are close to each other. */
const windowCharacters = 4_096;

/** The bytes of base64, decoded where they are read. */
class Base64Source implements ByteSource {
  readonly length: number;
  readonly #base64: string;
  #window: Buffer = Buffer.alloc(0);
  #windowStart = 0;

  constructor(base64: string) {
    this.#base64 = base64;
    this.length = (base64.length / 4) * 3 - (base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0);
  }

  at(start: number, count: number): Uint8Array {
    const end = Math.min(start + count, this.length);
    if (start < this.#windowStart || end > this.#windowStart + this.#window.length) {
      const character = Math.floor(start / 3) * 4;
      this.#window = Buffer.from(this.#base64.slice(character, character + windowCharacters), 'base64');
      this.#windowStart = Math.floor(start / 3) * 3;
    }
    return this.#window.subarray(start - this.#windowStart, Math.max(start, end) - this.#windowStart);
  }
}
