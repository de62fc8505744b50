import { ApiError } from '../../platform/errors.ts';
import { anyCodePoint, type CodePoints } from './code-points.ts';
import {
  alternatives,
  checkGrammarSize,
  emptyText,
  isEmptyText,
  literal,
  repetition,
  rule,
  sequence,
  type Expression,
  type Grammar,
} from './grammar.ts';
import { classEscape, dot, isCounted, PatternText, readClass } from './regex-characters.ts';
import type { Automaton } from './automaton.ts';
import { anyLength, automatonRules, oneCharacter } from './automaton-rules.ts';
import { normalForm } from './normal-form.ts';
import { regexForm } from './regex-form.ts';
import { Work } from './work.ts';

const patternCharactersMax = 4_096;
const groupDepthMax = 100;
/** Bound on the product of nested counts, as in `(a{9}){9}`. */
const repetitionsMax = 10_000;

/**
 * Converts a regular expression in JavaScript's syntax into a grammar of the texts that it matches as a whole: a leading `^` and a trailing
 * `$` change nothing. What a grammar cannot express (lookaround, back-references, word boundaries, anchors between characters) is refused
 * by name and position, like a syntax error: `unsupported_value` 400 (contracts decision 13).
 */
export function regexGrammar(pattern: string, at: string): Grammar {
  const work = new Work(at);
  const form = regexForm(regexExpression(pattern, 'whole', work), work);
  const rules = new Map<string, Expression>();
  const states = new Set<string>();
  const root = form.type === 'expression' ? form.expression : statesOf(form.automaton, rules, states, work);
  const grammar = normalForm({ root: 'root', rules: new Map([['root', root], ...rules]) }, work, states);
  checkGrammarSize(grammar, at);
  return grammar;
}

function statesOf(automaton: Automaton, rules: Map<string, Expression>, states: Set<string>, work: Work): Expression {
  const shared = (expression: Expression): Expression => {
    const name = `c${rules.size}`;
    rules.set(name, expression);
    return rule(name);
  };
  const addState = (name: string, expression: Expression): void => {
    rules.set(name, expression);
    states.add(name);
  };
  const character = (set: CodePoints): Expression => oneCharacter({ kind: 'characters', set }, shared);
  const nameOf = (number: number): string => `s${number}`;
  // Without any texts the pattern matches nothing, like an empty class.
  return automatonRules(automaton, anyLength, { character, nameOf, addState, shared }, work) ?? alternatives();
}

/** `search`: the pattern may match anywhere in the text, like JSON Schema's `pattern`. */
export type MatchedPart = 'whole' | 'search';

/** Returns the characters of a text that the pattern matches. `place` is the location of the pattern, if different from `work.at`. */
export function regexExpression(pattern: string, part: MatchedPart, work: Work, place = ''): Expression {
  const refuse = (problem: string): never => {
    throw new ApiError('unsupported_value', `'${work.at}'${place}: ${problem}.`, { param: work.at });
  };
  if (pattern.length > patternCharactersMax) {
    return refuse(`the pattern is longer than ${patternCharactersMax} characters`);
  }
  const variants = new PatternReader(new PatternText(pattern, work, refuse)).read();
  if (part === 'whole') return alternatives(...variants.map(({ expression }) => expression));
  const any = repetition({ kind: 'characters', set: anyCodePoint }, 0, undefined);
  return alternatives(
    ...variants.map(({ atStart, atEnd, expression }) =>
      sequence(atStart ? emptyText : any, expression, atEnd ? emptyText : any),
    ),
  );
}

/** One way to match, and whether it is anchored at the start or end of the text. */
interface Variant {
  readonly atStart: boolean;
  readonly atEnd: boolean;
  readonly expression: Expression;
}

const unanchored = (expression: Expression): Variant => ({ atStart: false, atEnd: false, expression });

class PatternReader {
  readonly #text: PatternText;
  #depth = 0;

  constructor(text: PatternText) {
    this.#text = text;
  }

  read(): readonly Variant[] {
    const text = this.#text;
    if (text.take('(?i)')) text.ignoreCase = true;
    const { variants } = this.#alternatives();
    if (!text.ended) text.refuse("')' without '('");
    return variants;
  }

  /** `counts`: the largest product of nested counts. */
  #alternatives(): { readonly variants: readonly Variant[]; readonly counts: number } {
    const found: Variant[] = [];
    let counts = 1;
    do {
      const one = this.#sequence();
      found.push(...one.variants);
      counts = Math.max(counts, one.counts);
    } while (this.#text.take('|'));
    return { variants: merged(found), counts };
  }

  #sequence(): { readonly variants: readonly Variant[]; readonly counts: number } {
    const text = this.#text;
    let before: readonly Variant[] = [unanchored(emptyText)];
    // Pieces without anchors are collected first: joining them one by one would copy a long pattern for each.
    let plain: Expression[] = [];
    let counts = 1;
    const join = (variants: readonly Variant[], position: number): void => {
      before = merged(before.flatMap((left) => variants.map((right) => this.#joined(left, right, position))));
    };
    while (!text.ended && text.next !== '|' && text.next !== ')') {
      const position = text.position;
      const piece = this.#piece();
      counts = Math.max(counts, piece.counts);
      const [only] = piece.variants;
      if (piece.variants.length === 1 && only !== undefined && !only.atStart && !only.atEnd) {
        if (before.some(({ atEnd }) => atEnd) && !isEmptyText(only.expression)) {
          text.refuse("'$' before the end", position);
        }
        plain.push(only.expression);
        continue;
      }
      join([unanchored(sequence(...plain))], position);
      plain = [];
      join(piece.variants, position);
    }
    join([unanchored(sequence(...plain))], text.position);
    return { variants: before, counts };
  }

  #joined(left: Variant, right: Variant, position: number): Variant {
    if (right.atStart && !isEmptyText(left.expression)) this.#text.refuse("'^' after the start", position);
    if (left.atEnd && !isEmptyText(right.expression)) this.#text.refuse("'$' before the end", position);
    return {
      atStart: left.atStart || right.atStart,
      atEnd: left.atEnd || right.atEnd,
      expression: sequence(left.expression, right.expression),
    };
  }

  #piece(): { readonly variants: readonly Variant[]; readonly counts: number } {
    const text = this.#text;
    const position = text.position;
    if (text.take('^')) return { variants: [{ ...unanchored(emptyText), atStart: true }], counts: 1 };
    if (text.take('$')) return { variants: [{ ...unanchored(emptyText), atEnd: true }], counts: 1 };
    const { variants, counts } = this.#atom();
    const times = text.quantifier();
    if (times === undefined) return { variants, counts };
    if (variants.some(({ atStart, atEnd }) => atStart || atEnd)) text.refuse('an anchor is repeated', position);
    const product = counts * Math.max(times.max ?? times.min, 1);
    if (counts > 1 && product > repetitionsMax)
      text.refuse(`more than ${repetitionsMax} repetitions inside each other`, position);
    const item = alternatives(...variants.map(({ expression }) => expression));
    return { variants: [unanchored(repetition(item, times.min, times.max))], counts: product };
  }

  #atom(): { readonly variants: readonly Variant[]; readonly counts: number } {
    const text = this.#text;
    const position = text.position;
    if (text.take('(')) {
      if (++this.#depth > groupDepthMax) text.refuse(`groups nest deeper than ${groupDepthMax}`, position);
      text.groupHead(position);
      const inner = this.#alternatives();
      if (!text.take(')')) text.refuse("'(' is not closed", position);
      this.#depth--;
      return inner;
    }
    return { variants: [unanchored(oneOf(this.#set(position)))], counts: 1 };
  }

  #set(position: number): CodePoints {
    const text = this.#text;
    if (text.take('[')) return readClass(text, position);
    if (text.take('.')) return dot;
    if (text.take('\\')) return text.folded(classEscape(text, false));
    if ('*+?'.includes(text.next) || (text.next === '{' && isCounted(text))) text.refuse('nothing to repeat');
    return text.folded(text.character());
  }
}

/** A set of one character is a literal, and adjacent literals are joined. */
function oneOf(set: CodePoints): Expression {
  const [range] = set;
  const isOne = set.length === 1 && range !== undefined && range[0] === range[1];
  return isOne ? literal(String.fromCodePoint(range[0])) : { kind: 'characters', set };
}

/** Merges variants, so that there is at most one per pair of anchors. */
function merged(variants: readonly Variant[]): readonly Variant[] {
  if (variants.length < 2) return variants;
  const groups = new Map<string, Variant[]>();
  for (const variant of variants) {
    const anchors = `${variant.atStart} ${variant.atEnd}`;
    const group = groups.get(anchors);
    if (group === undefined) groups.set(anchors, [variant]);
    else group.push(variant);
  }
  return [...groups.values()].map((group) => ({
    atStart: group[0]?.atStart ?? false,
    atEnd: group[0]?.atEnd ?? false,
    expression: alternatives(...group.map(({ expression }) => expression)),
  }));
}
