import {
  alternatives,
  emptyText,
  isEmptyText,
  literal,
  repetition,
  rule,
  sequence,
  type Expression,
  type Grammar,
} from './grammar.ts';
import type { Work } from './work.ts';

/**
 * Converts a grammar into a form that llama.cpp runs well, without changing its texts. llama.cpp checks every grammar, and it
 * - takes minutes for 200 characters if a counted part can be empty, as in `("a"?){0,1000}`: no repeated part is empty here;
 * - reads a count above 2,000 as unbounded, and refuses counts whose product is above it: counts are built of blocks of 500,
 *   and a repeated group is a separate rule;
 * - tries each alternative with each token: many literals (an `enum`) share their prefixes.
 *
 * `states`: the many rules of automata, which already have this form (`automatonRules`).
 */
export function normalForm(grammar: Grammar, work: Work, states: ReadonlySet<string> = new Set()): Grammar {
  const normal = new NormalForm(grammar, work, states);
  for (const [name, expression] of grammar.rules) {
    if (states.has(name)) normal.rules.set(name, expression);
    else normal.add(name, expression);
  }
  return { root: grammar.root, rules: normal.rules };
}

const countMax = 500;
const inlineRangesMax = 12;
const inlineCountMax = 8;
const plainLiteralsMax = 16;

class NormalForm {
  readonly rules = new Map<string, Expression>();
  readonly #grammar: Grammar;
  readonly #work: Work;
  readonly #nullable: ReadonlySet<string>;
  readonly #hoisted = new Map<string, string>();
  #lastNumber = 0;

  constructor(grammar: Grammar, work: Work, states: ReadonlySet<string>) {
    this.#grammar = grammar;
    this.#work = work;
    this.#nullable = nullableRules(grammar, work, states);
  }

  add(name: string, expression: Expression): void {
    this.rules.set(name, this.#normal(expression));
  }

  #normal(expression: Expression): Expression {
    this.#work.spend(1);
    switch (expression.kind) {
      case 'literal':
      case 'rule':
        return expression;
      case 'characters':
        return expression.set.length > inlineRangesMax ? this.#rule(expression) : expression;
      case 'sequence':
        return sequence(...expression.items.map((item) => this.#normal(item)));
      case 'alternatives':
        return this.#alternatives(expression.items);
      case 'repetition':
        return this.#repetition(expression.item, expression.min, expression.max);
    }
  }

  #alternatives(items: readonly Expression[]): Expression {
    const texts = items.flatMap((item) => (item.kind === 'literal' ? [item.text] : []));
    if (texts.length <= plainLiteralsMax) return alternatives(...items.map((item) => this.#normal(item)));
    const others = items.filter((item) => item.kind !== 'literal').map((item) => this.#normal(item));
    const sorted = [...new Set(texts)].sort().map((text) => [...text]);
    return alternatives(this.#literals(sorted, 0), ...others);
  }

  /** Merges sorted texts that share the characters before `from`. */
  #literals(texts: readonly (readonly string[])[], from: number): Expression {
    const [first] = texts;
    if (texts.length === 1 && first !== undefined) return literal(first.slice(from).join(''));
    const groups = new Map<string | undefined, (readonly string[])[]>();
    for (const text of texts) {
      this.#work.spend(1);
      const group = groups.get(text[from]);
      if (group === undefined) groups.set(text[from], [text]);
      else group.push(text);
    }
    return alternatives(
      ...Array.from(groups, ([character, group]) =>
        character === undefined ? emptyText : sequence(literal(character), this.#literals(group, from + 1)),
      ),
    );
  }

  #repetition(repeated: Expression, min: number, max: number | undefined): Expression {
    const canBeEmpty = this.#isNullable(repeated);
    const filled = canBeEmpty ? this.#filled(repeated) : this.#normal(repeated);
    if (filled === undefined || isEmptyText(filled)) return emptyText;
    const least = canBeEmpty ? 0 : min;
    const item = (max ?? least) > inlineCountMax && !isSmall(filled) ? this.#rule(filled) : filled;
    if ((max ?? least) <= countMax) return repetition(item, least, max);
    // A long literal would be repeated for each count.
    const one = item.kind === 'literal' ? this.#rule(item) : item;
    const more = max === undefined ? repetition(one, 0, undefined) : this.#upTo(one, max - least);
    return sequence(this.#exactly(one, least), more);
  }

  #exactly(item: Expression, count: number): Expression {
    if (count <= countMax) return repetition(item, count, count);
    const block = this.#rule(repetition(item, countMax, countMax));
    return sequence(
      this.#exactly(block, Math.floor(count / countMax)),
      repetition(item, count % countMax, count % countMax),
    );
  }

  #upTo(item: Expression, count: number): Expression {
    if (count <= countMax) return repetition(item, 0, count);
    const block = this.#rule(repetition(item, countMax, countMax));
    const blocks = Math.floor(count / countMax);
    return this.#rule(
      alternatives(
        sequence(this.#upTo(block, blocks - 1), repetition(item, 0, countMax - 1)),
        sequence(this.#exactly(block, blocks), repetition(item, 0, count % countMax)),
      ),
    );
  }

  /** Returns the texts of an expression except for the empty one; `undefined`: there are no others. */
  #filled(expression: Expression): Expression | undefined {
    this.#work.spend(1);
    switch (expression.kind) {
      case 'literal':
      case 'characters':
        return this.#normal(expression);
      case 'alternatives': {
        const items = expression.items.flatMap((item) => this.#filled(item) ?? []);
        return items.length === 0 ? undefined : alternatives(...items);
      }
      case 'sequence':
        return this.#filledSequence(expression.items);
      case 'repetition': {
        const { item, min, max } = expression;
        if (!this.#isNullable(item)) return this.#repetition(item, Math.max(min, 1), max);
        const filled = this.#filled(item);
        return filled === undefined ? undefined : this.#repetition(this.#rule(filled), 1, max);
      }
      case 'rule': {
        if (!this.#nullable.has(expression.name)) return expression;
        return this.#filledRule(expression.name);
      }
    }
  }

  /** The alternatives in which each item in turn is the first that is not empty. */
  #filledSequence(items: readonly Expression[]): Expression | undefined {
    if (!items.every((item) => this.#isNullable(item))) return this.#normal({ kind: 'sequence', items });
    const forms: Expression[] = [];
    let tail: Expression = emptyText;
    for (const item of items.toReversed()) {
      const filled = this.#filled(item);
      if (filled !== undefined) forms.push(sequence(filled, tail));
      // What follows an item is written once, not once for each item before it.
      tail = isEmptyText(tail) ? this.#normal(item) : this.#rule(sequence(this.#normal(item), tail));
    }
    return forms.length === 0 ? undefined : alternatives(...forms);
  }

  #filledRule(name: string): Expression | undefined {
    const known = this.#hoisted.get(`filled ${name}`);
    if (known !== undefined) return rule(known);
    const own = this.#freeName();
    this.#hoisted.set(`filled ${name}`, own);
    const filled = this.#filled(this.#grammar.rules.get(name) ?? emptyText);
    // A recursive rule is looked up by name before it is complete; a rule of only empty texts refers to no other.
    if (filled === undefined) return undefined;
    this.rules.set(own, filled);
    return rule(own);
  }

  #isNullable(expression: Expression): boolean {
    return isNullable(expression, this.#nullable, this.#work);
  }

  #rule(expression: Expression): Expression {
    if (expression.kind === 'rule') return expression;
    const text = JSON.stringify(expression);
    this.#work.spend(1 + text.length / 32);
    let name = this.#hoisted.get(text);
    if (name === undefined) {
      name = this.#freeName();
      this.#hoisted.set(text, name);
      this.rules.set(name, expression);
    }
    return rule(name);
  }

  #freeName(): string {
    for (;;) {
      const name = `n${++this.#lastNumber}`;
      if (!this.#grammar.rules.has(name)) return name;
    }
  }
}

const isSmall = (expression: Expression): boolean =>
  expression.kind === 'rule' ||
  expression.kind === 'characters' ||
  (expression.kind === 'literal' && expression.text.length === 1);

/** Returns the rules of the grammar that match the empty text. State rules have an empty alternative in that case. */
export function nullableRules(
  grammar: Grammar,
  work: Work,
  states: ReadonlySet<string> = new Set(),
): ReadonlySet<string> {
  const nullable = new Set<string>();
  for (const name of states) {
    const expression = grammar.rules.get(name);
    if (expression?.kind === 'alternatives' && expression.items.some(isEmptyText)) nullable.add(name);
  }
  // A rule mostly names later ones, so one pass from the last to the first finds nearly all.
  const lastFirst = [...grammar.rules].toReversed();
  for (let size = -1; size !== nullable.size;) {
    size = nullable.size;
    for (const [name, expression] of lastFirst) {
      if (!nullable.has(name) && !states.has(name) && isNullable(expression, nullable, work)) nullable.add(name);
    }
  }
  return nullable;
}

export function isNullable(expression: Expression, rules: ReadonlySet<string>, work: Work): boolean {
  work.spend(1);
  switch (expression.kind) {
    case 'literal':
    case 'characters':
      return false;
    case 'sequence':
      return expression.items.every((item) => isNullable(item, rules, work));
    case 'alternatives':
      return expression.items.some((item) => isNullable(item, rules, work));
    case 'repetition':
      return expression.min === 0 || isNullable(expression.item, rules, work);
    case 'rule':
      return rules.has(expression.name);
  }
}
