import { randomUUID } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { ImagePart } from '../../../generation/request.ts';

/** A placeholder for the data URI of an image in a request to a backend; `jsonBody` writes it. */
export class ImageUrl {
  readonly part: ImagePart;

  constructor(part: ImagePart) {
    this.part = part;
  }
}

export interface JsonBody {
  /** The body, or empty if it has images: then it comes in pieces, which may be read again. */
  readonly text: string;
  readonly pieces: AsyncIterable<Uint8Array> | undefined;
  /** Bytes of the whole body. */
  readonly length: number;
  /** Bytes that are not base64 of images. */
  readonly textLength: number;
}

/**
 * Returns the JSON of a request, whose images are passed on in pieces as it is sent. As one string, 50 MB of them block the thread for 300
 * ms: 200 ms to look for characters to escape, which base64 does not contain, and 100 ms to copy it.
 */
export function jsonBody(value: unknown, hasImages: boolean): JsonBody {
  if (!hasImages) {
    const text = JSON.stringify(value);
    const length = Buffer.byteLength(text);
    return { text, pieces: undefined, length, textLength: length };
  }
  const images: ImageUrl[] = [];
  // Unguessable, so no text of the request contains it.
  const mark = randomUUID();
  const text = JSON.stringify(value, (_, member: unknown) => {
    if (!(member instanceof ImageUrl)) return member;
    images.push(member);
    return mark;
  });
  const textLength = Buffer.byteLength(text);
  const texts = text.split(mark).map((piece) => Buffer.from(piece));
  const heads = images.map(({ part }) => Buffer.from(`data:${part.mediaType};base64,`));
  const length =
    sum(texts.map((piece) => piece.length)) +
    sum(heads.map((head) => head.length)) +
    sum(images.map(({ part }) => part.base64.length));
  return {
    text: '',
    pieces: { [Symbol.asyncIterator]: () => piecesOf(texts, heads, images) },
    length,
    textLength,
  };
}

async function* piecesOf(
  texts: readonly Buffer[],
  heads: readonly Buffer[],
  images: readonly ImageUrl[],
): AsyncGenerator<Uint8Array> {
  for (const [index, text] of texts.entries()) {
    yield text;
    const base64 = images[index]?.part.base64 ?? '';
    if (base64 !== '') yield heads[index]!;
    for (let start = 0; start < base64.length; start += pieceCharacters) {
      // A backend that reads as fast as it is written to would starve other requests.
      if (start > 0) await setImmediate();
      yield Buffer.from(base64.slice(start, start + pieceCharacters), 'latin1');
    }
  }
}

const pieceCharacters = 262_144;

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);
