/**
 * Tracks a call's arguments without keeping them: where their JSON ends, and whether a text repeats them. An object, a list or a string is
 * whole when its end has come; the end of anything else cannot be recognized.
 */
export class ArgumentsText {
  #length = 0;
  #hash = hashStart;
  #depth = 0;
  #isEmpty = true;
  #isWhole = false;
  #string: 'outside' | 'inside' | 'escape' = 'outside';

  push(piece: string): void {
    this.#length += piece.length;
    this.#hash = hashOf(piece, this.#hash);
    for (let at = 0; at < piece.length && !this.#isWhole; at++) this.#step(piece.charCodeAt(at));
  }

  /** Whether only blanks have come. */
  get isEmpty(): boolean {
    return this.#isEmpty;
  }

  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Returns whether this text repeats all that has come, regardless of layout. */
  isSame(text: string): boolean {
    return hashOf(text, hashStart) === this.#hash;
  }

  /** Returns the rest of a text that begins with all that has come; empty for any other text. */
  restOf(text: string): string {
    const begins = text.length > this.#length && hashOf(text.slice(0, this.#length), hashStart) === this.#hash;
    return begins ? text.slice(this.#length) : '';
  }

  #step(unit: number): void {
    if (this.#string === 'escape') this.#string = 'inside';
    else if (this.#string === 'inside') {
      if (unit === 92 /* \ */) this.#string = 'escape';
      else if (unit === 34 /* " */) this.#leave(this.#depth);
    } else if (unit === 34) this.#string = 'inside';
    else if (unit === 123 /* { */ || unit === 91 /* [ */) this.#depth++;
    else if ((unit === 125 /* } */ || unit === 93) /* ] */ && this.#depth > 0) this.#leave(this.#depth - 1);
    if (!isBlankUnit(unit)) this.#isEmpty = false;
  }

  #leave(depth: number): void {
    this.#string = 'outside';
    this.#depth = depth;
    this.#isWhole = depth === 0;
  }
}

export const isBlank = (text: string): boolean => /^[ \t\n\r]*$/.test(text);

const isBlankUnit = (unit: number): boolean => unit === 32 || unit === 10 || unit === 13 || unit === 9;

/** FNV-1a over UTF-16 code units, without blanks. */
const hashStart = 0x811c9dc5;
function hashOf(text: string, start: number): number {
  let hash = start;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (!isBlankUnit(unit)) hash = Math.imul(hash ^ unit, 0x01000193);
  }
  return hash;
}
