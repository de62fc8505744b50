import { StreamFault } from '../sse.ts';
import { isObject, text, type JsonObject } from './json.ts';

/** A part of a content: text or a thought of the model. */
export interface SaidPart {
  readonly type: 'text' | 'reasoning';
  readonly text: string;
}

/** Part types that hold text; a part of another type (an image, a reference) is left out. */
const partTypes: ReadonlyMap<unknown, SaidPart['type']> = new Map([
  ['text', 'text'],
  ['output_text', 'text'],
  ['refusal', 'text'],
  ['thinking', 'reasoning'],
  ['reasoning', 'reasoning'],
  ['reasoning_text', 'reasoning'],
  ['summary_text', 'reasoning'],
]);

/** Returns the reasoning of a delta or a message, under any of its names; the first non-empty one, as some servers fill two. */
export const reasoningOf = (delta: JsonObject): string =>
  textOf(delta['reasoning_content']) || textOf(delta['reasoning']) || textOf(delta['reasoning_text']);

const textOf = (content: unknown): string => (Array.isArray(content) ? joined(partsOf(content)) : text(content));

/** Returns the parts of a content that is a list. Throws for anything else. */
export function partsOf(content: unknown): readonly SaidPart[] {
  if (!Array.isArray(content)) throw new StreamFault('expected a string as text');
  return content.flatMap((part: unknown): SaidPart[] => {
    if (typeof part === 'string') return [{ type: 'text', text: part }];
    if (!isObject(part)) throw new StreamFault('expected a text or an object as part');
    const type = partTypes.get(part['type'] ?? 'text');
    return type === undefined ? [] : [{ type, text: textOfPart(part) }];
  });
}

/** Returns the text of a part: under the name of its type or as `text`, either a string or again a list of parts. */
function textOfPart(part: JsonObject): string {
  const value = part[String(part['type'])] ?? part['text'];
  if (!Array.isArray(value)) return text(value);
  return value.map((inner: unknown) => (isObject(inner) ? text(inner['text']) : text(inner))).join('');
}

export const joined = (parts: readonly SaidPart[], type?: SaidPart['type']): string =>
  parts.reduce((sum, part) => (type === undefined || part.type === type ? sum + part.text : sum), '');

/** Tracks how much of a text has been said, so that a text that repeats all of it adds only the rest. */
export class SaidSoFar {
  #length = 0;
  #last = '';

  add(piece: string): void {
    this.#length += piece.length;
    this.#last = piece;
  }

  /** Returns what a text adds if it begins with all that was said; otherwise nothing. Only the last piece is compared. */
  restOf(whole: string): string {
    const isSame = whole.slice(0, this.#length).endsWith(this.#last);
    return isSame ? whole.slice(this.#length) : '';
  }
}
