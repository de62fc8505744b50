import { codePoints, complement, onePoint, lastCodePoint, type CodePointRange } from './code-points.ts';
import { checkEbnfRules, type EbnfRule } from './ebnf-rules.ts';
import { ebnfTokens, notationOf, refuseAt, type EbnfNotation, type EbnfToken, type Position } from './ebnf-tokens.ts';
import {
  alternatives,
  checkGrammarSize,
  literal,
  optional,
  repetition,
  rule,
  sequence,
  type Expression,
  type Grammar,
} from './grammar.ts';
import { normalForm } from './normal-form.ts';
import { dot } from './regex-characters.ts';
import { Work } from './work.ts';

const grammarCharactersMax = 65_536;
const groupDepthMax = 100;

/**
 * Parses a client's grammar: GBNF as in llama.cpp and xgrammar, where the text must match the rule `root`; W3C's notation (`'a'`, `#x41`,
 * comments in slashes) as an addition; or, if rules are defined by `=`, ISO 14977, where the first rule is the start if none is called
 * `root`. Syntax errors, undefined rules, left recursion and exceeded bounds are refused with `unsupported_value` 400, naming line and
 * column (contracts decision 13).
 */
export function ebnfGrammar(text: string, at: string): Grammar {
  const work = new Work(at);
  const start = { line: 1, column: 1 };
  if (text.length > grammarCharactersMax) {
    refuseAt(`the grammar is longer than ${grammarCharactersMax} characters`, start, at);
  }
  if (!text.isWellFormed()) refuseAt('the grammar has an unpaired surrogate', start, at);
  const notation = notationOf(text);
  const rules = new EbnfReader(ebnfTokens(text, notation, at, work), notation, at, work).read();
  const [first] = rules.keys();
  const root = rules.has('root') || notation === 'gbnf' ? 'root' : first;
  if (root === undefined || !rules.has(root)) return refuseAt("the grammar has no rule 'root'", start, at);
  const named = checkEbnfRules(rules, root, at, work);
  const grammar = normalForm(named, work);
  checkGrammarSize(grammar, at);
  return grammar;
}

class EbnfReader {
  readonly #tokens: readonly EbnfToken[];
  readonly #notation: EbnfNotation;
  readonly #at: string;
  readonly #work: Work;
  #index = 0;
  #depth = 0;
  #names = new Map<string, Position>();

  constructor(tokens: readonly EbnfToken[], notation: EbnfNotation, at: string, work: Work) {
    this.#tokens = tokens;
    this.#notation = notation;
    this.#at = at;
    this.#work = work;
  }

  read(): ReadonlyMap<string, EbnfRule> {
    const rules = new Map<string, EbnfRule>();
    while (this.#next.kind !== 'end') {
      const { line, column } = this.#next;
      const position = { line, column };
      const name = this.#next.kind === 'name' ? this.#next.text : this.#refuse('a rule is expected');
      this.#index++;
      if (!this.#takesDefinition()) this.#refuse(this.#notation === 'gbnf' ? "'::=' is expected" : "'=' is expected");
      if (rules.has(name)) refuseAt('this rule is defined twice', position, this.#at);
      this.#names = new Map();
      const expression = this.#alternatives();
      rules.set(name, { ...position, expression, names: this.#names });
      while (this.#notation === 'iso' && (this.#take(';') || this.#take('.')));
    }
    return rules;
  }

  get #next(): EbnfToken {
    return this.#tokens[this.#index] ?? { kind: 'end', line: 1, column: 1 };
  }

  #refuse(problem: string, position: Position = this.#next): never {
    return refuseAt(problem, position, this.#at);
  }

  #isSign(text: string, index = this.#index): boolean {
    const token = this.#tokens[index];
    return token?.kind === 'sign' && token.text === text;
  }

  #take(text: string): boolean {
    if (!this.#isSign(text)) return false;
    this.#index++;
    return true;
  }

  #takesDefinition(): boolean {
    return this.#notation === 'gbnf' ? this.#take('::=') : this.#take('=') || this.#take(':=');
  }

  #beginsRule(): boolean {
    const after = this.#index + 1;
    return this.#next.kind === 'name' && ['::=', '=', ':='].some((sign) => this.#isSign(sign, after));
  }

  #alternatives(): Expression {
    if (++this.#depth > groupDepthMax) this.#refuse(`groups nest deeper than ${groupDepthMax}`);
    const items = [this.#sequence()];
    while (this.#take('|')) items.push(this.#sequence());
    this.#depth--;
    return alternatives(...items);
  }

  #sequence(): Expression {
    const items: Expression[] = [];
    while (!this.#endsSequence()) {
      this.#work.spend(2);
      if (this.#notation === 'iso' && this.#take(',')) continue;
      let item = this.#item();
      for (let times = this.#times(); times !== undefined; times = this.#times()) {
        item = repetition(item, times.min, times.max);
      }
      items.push(item);
    }
    return sequence(...items);
  }

  #endsSequence(): boolean {
    const next = this.#next;
    if (next.kind === 'end') return true;
    if (next.kind === 'sign') {
      const ends = this.#notation === 'gbnf' ? ['|', ')'] : ['|', ')', ']', '}', ';', '.'];
      return ends.includes(next.text);
    }
    return this.#beginsRule();
  }

  #times(): { readonly min: number; readonly max: number | undefined } | undefined {
    const next = this.#next;
    if (next.kind === 'count') {
      if (next.max !== undefined && next.max < next.min) this.#refuse('the end of a count is below its start');
      this.#index++;
      return next;
    }
    if (this.#take('*')) return { min: 0, max: undefined };
    if (this.#take('+')) return { min: 1, max: undefined };
    return this.#notation === 'gbnf' && this.#take('?') ? { min: 0, max: 1 } : undefined;
  }

  #item(): Expression {
    const token = this.#next;
    this.#index++;
    switch (token.kind) {
      case 'name':
        if (!this.#names.has(token.text)) this.#names.set(token.text, token);
        return rule(token.text);
      case 'literal':
        return literal(this.#notation === 'iso' ? token.text.slice(1, -1) : this.#unescaped(token));
      case 'class':
        return this.#class(token);
      case 'character':
        if (token.point > lastCodePoint || (token.point >= 0xd800 && token.point <= 0xdfff)) {
          this.#refuse('a number that is not a character', token);
        }
        return literal(String.fromCodePoint(token.point));
      case 'number': {
        // ISO: 3 * item.
        if (!this.#take('*')) this.#refuse("'*' is expected after a number");
        return repetition(this.#item(), token.value, token.value);
      }
      case 'sign':
        if (token.text === '(') return this.#group(')', token);
        if (this.#notation === 'iso' && token.text === '[') return optional(this.#group(']', token));
        if (this.#notation === 'iso' && token.text === '{') return repetition(this.#group('}', token), 0, undefined);
        if (token.text === '.') return { kind: 'characters', set: dot };
        return this.#refuse(`'${token.text}' is not expected here`, token);
      case 'count':
        return this.#refuse('a count has nothing to repeat', token);
      case 'end':
        return this.#refuse('the grammar ends too early', token);
    }
  }

  #group(close: string, open: Position): Expression {
    const inner = this.#alternatives();
    if (!this.#take(close)) this.#refuse(`'${close}' is missing`, open);
    return inner;
  }

  #unescaped(token: EbnfToken & { readonly text: string }): string {
    return unescapedPoints(token.text.slice(1, -1), () => this.#refuse('an escape that does not exist', token))
      .map(({ point }) => String.fromCodePoint(point))
      .join('');
  }

  #class(token: EbnfToken & { readonly text: string }): Expression {
    const isNegated = token.text.startsWith('^');
    const inner = isNegated ? token.text.slice(1) : token.text;
    const points = unescapedPoints(inner, () => this.#refuse('an escape that does not exist', token), true);
    const ranges: CodePointRange[] = [];
    for (let index = 0; index < points.length; index++) {
      this.#work.spend(1);
      const first = points[index];
      const hyphen = points[index + 1];
      const last = points[index + 2];
      if (first === undefined) break;
      if (hyphen === undefined || last === undefined || hyphen.isEscaped || hyphen.point !== 0x2d) {
        ranges.push([first.point, first.point]);
        continue;
      }
      if (last.point < first.point) this.#refuse('the end of a range is below its start', token);
      ranges.push([first.point, last.point]);
      index += 2;
    }
    const listed = codePoints(ranges);
    const set = isNegated ? complement(listed) : listed;
    if (set.length === 0) this.#refuse('a class that no character matches', token);
    return { kind: 'characters', set };
  }
}

const letterEscapes: ReadonlyMap<string, number> = new Map([
  ['n', 10],
  ['r', 13],
  ['t', 9],
]);

/** Returns the characters of a literal or a class. `#x41` is a character only inside a class, as in W3C's notation. */
function unescapedPoints(
  text: string,
  refuse: () => never,
  inClass = false,
): readonly { readonly point: number; readonly isEscaped: boolean }[] {
  const points: { readonly point: number; readonly isEscaped: boolean }[] = [];
  const part = /\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|(#x[0-9A-Fa-f]{1,6})|\\([^])|([^])/gu;
  for (const found of text.matchAll(part)) {
    const [whole, two, four, eight, hash, letter] = found;
    if (hash !== undefined && !inClass) {
      for (const character of whole) points.push({ point: onePoint(character)[0], isEscaped: false });
      continue;
    }
    const digits = two ?? four ?? eight ?? hash?.slice(2);
    if (digits !== undefined) points.push({ point: Number.parseInt(digits, 16), isEscaped: true });
    else if (letter === undefined) points.push({ point: onePoint(whole)[0], isEscaped: false });
    else if (/[A-Za-z0-9]/.test(letter) && !letterEscapes.has(letter)) refuse();
    else points.push({ point: letterEscapes.get(letter) ?? onePoint(letter)[0], isEscaped: true });
  }
  if (points.some(({ point }) => point > lastCodePoint || (point >= 0xd800 && point <= 0xdfff))) refuse();
  return points;
}
