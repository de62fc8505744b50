/**
 * Takes the words that a client has begun an answer with out of the answer, for servers that say them again. A server that
 * does not keeps its text, although it has to wait until it differs from the words.
 */
export class EchoedBeginning {
  #left: string;
  #held = '';

  constructor(beginning: string) {
    this.#left = beginning;
  }

  /** What of a piece of the answer is new. */
  take(piece: string): string {
    if (this.#left === '') return piece;
    if (piece.startsWith(this.#left)) {
      const rest = piece.slice(this.#left.length);
      this.#left = '';
      this.#held = '';
      return rest;
    }
    if (this.#left.startsWith(piece)) {
      this.#left = this.#left.slice(piece.length);
      this.#held += piece;
      return '';
    }
    return this.rest() + piece;
  }

  /** What was held back, when it turns out to be no echo. */
  rest(): string {
    const held = this.#held;
    this.#left = '';
    this.#held = '';
    return held;
  }
}
