/**
 * Removes the words with which a client began an answer, for servers that repeat them. Text of other servers is kept, although it waits
 * until it differs from the words.
 */
export class EchoedBeginning {
  #left: string;
  #held = '';

  constructor(beginning: string) {
    this.#left = beginning;
  }

  /** Returns the new part of a piece of the answer. */
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

  /** Returns the held text, if it turns out not to be an echo. */
  rest(): string {
    const held = this.#held;
    this.#left = '';
    this.#held = '';
    return held;
  }
}
