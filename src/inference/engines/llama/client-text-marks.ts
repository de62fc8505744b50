import { randomBytes } from 'node:crypto';
import { ApiError } from '../../../platform/errors.ts';

/** The strings of one rendering and the markers that stand for them. */
export class Marks {
  readonly #digitsAt: number;
  readonly #nonce: string;
  readonly #texts: string[] = [];
  readonly #indexes = new Map<string, number>();
  readonly #required = new Set<number>();

  constructor(digitsAt: number) {
    this.#digitsAt = digitsAt;
    this.#nonce = [...randomBytes(nonceBytes)].map((byte) => this.#number(byte, 2)).join('');
  }

  /** `required`: the template may not leave the text out. */
  mark(text: string, presence: 'required' | 'optional'): string {
    const core = text.trim();
    if (core === '') return text;
    let index = this.#indexes.get(core);
    if (index === undefined) {
      index = this.#texts.push(core) - 1;
      if (index >= 16 ** indexDigits) throw refusal();
      this.#indexes.set(core, index);
    }
    if (presence === 'required') this.#required.add(index);
    const start = text.length - text.trimStart().length;
    return (
      text.slice(0, start) + lead + this.#nonce + this.#number(index, indexDigits) + text.slice(start + core.length)
    );
  }

  /** Returns a text that no client can have written. */
  probe(): string {
    return this.mark(`probe ${this.#nonce}`, 'optional');
  }

  /** Marks every string inside a JSON value, field names included, except for `words`. */
  markAll(value: unknown, words: ReadonlySet<string> = noWords): unknown {
    const marked = (text: string) => (words.has(text) ? text : this.mark(text, 'optional'));
    if (typeof value === 'string') return marked(value);
    if (Array.isArray(value)) return value.map((item) => this.markAll(item, words));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [marked(name), this.markAll(item, words)]));
  }

  pieces(rendered: string): readonly Piece[] {
    const marker = new RegExp(`(?:${lead}|(\\\\+)u0001)${this.#nonce}([${this.#digitClass()}]{${indexDigits}})`, 'g');
    const pieces: Piece[] = [];
    const missing = new Set(this.#required);
    let end = 0;
    for (const match of rendered.matchAll(marker)) {
      const index = parseInt(
        [...(match[2] ?? '')].map((digit) => (digit.charCodeAt(0) - this.#digitsAt).toString(16)).join(''),
        16,
      );
      const text = this.#texts[index];
      if (text === undefined) throw refusal();
      pieces.push(
        { text: rendered.slice(end, match.index), client: false },
        { text: escapedLike(match[1] ?? '', text), client: true },
      );
      end = match.index + match[0].length;
      missing.delete(index);
    }
    pieces.push({ text: rendered.slice(end), client: false });
    const fragment = new RegExp(`[${lead}${this.#digitClass()}]|\\\\u0001`);
    if (missing.size > 0 || pieces.some((piece) => !piece.client && fragment.test(piece.text))) throw refusal();
    return pieces.filter((piece) => piece.text !== '');
  }

  #number(value: number, digits: number): string {
    const hex = value.toString(16).padStart(digits, '0');
    return [...hex].map((digit) => String.fromCharCode(this.#digitsAt + parseInt(digit, 16))).join('');
  }

  #digitClass(): string {
    return `${String.fromCharCode(this.#digitsAt)}-${String.fromCharCode(this.#digitsAt + 15)}`;
  }
}

/** A part of a rendered prompt, written either by the template or by the client. */
export interface Piece {
  readonly text: string;
  readonly client: boolean;
}

const noWords: ReadonlySet<string> = new Set();

/** Begins a marker: it is not white space, has no case, and `tojson` writes it as `\u0001`. */
const lead = '\u0001';
const nonceBytes = 10;
const indexDigits = 5;

/** Finds sixteen adjacent private-use characters that the template does not use itself: the digits of the markers. */
export function unusedDigits(text: string): number {
  for (let start = 0xe000; start < 0xf8f0; start += 16) {
    if (![...text].some((character) => character.charCodeAt(0) >= start && character.charCodeAt(0) < start + 16))
      return start;
  }
  throw new Error('the chat template uses the whole private use area');
}

/**
 * Escapes a text as its marker was: JSON escapes the escape, so level k shows 2^(k-1) backslashes before `u0001`, and the text is escaped k
 * times.
 */
function escapedLike(backslashes: string, text: string): string {
  const levels = backslashes === '' ? 0 : Math.log2(backslashes.length) + 1;
  if (!Number.isInteger(levels)) throw refusal();
  let escaped = text;
  for (let level = 0; level < levels; level++) escaped = JSON.stringify(escaped).slice(1, -1);
  return escaped;
}

export function refusal(): ApiError {
  return new ApiError(
    'unsupported_feature',
    'The chat template of the model drops or changes a text of this conversation, so the request was refused.',
    {
      param: 'messages',
    },
  );
}
