type Side = 'separate' | 'tagged';

/** Number of characters compared: two thoughts that begin alike are the same. */
const comparedCharacters = 64;

/**
 * Removes repeated thoughts: some servers separate a thought and also leave it in the text between its tags. What one side has already said
 * is not shown again when the other says it.
 */
export class SaidTwice {
  readonly #beginnings = { separate: '', tagged: '' };
  readonly #lengths = { separate: 0, tagged: 0 };

  /** Returns the part of a piece that has not been shown. */
  unheard(side: Side, piece: string): string {
    const other: Side = side === 'separate' ? 'tagged' : 'separate';
    // Blanks around a thought are layout, which only one of the two sides may have kept.
    const said = this.#lengths[side] === 0 ? piece.trimStart() : piece;
    this.#lengths[side] += said.length;
    const missing = comparedCharacters - this.#beginnings[side].length;
    if (missing > 0) this.#beginnings[side] += said.slice(0, missing);
    if (this.#lengths[other] === 0) return piece;
    const [mine, theirs] = [this.#beginnings[side], this.#beginnings[other]];
    if (!mine.startsWith(theirs) && !theirs.startsWith(mine)) return piece;
    const ahead = this.#lengths[side] - this.#lengths[other];
    return ahead <= 0 ? '' : said.slice(-ahead);
  }
}
