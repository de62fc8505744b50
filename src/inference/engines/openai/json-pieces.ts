import { setImmediate } from 'node:timers/promises';
import { ImageUrl, type JsonBody } from './image-body.ts';

/** Bytes of a JSON text, and how many of them are not base64 of images. */
export interface JsonLength {
  readonly length: number;
  readonly textLength: number;
}

/**
 * Returns the JSON of a long request, in pieces that are made when they are sent. As one string, a text of 40 MB blocks the thread for 0.8
 * s: 0.2 s to escape it, as much for the resulting garbage, and the rest to measure, join and copy it. `length` is sent first, so
 * `measureJson` has made it once before; other requests wait for one piece at most.
 */
export function longJsonBody(value: unknown, { length, textLength }: JsonLength): JsonBody {
  return { text: '', pieces: { [Symbol.asyncIterator]: () => bytesOf(value) }, length, textLength };
}

export async function measureJson(value: unknown, signal: AbortSignal): Promise<JsonLength> {
  let textLength = 0;
  let imageLength = 0;
  for (const piece of jsonPieces(value)) {
    if (typeof piece !== 'string') imageLength += piece.part.base64.length;
    else {
      textLength += Buffer.byteLength(piece);
      await setImmediate(undefined, { signal });
    }
  }
  return { length: textLength + imageLength, textLength };
}

async function* bytesOf(value: unknown): AsyncGenerator<Uint8Array> {
  for (const piece of jsonPieces(value)) {
    if (typeof piece === 'string') {
      yield Buffer.from(piece);
      // A backend that reads as fast as it is written to would starve other requests.
      await setImmediate();
      continue;
    }
    const { base64 } = piece.part;
    for (let start = 0; start < base64.length; start += imagePieceCharacters) {
      yield Buffer.from(base64.slice(start, start + imagePieceCharacters), 'latin1');
      await setImmediate();
    }
  }
}

/** Yields the result of `JSON.stringify` in pieces; an image's base64 needs no escaping, so the image itself is yielded. */
export function* jsonPieces(value: unknown): Generator<string | ImageUrl, void> {
  let text = '';
  yield* walk(value);
  yield text;

  function* walk(node: unknown): Generator<string | ImageUrl, void> {
    if (text.length >= pieceCharacters) {
      yield text;
      text = '';
    }
    if (typeof node === 'string' && node.length > pieceCharacters) yield* longText(node);
    else if (typeof node !== 'object' || node === null) text += JSON.stringify(node) ?? 'null';
    else if (node instanceof ImageUrl) {
      text += `"data:${node.part.mediaType};base64,`;
      yield text;
      text = '';
      yield node;
      text = '"';
    } else if (Array.isArray(node)) {
      for (let at = 0; at < node.length; at++) {
        text += at === 0 ? '[' : ',';
        yield* walk(node[at]);
      }
      text += node.length === 0 ? '[]' : ']';
    } else {
      let opening = '{';
      for (const [name, member] of Object.entries(node)) {
        if (member === undefined) continue;
        text += `${opening}${JSON.stringify(name)}:`;
        opening = ',';
        yield* walk(member);
      }
      text += opening === '{' ? '{}' : '}';
    }
  }

  function* longText(long: string): Generator<string, void> {
    text += '"';
    for (let start = 0; start < long.length;) {
      let end = Math.min(long.length, start + pieceCharacters);
      // Half a character would be escaped.
      if (end < long.length && isHighHalf(long.charCodeAt(end - 1))) end--;
      text += JSON.stringify(long.slice(start, end)).slice(1, -1);
      yield text;
      text = '';
      start = end;
    }
    text += '"';
  }
}

const isHighHalf = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;

/** Escaping a piece takes 0.3 ms. */
const pieceCharacters = 65_536;
const imagePieceCharacters = 262_144;
