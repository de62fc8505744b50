import { ApiError } from '../../platform/errors.ts';
import { codePoints, type CodePointRange, type CodePoints } from './code-points.ts';

/**
 * The common form of every constraint: a grammar over characters, whether it came from JSON Schema, a regex or EBNF. It is plain data;
 * `printGbnf` prints it for llama.cpp, and `composeGrammar` embeds grammars in a larger one.
 */
export interface Grammar {
  /** The name of the rule that the whole text must match; a key of `rules`. */
  readonly root: string;
  /** In printing order. Every rule that an expression refers to is included. */
  readonly rules: ReadonlyMap<string, Expression>;
}

/** Rule names consist of letters, digits and hyphens, as llama.cpp requires. */
export type Expression =
  | { readonly kind: 'literal'; readonly text: string }
  /** One character of the set; an empty set matches nothing. */
  | { readonly kind: 'characters'; readonly set: CodePoints }
  /** A sequence without items matches the empty text. */
  | { readonly kind: 'sequence'; readonly items: readonly Expression[] }
  | { readonly kind: 'alternatives'; readonly items: readonly Expression[] }
  /** `max` undefined: unbounded. */
  | { readonly kind: 'repetition'; readonly item: Expression; readonly min: number; readonly max: number | undefined }
  | { readonly kind: 'rule'; readonly name: string };

export const emptyText: Expression = { kind: 'sequence', items: [] };
export const literal = (text: string): Expression => (text === '' ? emptyText : { kind: 'literal', text });
export const rule = (name: string): Expression => ({ kind: 'rule', name });
export const characters = (...ranges: readonly (CodePointRange | string)[]): Expression => ({
  kind: 'characters',
  set: codePoints(ranges.map((range) => (typeof range === 'string' ? spelled(range) : range))),
});

/** Parses a range as people write it: `a-z`, or one character. */
const spelled = (range: string): CodePointRange => {
  const [first = '', hyphen, last] = [...range];
  if (last === undefined || hyphen !== '-') return [first.codePointAt(0) ?? 0, first.codePointAt(0) ?? 0];
  return [first.codePointAt(0) ?? 0, last.codePointAt(0) ?? 0];
};

/** A concatenation; adjacent literals are joined. */
export function sequence(...items: readonly Expression[]): Expression {
  const flat: Expression[] = [];
  for (const item of items.flatMap((each) => (each.kind === 'sequence' ? each.items : [each]))) {
    const before = flat.at(-1);
    if (item.kind === 'literal' && before?.kind === 'literal') flat[flat.length - 1] = literal(before.text + item.text);
    else flat.push(item);
  }
  const [only] = flat;
  return flat.length === 1 && only !== undefined ? only : { kind: 'sequence', items: flat };
}

/** A choice. Without any items it matches nothing, not even the empty text. */
export function alternatives(...items: readonly Expression[]): Expression {
  const flat = items.flatMap((each) => (each.kind === 'alternatives' ? each.items : [each]));
  const [only] = flat;
  return flat.length === 1 && only !== undefined ? only : { kind: 'alternatives', items: flat };
}

export const optional = (item: Expression): Expression => repetition(item, 0, 1);

export function repetition(item: Expression, min: number, max: number | undefined): Expression {
  if (max === 0 || isEmptyText(item)) return emptyText;
  if (min === 1 && max === 1) return item;
  return { kind: 'repetition', item, min, max };
}

export const isEmptyText = (expression: Expression): boolean =>
  expression.kind === 'sequence' && expression.items.length === 0;

/** Whether two expressions are textually identical; rules are compared by name. */
export const sameExpression = (left: Expression, right: Expression): boolean =>
  left === right || JSON.stringify(left) === JSON.stringify(right);

/**
 * Makes a grammar from others. `build` gets a function that embeds a grammar and returns the expression that refers to it; the whole text
 * must match the result of `build`. Rules are renamed if names collide.
 */
export function composeGrammar(build: (embed: (grammar: Grammar) => Expression) => Expression): Grammar {
  const rules = new Map<string, Expression>([['root', emptyText]]);
  // Where the search for a free name continues: starting over each time would take seconds for many grammars of many rules.
  const numbers = new Map<string, number>();
  const embed = (grammar: Grammar): Expression => {
    const names = new Map<string, string>();
    const used = new Set(grammar.rules.keys());
    const freeName = (base: string): string => {
      for (let number = numbers.get(base) ?? 2; ; number++) {
        const name = `${base}-${number}`;
        if (rules.has(name) || used.has(name)) continue;
        numbers.set(base, number + 1);
        used.add(name);
        return name;
      }
    };
    for (const name of grammar.rules.keys()) names.set(name, name === 'root' ? freeName('part') : name);
    // A rule keeps its name if the same rule already exists, as with the common rules of JSON; renaming one changes those that refer to it,
    // so this repeats until nothing changes.
    for (let changed = true; changed;) {
      changed = false;
      for (const [name, expression] of grammar.rules) {
        const present = names.get(name) === name ? rules.get(name) : undefined;
        if (present === undefined || sameExpression(present, renamed(expression, names))) continue;
        names.set(name, freeName(name));
        changed = true;
      }
    }
    for (const [name, expression] of grammar.rules) {
      rules.set(names.get(name) ?? name, renamed(expression, names));
    }
    return rule(names.get(grammar.root) ?? grammar.root);
  };
  rules.set('root', build(embed));
  return { root: 'root', rules };
}

/** Renames the rules in an expression. */
export function renamed(expression: Expression, names: ReadonlyMap<string, string>): Expression {
  switch (expression.kind) {
    case 'literal':
    case 'characters':
      return expression;
    case 'sequence':
    case 'alternatives':
      return { kind: expression.kind, items: expression.items.map((item) => renamed(item, names)) };
    case 'repetition':
      return { ...expression, item: renamed(expression.item, names) };
    case 'rule':
      return rule(names.get(expression.name) ?? expression.name);
  }
}

/** Prints the grammar for llama.cpp, and for engines that have adopted its notation. The root rule is printed as `root`. */
export function printGbnf(grammar: Grammar): string {
  const lines = [`root ::= ${printed(grammar.rules.get(grammar.root) ?? emptyText, 'rule')}`];
  if (grammar.root !== 'root') throw new Error('the root rule of a grammar is named root');
  for (const [name, expression] of grammar.rules) {
    if (name !== grammar.root) lines.push(`${name} ::= ${printed(expression, 'rule')}`);
  }
  return `${lines.join('\n')}\n`;
}

/** The context of an expression, which decides whether it needs parentheses. */
type Place = 'rule' | 'sequence' | 'repetition';

function printed(expression: Expression, place: Place): string {
  switch (expression.kind) {
    case 'literal': {
      const text = `"${[...expression.text].map(escapedInLiteral).join('')}"`;
      return place === 'repetition' && [...expression.text].length > 1 ? `(${text})` : text;
    }
    case 'characters':
      // llama.cpp has no empty class; a grammar that matches nothing is refused before it is printed.
      if (expression.set.length === 0) throw new Error('an empty set of characters cannot be printed');
      return `[${expression.set.map(rangeText).join('')}]`;
    case 'sequence': {
      if (expression.items.length === 0) return '""';
      const text = expression.items.map((item) => printed(item, 'sequence')).join(' ');
      return place === 'repetition' ? `(${text})` : text;
    }
    case 'alternatives': {
      if (expression.items.length === 0) throw new Error('alternatives without any cannot be printed');
      const text = expression.items.map((item) => printed(item, 'rule')).join(' | ');
      return place === 'rule' ? text : `(${text})`;
    }
    case 'repetition': {
      const text = printed(expression.item, 'repetition') + quantifier(expression.min, expression.max);
      return place === 'repetition' ? `(${text})` : text;
    }
    case 'rule':
      return expression.name;
  }
}

function quantifier(min: number, max: number | undefined): string {
  if (max === undefined) return min === 0 ? '*' : min === 1 ? '+' : `{${min},}`;
  if (min === 0 && max === 1) return '?';
  return min === max ? `{${min}}` : `{${min},${max}}`;
}

function escapedInLiteral(character: string): string {
  if (character === '"') return '\\"';
  if (character === '\\') return '\\\\';
  return escapedControl(character.codePointAt(0) ?? 0) ?? character;
}

function rangeText([first, last]: CodePointRange): string {
  if (first === last) return inClass(first);
  return `${inClass(first)}-${inClass(last)}`;
}

/** Characters that stand for themselves in a class in every engine; any that one of them could read differently is written as a number. */
const harmlessInClass = /^[A-Za-z0-9 _.,:;!?@#$%&*+/=<>~()]$/;

function inClass(point: number): string {
  const character = String.fromCodePoint(point);
  return escapedControl(point) ?? (harmlessInClass.test(character) ? character : codePointEscape(point));
}

function escapedControl(point: number): string | undefined {
  if (point === 10) return '\\n';
  if (point === 13) return '\\r';
  if (point === 9) return '\\t';
  return point < 32 || point === 127 ? codePointEscape(point) : undefined;
}

/**
 * Never prints `\xHH`: llama.cpp takes two digits there, xgrammar as many as follow, so `[\x2Fa]` would be one character, U+02FA. Four
 * digits after `\u`, and eight after `\U`, mean the same for both.
 */
function codePointEscape(point: number): string {
  const digits = (count: number): string => point.toString(16).toUpperCase().padStart(count, '0');
  return point <= 0xffff ? `\\u${digits(4)}` : `\\U${digits(8)}`;
}

/** The cost of a grammar for engines: llama.cpp expands a counted repetition, into one element or rule per count. */
function grammarSize(grammar: Grammar): number {
  let size = 0;
  for (const expression of grammar.rules.values()) size += 1 + expressionSize(expression);
  return size;
}

function expressionSize(expression: Expression): number {
  switch (expression.kind) {
    case 'literal':
      return [...expression.text].length;
    case 'characters':
      return expression.set.length;
    case 'sequence':
    case 'alternatives':
      return expression.items.reduce((sum, item) => sum + expressionSize(item), 1);
    case 'repetition': {
      const times = expression.max ?? expression.min + 1;
      const { item } = expression;
      // A group becomes a separate rule, and each repetition refers to it.
      return item.kind === 'characters' ? item.set.length * times : expressionSize(item) + 2 * times;
    }
    case 'rule':
      return 1;
  }
}

/** Refuses a grammar that an engine could not compile quickly. Throws `unsupported_value` 400 (contracts decision 13). */
export function checkGrammarSize(grammar: Grammar, at: string): void {
  if (grammar.rules.size > grammarRulesMax) {
    throw new ApiError('unsupported_value', `'${at}' needs more than ${grammarRulesMax} grammar rules.`, { param: at });
  }
  if (grammarSize(grammar) > grammarElementsMax) {
    throw new ApiError('unsupported_value', `'${at}' needs a grammar of more than ${grammarElementsMax} elements.`, {
      param: at,
    });
  }
}

export const grammarRulesMax = 5_000;
const grammarElementsMax = 100_000;
