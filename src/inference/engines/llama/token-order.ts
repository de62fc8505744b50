/** The part of a vocabulary that is needed here. */
export interface Vocabulary {
  readonly size: number;
  bytesOf(id: number): readonly number[];
  isEnd(id: number): boolean;
}

/**
 * Checking one token takes about 1 µs; holding all 49,000 of a small vocabulary to a grammar takes 6 ms, and 30 to one with many branches.
 */
const questionsMax = 2000;
/**
 * Tokens that continue an allowed one are checked together if there are at most this many: llama.cpp follows their common part once.
 * Checked one after the other, the runs of one to forty blanks took 4 ms wherever white space may come.
 */
const togetherMax = 64;
/** Number of first bytes; if more are allowed, in the middle of a text, nearly every token may come. */
const firstBytesMax = 32;

/**
 * Finds all tokens that a grammar allows next with few checks: in the order of their bytes, tokens that begin with a forbidden token are
 * skipped together. The order is computed once per model (50,000 tokens: some tens of milliseconds).
 */
export class TokenOrder {
  /** Each token's text with one character per byte, sorted, with the ids beside it. */
  readonly #texts: readonly string[];
  readonly #ids: readonly number[];
  readonly #ends: readonly number[];
  readonly #firsts: readonly Range[];
  /** Groups found before: only of allowed beginnings, so far fewer than tokens. */
  readonly #known = new Map<number, readonly Range[]>();

  constructor({ size, bytesOf, isEnd }: Vocabulary) {
    const ids = Array.from({ length: size }, (_, id) => id);
    this.#ends = ids.filter((id) => isEnd(id));
    const tokens = ids
      .filter((id) => !isEnd(id))
      .map((id) => ({ id, text: String.fromCharCode(...bytesOf(id)) }))
      .filter(({ text }) => text !== '')
      .sort((one, other) => (one.text < other.text ? -1 : one.text > other.text ? 1 : one.id - other.id));
    this.#texts = tokens.map(({ text }) => text);
    this.#ids = tokens.map(({ id }) => id);
    this.#firsts = this.#groups(0, this.#texts.length, 0);
  }

  /**
   * Returns the allowed tokens; `undefined`: there are too many, or finding them would take too many checks. `mayCome` answers for each of
   * these tokens, or returns `undefined` if that takes too long.
   */
  allowed(mayCome: (ids: Uint32Array) => ArrayLike<number> | undefined): readonly number[] | undefined {
    const ends = mayCome(Uint32Array.from(this.#ends));
    if (ends === undefined) return undefined;
    const found = this.#ends.filter((_, index) => ends[index] !== 0);
    let ranges = this.#firsts;
    let together: readonly Range[] = [];
    let questions = 0;
    // The tokens of a round are checked together: those of ranges have the same number of bytes.
    for (let length = 1; ranges.length > 0 || together.length > 0; length++) {
      const asked: number[] = [];
      const wholes = ranges.map(([from, to]) => {
        let end = from;
        for (; end < to && this.#texts[end]!.length === length; end++) asked.push(this.#ids[end]!);
        return end;
      });
      for (const [from, to] of together) for (let at = from; at < to; at++) asked.push(this.#ids[at]!);
      questions += asked.length;
      if (questions > questionsMax) return undefined;
      const answers = mayCome(new Uint32Array(asked));
      if (answers === undefined) return undefined;
      let index = 0;
      let open = 0;
      const next: Range[] = [];
      const nextTogether: Range[] = [];
      for (const [place, [from, to]] of ranges.entries()) {
        const end = wholes[place]!;
        // Not if the bytes that all of them begin with are a token that is forbidden.
        const begins = end === from || answers[index] !== 0;
        for (let at = from; at < end; at++, index++) if (answers[index] !== 0) found.push(this.#ids[at]!);
        if (!begins) continue;
        open++;
        if (end > from && to - end <= togetherMax) nextTogether.push([end, to]);
        else next.push(...this.#groups(end, to, length));
      }
      for (const [from, to] of together)
        for (let at = from; at < to; at++, index++) if (answers[index] !== 0) found.push(this.#ids[at]!);
      if (length === 1 && open > firstBytesMax) return undefined;
      ranges = next;
      together = nextTogether;
    }
    return found;
  }

  /** Returns ranges with the same byte at a place, of texts that begin with the same bytes: `from` and `place` say which. */
  #groups(from: number, to: number, place: number): readonly Range[] {
    const key = place * this.#texts.length + from;
    let groups = this.#known.get(key);
    if (groups === undefined) this.#known.set(key, (groups = this.#find(from, to, place)));
    return groups;
  }

  #find(from: number, to: number, place: number): readonly Range[] {
    const groups: Range[] = [];
    for (let start = from; start < to;) {
      const byte = this.#texts[start]!.charCodeAt(place);
      let [low, high] = [start + 1, to];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.#texts[middle]!.charCodeAt(place) > byte) high = middle;
        else low = middle + 1;
      }
      groups.push([start, low]);
      start = low;
    }
    return groups;
  }
}

type Range = readonly [from: number, to: number];
