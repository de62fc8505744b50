/** A parser that pauses where the text is used up, and continues when there is more. */
export type Reading<T = void> = Generator<void, T>;

/**
 * Text that arrives in pieces, for parsers written as if all of it were available: they are generators that pause at the end of what has
 * arrived. They see characters, never pieces, so their results cannot depend on where the text was split.
 *
 * Buffered are a look-ahead no longer than a mark and, while a record runs, the text since it began.
 */
export class Source {
  #text = '';
  #at = 0;
  #ended = false;
  #cut = false;
  #record: string | undefined;

  feed(text: string): void {
    this.#text = this.#text.slice(this.#at) + text;
    this.#at = 0;
  }

  end(): void {
    this.#ended = true;
  }

  /** Whether the remaining text is only the beginning of a literal that was expected. */
  get isCut(): boolean {
    return this.#cut;
  }

  /** Skips the text so far. */
  skip(): void {
    this.#at = this.#text.length;
  }

  /** From here on the text read can still be returned as text; `already` was read before. */
  record(already = ''): void {
    this.#record = already;
  }

  /** Ends the record, and returns the text read since `record`. */
  settle(): string {
    const record = this.#record ?? '';
    this.#record = undefined;
    return record;
  }

  /** The next character, or `undefined` at the end. */
  *peek(): Reading<string | undefined> {
    while (this.#at >= this.#text.length) {
      if (this.#ended) return undefined;
      yield;
    }
    return this.#text.charAt(this.#at);
  }

  /** Reads the literal, if it comes next. */
  *accept(literal: string): Reading<boolean> {
    for (let matched = 0; matched < literal.length;) {
      const there = Math.min(literal.length, this.#text.length - this.#at);
      if (!literal.startsWith(this.#text.slice(this.#at, this.#at + there))) return false;
      matched = there;
      if (matched === literal.length) break;
      if (this.#ended) {
        this.#cut = true;
        return false;
      }
      yield;
    }
    this.#take(literal.length);
    return true;
  }

  /** Reads the literal; throws `Malformed` for anything else. */
  *expect(literal: string): Reading {
    if (!(yield* this.accept(literal))) throw new Malformed();
  }

  /** Reads as much as matches a sticky expression, which is a run of one class of characters. */
  *while(run: RegExp, take: (text: string) => void): Reading {
    while ((yield* this.peek()) !== undefined) {
      run.lastIndex = this.#at;
      const length = run.exec(this.#text)?.[0].length ?? 0;
      if (length > 0) take(this.#take(length));
      if (this.#at < this.#text.length) return;
    }
  }

  *blanks(): Reading {
    yield* this.while(blankRun, ignore);
  }

  /**
   * Passes text on up to the first of the marks, which is read and returned; `undefined`: the text ended without one. Half a mark at the
   * end is text, or the mark itself if one must come (`isDue`).
   */
  *until(marks: Marks, pass: (text: string) => void, isDue = false): Reading<string | undefined> {
    for (;;) {
      const found = marks.find(this.#text, this.#at, this.#ended && !isDue);
      if (found.at > this.#at) pass(this.#take(found.at - this.#at));
      if (found.mark !== undefined) {
        this.#take(found.mark.length);
        return found.mark;
      }
      if (this.#ended) {
        this.skip();
        return undefined;
      }
      yield;
    }
  }

  #take(length: number): string {
    const text = this.#text.slice(this.#at, this.#at + length);
    this.#at += length;
    if (this.#record !== undefined) {
      this.#record += text;
      if (this.#record.length > recordMax) throw new Malformed();
    }
    return text;
  }
}

/** Maximum text of a call before its name is known, because arguments may come first. If longer, it is not a call. */
const recordMax = 64 * 1024;

/** The text is not what its opening mark promised. */
export class Malformed extends Error {
  override readonly name = 'Malformed';
}

/**
 * Literals to search for. The first character of each occurs nowhere else in them, so marks cannot overlap, and at most one position at the
 * end of the text can begin one.
 */
export class Marks {
  readonly literals: readonly string[];
  readonly #starts: RegExp;

  constructor(marks: readonly string[]) {
    this.literals = marks;
    const starts = new Set(marks.map((mark) => mark.charAt(0)));
    const overlaps = (mark: string) => [...mark.slice(1)].some((character) => starts.has(character));
    const hides = (mark: string) => marks.some((other) => other !== mark && mark.startsWith(other));
    if (marks.some((mark) => mark === '' || overlaps(mark) || hides(mark))) throw new Error('marks may not overlap');
    const codes = [...starts].map((start) => `\\u${start.charCodeAt(0).toString(16).padStart(4, '0')}`);
    this.#starts = new RegExp(codes.length === 0 ? '(?!)' : `[${codes.join('')}]`, 'g');
  }

  /** Finds the first mark from `from` on; if none is found, `at` is where one may begin, or the text's end. */
  find(text: string, from: number, ended: boolean): { readonly at: number; readonly mark?: string } {
    this.#starts.lastIndex = from;
    for (let match = this.#starts.exec(text); match !== null; match = this.#starts.exec(text)) {
      const at = match.index;
      const mark = this.literals.find((candidate) => text.startsWith(candidate, at));
      if (mark !== undefined) return { at, mark };
      const rest = text.slice(at);
      if (!ended && this.literals.some((candidate) => candidate.startsWith(rest))) return { at };
    }
    return { at: text.length };
  }
}

export const blankRun = /\s+/y;

export function ignore(): void {}
