/** What is asked about a vocabulary. */
export interface Vocabulary {
  readonly size: number;
  bytesOf(id: number): readonly number[];
  isEnd(id: number): boolean;
}

/** A question about a token takes 2 µs; holding all 49,000 of a small vocabulary to a grammar takes 6 ms. */
const questionsMax = 1000;
/** Of the first bytes of tokens: where more may come, in the middle of a text, nearly every token may. */
const firstBytesMax = 32;

/**
 * All tokens that may come next in a grammar, found by asking about few: in the order of their bytes, those that begin with a token which
 * may not come are left out together. The order is made once for a model (50,000 tokens: some tens of milliseconds).
 */
export class TokenOrder {
  /** A character for each byte, in order, with the tokens that they are of. */
  readonly #texts: readonly string[];
  readonly #ids: readonly number[];
  readonly #ends: readonly number[];

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
  }

  /** `undefined`: they are too many, or finding them would take too many questions. */
  allowed(mayCome: (id: number) => boolean): readonly number[] | undefined {
    const found = this.#ends.filter(mayCome);
    const walk: Walk = { mayCome, found, questions: 0 };
    const firsts = this.#groups(0, this.#texts.length, 0);
    const open = firsts.filter(([from, to]) => this.#begins(walk, from, to, 1));
    if (open.length > firstBytesMax) return undefined;
    for (const [from, to] of open) if (!this.#collect(walk, from, to, 1)) return undefined;
    return found;
  }

  /** Whether tokens from `from` to `to`, whose first `length` bytes are the same, may come: not if those bytes are a token that may not. */
  #begins(walk: Walk, from: number, to: number, length: number): boolean {
    if (from >= to || this.#texts[from]!.length !== length) return true;
    walk.questions++;
    return walk.mayCome(this.#ids[from]!);
  }

  /** Adds those that may come; false when there were too many questions. */
  #collect(walk: Walk, from: number, to: number, length: number): boolean {
    let next = from;
    for (; next < to && this.#texts[next]!.length === length; next++) {
      walk.questions++;
      if (walk.mayCome(this.#ids[next]!)) walk.found.push(this.#ids[next]!);
    }
    for (const [first, end] of this.#groups(next, to, length)) {
      if (walk.questions > questionsMax) return false;
      if (this.#begins(walk, first, end, length + 1) && !this.#collect(walk, first, end, length + 1)) return false;
    }
    return true;
  }

  /** Ranges with the same byte at a place. */
  #groups(from: number, to: number, place: number): readonly (readonly [from: number, to: number])[] {
    const groups: [number, number][] = [];
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

interface Walk {
  readonly mayCome: (id: number) => boolean;
  readonly found: number[];
  questions: number;
}
