import {
  anyCodePoint,
  codePoints,
  complement,
  lastCodePoint,
  onePoint,
  union,
  type CodePointRange,
  type CodePoints,
} from './code-points.ts';
import type { Work } from './work.ts';

/** A pattern being parsed: a position that advances, and refusals that mention it. Positions count characters from 0. */
export class PatternText {
  ignoreCase = false;
  readonly #characters: readonly string[];
  readonly #work: Work;
  readonly #refuse: (problem: string) => never;
  #position = 0;
  #properties = 0;

  constructor(pattern: string, work: Work, refuse: (problem: string) => never) {
    this.#characters = [...pattern];
    this.#work = work;
    this.#refuse = refuse;
  }

  get position(): number {
    return this.#position;
  }
  get ended(): boolean {
    return this.#position >= this.#characters.length;
  }
  /** The next character; empty at the end. */
  get next(): string {
    return this.#characters[this.#position] ?? '';
  }

  refuse(problem: string, position = this.#position): never {
    return this.#refuse(`${problem} (character ${position} of the pattern)`);
  }

  /** Consumes `expected` if it comes next; returns whether it did. */
  take(expected: string): boolean {
    if (!this.startsWith(expected)) return false;
    this.#work.spend(1);
    this.#position += expected.length;
    return true;
  }
  startsWith(expected: string): boolean {
    for (let i = 0; i < expected.length; i++) {
      if (this.#characters[this.#position + i] !== expected[i]) return false;
    }
    return true;
  }

  /** Returns the next characters without consuming them. */
  ahead(count: number): string {
    return this.#characters.slice(this.#position, this.#position + count).join('');
  }

  /** Consumes the next character, and returns it as a set. */
  character(): CodePoints {
    this.#work.spend(1);
    const { next } = this;
    this.#position += 1;
    if (!next.isWellFormed()) this.refuse('an unpaired surrogate', this.#position - 1);
    return [onePoint(next)];
  }

  /** Consumes the text up to and including `end`, and returns it without `end`. */
  until(end: string, what: string): string {
    const start = this.#position;
    while (!this.ended && this.next !== end) this.#position++;
    const found = this.#characters.slice(start, this.#position).join('');
    if (!this.take(end)) this.refuse(`${what} is not closed`, start);
    return found;
  }

  /** Parses `count` hexadecimal digits as a number. */
  hex(count: number, what: string): number {
    const digits = this.ahead(count);
    if (digits.length !== count || !/^[0-9A-Fa-f]+$/.test(digits)) this.refuse(`${what} without ${count} hex digits`);
    this.#position += count;
    return Number.parseInt(digits, 16);
  }

  /** After `(`: consumes the head of a supported group, and refuses other kinds by name. */
  groupHead(position: number): void {
    if (!this.take('?')) return;
    if (this.take(':')) return;
    for (const look of ['=', '!', '<=', '<!']) {
      if (this.startsWith(look)) this.refuse(`'(?${look}', lookaround, is not supported`, position);
    }
    if (this.take('<') || this.take('P<')) {
      const name = this.until('>', 'the name of a group');
      if (!/^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name)) this.refuse('the name of a group is invalid', position);
      return;
    }
    this.refuse("'(?' with a flag or in a form that is not supported", position);
  }

  quantifier(): { readonly min: number; readonly max: number | undefined } | undefined {
    const times = this.#times();
    // A lazy quantifier matches the same texts.
    if (times !== undefined) this.take('?');
    return times;
  }

  #times(): { readonly min: number; readonly max: number | undefined } | undefined {
    if (this.take('*')) return { min: 0, max: undefined };
    if (this.take('+')) return { min: 1, max: undefined };
    if (this.take('?')) return { min: 0, max: 1 };
    if (this.next !== '{' || !isCounted(this)) return undefined;
    const start = this.#position;
    const [first = '', second] = this.until('}', 'a count').slice(1).split(',');
    const min = Number(first);
    const max = second === undefined ? min : second === '' ? undefined : Number(second);
    if (max !== undefined && max < min) this.refuse('the end of a count is below its start', start);
    return { min, max };
  }

  /** Returns the set with both cases of its letters, if the pattern ignores case. As in JavaScript, ASCII letters fold only to ASCII. */
  folded(set: CodePoints): CodePoints {
    if (!this.ignoreCase) return set;
    const more: CodePointRange[] = [];
    for (const [first, last] of set) {
      this.#work.spend(last - first);
      for (let point = first; point <= last; point++) {
        const character = String.fromCodePoint(point);
        for (const other of [character.toLowerCase(), character.toUpperCase()]) {
          const isOne = [...other].length === 1 && (point < 128 || (other.codePointAt(0) ?? 0) >= 128);
          if (isOne && other !== character) more.push(onePoint(other));
        }
      }
    }
    return union(set, codePoints(more));
  }

  /** Returns the characters with a Unicode property, as named in `\p{…}`. */
  property(name: string, position: number): CodePoints {
    if (++this.#properties > unicodePropertiesMax) {
      this.refuse(`more than ${unicodePropertiesMax} Unicode properties`, position);
    }
    this.#work.spend(stepsOfProperty);
    let runs: RegExp | undefined;
    // The name is checked before it is inserted into an expression.
    if (/^[A-Za-z_0-9]+(=[A-Za-z_0-9]+)?$/.test(name)) {
      try {
        runs = new RegExp(`\\p{${name}}+`, 'gu');
      } catch {
        runs = undefined;
      }
    }
    if (runs === undefined) return this.refuse('a Unicode property that does not exist', position);
    return runsOf(runs);
  }
}

const unicodePropertiesMax = 3;
const stepsOfProperty = 12_000;

/**
 * Finds the runs of matching characters, over Unicode in pieces of a sixteenth of a plane. A plane without single characters (unassigned,
 * private use) is judged by its first one, and its last two, which are never characters, by the first of those: checking all of them takes
 * four times as long.
 */
function runsOf(runs: RegExp): CodePoints {
  const found: CodePointRange[] = [];
  for (const [first, last] of anyCodePoint) {
    for (let start = first; start <= last;) {
      const isUniform = start >= 0x40000 && start !== 0xe0000;
      const planeEnd = start | 0xffff;
      const end = Math.min(!isUniform ? start | 0xfff : start < planeEnd - 1 ? planeEnd - 2 : planeEnd, last);
      const points = Array.from({ length: isUniform ? 1 : end + 1 - start }, (_, index) => start + index);
      const text = String.fromCodePoint(...points);
      const width = start > 0xffff ? 2 : 1;
      for (const match of text.matchAll(runs)) {
        const from = start + match.index / width;
        found.push([from, isUniform ? end : from + match[0].length / width - 1]);
      }
      start = end + 1;
    }
  }
  return codePoints(found);
}

/** Whether `{` begins a count; otherwise it is an ordinary character. */
export const isCounted = (text: PatternText): boolean => /^\{[0-9]{1,9}(,[0-9]{0,9})?\}/.test(text.ahead(21));

export const digits = codePoints([[0x30, 0x39]]);
const wordCharacters = codePoints([
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
]);
/** As ECMAScript defines `\s`. */
export const blanks = codePoints([
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
]);
/** Everything except line terminators. */
export const dot = complement([
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
]);

const fixedEscapes: ReadonlyMap<string, CodePoints> = new Map([
  ['d', digits],
  ['D', complement(digits)],
  ['w', wordCharacters],
  ['W', complement(wordCharacters)],
  ['s', blanks],
  ['S', complement(blanks)],
  ['n', [[10, 10]]],
  ['r', [[13, 13]]],
  ['t', [[9, 9]]],
  ['f', [[12, 12]]],
  ['v', [[11, 11]]],
]);

/** After a backslash: returns the characters that the escape stands for. */
export function classEscape(text: PatternText, inClass: boolean): CodePoints {
  const position = text.position - 1;
  const fixed = fixedEscapes.get(text.next);
  if (fixed !== undefined) {
    text.character();
    return fixed;
  }
  if (text.ended) text.refuse("'\\' at the end", position);
  if (text.take('p{')) return text.property(text.until('}', "'\\p{'"), position);
  if (text.take('P{')) return complement(text.property(text.until('}', "'\\P{'"), position));
  if (text.take('x')) return point(text, text.hex(2, "'\\x'"), position);
  if (text.take('u{')) {
    const number = text.until('}', "'\\u{'");
    if (!/^[0-9A-Fa-f]{1,8}$/.test(number)) text.refuse("'\\u{' without a number", position);
    return point(text, Number.parseInt(number, 16), position);
  }
  if (text.take('u')) return utf16Escape(text, position);
  if (text.take('c')) {
    const { next } = text;
    if (!/^[A-Za-z]$/.test(next)) text.refuse("'\\c' without a letter", position);
    text.character();
    return point(text, next.charCodeAt(0) % 32, position);
  }
  if (inClass && text.take('b')) return [[8, 8]];
  if (text.next === 'b' || text.next === 'B')
    text.refuse(`'\\${text.next}', a word boundary, is not supported`, position);
  if (text.next === 'k') text.refuse("'\\k', a back-reference, is not supported", position);
  if (text.next === '0' && !/^0[0-9]/.test(text.ahead(2))) {
    text.character();
    return [[0, 0]];
  }
  if (/^[0-9]$/.test(text.next))
    text.refuse(`'\\${text.next}', a back-reference or octal escape, is not supported`, position);
  if (/^[A-Za-z]$/.test(text.next)) text.refuse(`'\\${text.next}' is not an escape`, position);
  return text.character();
}

function utf16Escape(text: PatternText, position: number): CodePoints {
  const unit = text.hex(4, "'\\u'");
  if (unit < 0xd800 || unit > 0xdbff || !/^\\u[dD][c-fC-F]/.test(text.ahead(4))) return point(text, unit, position);
  text.take('\\u');
  return point(text, 0x10000 + (unit - 0xd800) * 0x400 + (text.hex(4, "'\\u'") - 0xdc00), position);
}

function point(text: PatternText, number: number, position: number): CodePoints {
  if (number > lastCodePoint || (number >= 0xd800 && number <= 0xdfff)) {
    text.refuse('an escape that is not a character', position);
  }
  return [[number, number]];
}

/** After `[`: returns the characters of the class. */
export function readClass(text: PatternText, position: number): CodePoints {
  const negated = text.take('^');
  const ranges: CodePointRange[] = [];
  while (!text.take(']')) {
    if (text.ended) text.refuse("'[' is not closed", position);
    const first = classAtom(text);
    if (text.next !== '-' || text.startsWith('-]')) {
      ranges.push(...first);
      continue;
    }
    const rangeAt = text.position;
    text.take('-');
    if (text.ended) text.refuse("'[' is not closed", position);
    const last = classAtom(text);
    const from = single(first);
    const to = single(last);
    // With a set on either side of the hyphen, JavaScript reads the hyphen as a character.
    if (from === undefined || to === undefined) ranges.push(...first, ...last, onePoint('-'));
    else if (to < from) text.refuse('the end of a range is below its start', rangeAt);
    else ranges.push([from, to]);
  }
  const set = text.folded(codePoints(ranges));
  const found = negated ? complement(set) : set;
  if (found.length === 0) text.refuse('a class that no character matches', position);
  return found;
}

const classAtom = (text: PatternText): CodePoints => (text.take('\\') ? classEscape(text, true) : text.character());

const single = (set: CodePoints): number | undefined => {
  const [range] = set;
  return set.length === 1 && range !== undefined && range[0] === range[1] ? range[0] : undefined;
};
