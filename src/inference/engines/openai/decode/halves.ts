/**
 * Joins characters whose two `\u` escapes JSON may split between two texts. The first half waits for the second; one that stays alone
 * becomes U+FFFD, as in texts of requests.
 */
export class Halves {
  #first = '';

  /** Returns the complete characters so far. */
  join(piece: string): string {
    if (this.#first === '' && piece.isWellFormed()) return piece;
    const all = this.#first + piece;
    this.#first = '';
    if (!isFirstHalf(all.charCodeAt(all.length - 1))) return all.toWellFormed();
    this.#first = all.slice(-1);
    return all.slice(0, -1).toWellFormed();
  }

  /** Ends the text and returns what is left. */
  end(): string {
    if (this.#first === '') return '';
    this.#first = '';
    return '\ufffd';
  }
}

const isFirstHalf = (unit: number): boolean => unit >= 0xd800 && unit <= 0xdbff;
