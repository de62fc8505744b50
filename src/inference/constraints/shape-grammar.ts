import { ApiError } from '../../platform/errors.ts';
import { anyTextBut, combined, isEmptyAutomaton, textsOf, type Automaton } from './automaton.ts';
import { anyLength, automatonRules, oneCharacter, type LengthBounds } from './automaton-rules.ts';
import {
  alternatives,
  emptyText,
  grammarRulesMax,
  literal,
  optional,
  repetition,
  rule,
  sequence,
  type Expression,
} from './grammar.ts';
import { bracketed, escaped, jsonValue, member, quoted, whiteSpace, type JsonRule } from './json-text.ts';
import { decimalNumbers, everyNumber, wholeNumbers } from './numbers.ts';
import { shortPlace } from './schema-refs.ts';
import { bothShapes, itemsMax, memberShape, patternsAutomaton, stringAutomaton } from './shape-intersection.ts';
import { declaredNames, hasOnlyPrefix, namesOnlyDeclared, writtenShape } from './shape-overlap.ts';
import {
  anything,
  type ArrayBranch,
  type Branch,
  type NumberBranch,
  type ObjectBranch,
  type Shape,
  type StringBranch,
} from './shape.ts';
import { MemberList, type Member } from './member-list.ts';
import { regexForm } from './regex-form.ts';
import { withLength } from './string-length.ts';
import type { Work } from './work.ts';

const json = (name: JsonRule): Expression => rule(name);
const comma = sequence(literal(','), whiteSpace);

/** Writes shapes as rules. `undefined` means that no value can be written. */
export class ShapeWriter {
  readonly rules = new Map<string, Expression>();
  /** The names of the rules that are states of automata. */
  readonly states = new Set<string>();
  readonly #work: Work;
  /** Names of rules by their content, so that each is written once. */
  readonly #names = new Map<string, string>();
  readonly #shapes = new Map<Shape, Expression | undefined>();
  /** Numbers of patterns, and the expressions of strings by their pattern numbers and lengths. */
  readonly #patterns = new Map<Expression, number>();
  readonly #strings = new Map<string, Expression>();

  constructor(work: Work) {
    this.#work = work;
  }

  root(shape: Shape): Expression | undefined {
    return this.#shape(shape);
  }

  /** Moves the expression into a rule, unless it is as short as a name. */
  #shared(expression: Expression): Expression {
    if (expression.kind === 'rule' || (expression.kind === 'literal' && expression.text.length < 8)) return expression;
    const text = JSON.stringify(expression);
    this.#work.spend(1 + text.length / 32);
    let name = this.#names.get(text);
    if (name === undefined) {
      name = this.#freeName();
      this.#names.set(text, name);
      this.#add(name, expression);
    }
    return rule(name);
  }

  #freeName(): string {
    return `v${this.rules.size}`;
  }

  #add(name: string, expression: Expression): void {
    this.rules.set(name, expression);
    if (this.rules.size <= grammarRulesMax) return;
    const { at } = this.#work;
    throw new ApiError('unsupported_value', `'${at}' needs more than ${grammarRulesMax} grammar rules.`, { param: at });
  }

  #shape(shape: Shape): Expression | undefined {
    if (shape === anything) return json('json-value');
    if (this.#shapes.has(shape)) return this.#shapes.get(shape);
    const written = this.#union(shape);
    this.#shapes.set(shape, written);
    return written;
  }

  #union(shape: Shape): Expression | undefined {
    const forms = writtenShape(shape).flatMap((branch) => this.#branch(branch) ?? []);
    return forms.length === 0 ? undefined : alternatives(...new Set(forms));
  }

  #branch(branch: Branch): Expression | undefined {
    this.#work.spend(branch.type === 'value' ? 1 : 5);
    switch (branch.type) {
      case 'null':
        return literal('null');
      case 'boolean':
        return json('json-boolean');
      case 'value':
        return jsonValue(branch.value);
      case 'number':
        return this.#number(branch);
      case 'string':
        return this.#string(branch);
      case 'array':
        return this.#array(branch);
      case 'object':
        return this.#object(branch);
    }
  }

  #number({ whole, range }: NumberBranch): Expression | undefined {
    const isOpen = range.min === everyNumber.min && range.max === everyNumber.max;
    if (isOpen) return json(whole ? 'json-integer' : 'json-number');
    this.#work.spend(100);
    const numbers = whole ? wholeNumbers(range) : decimalNumbers(range);
    return numbers === undefined ? undefined : this.#shared(numbers);
  }

  #string(branch: StringBranch): Expression | undefined {
    const { patterns, min, max } = branch;
    if (patterns.length === 0) {
      if (min === 0 && max === undefined) return json('json-string');
      return sequence(literal('"'), this.#shared(repetition(json('json-char'), min, max)), literal('"'));
    }
    const key = [...patterns.map((pattern) => this.#numberOf(pattern)), min, max].join(' ');
    const known = this.#strings.get(key);
    if (known !== undefined) return known;
    const written = this.#patterned(branch);
    if (written !== undefined) this.#strings.set(key, written);
    return written;
  }

  #numberOf(pattern: Expression): number {
    const known = this.#patterns.get(pattern) ?? this.#patterns.size;
    this.#patterns.set(pattern, known);
    return known;
  }

  #patterned(branch: StringBranch): Expression | undefined {
    const { patterns, min, max } = branch;
    const [only] = patterns;
    const simple = patterns.length === 1 && only !== undefined ? withLength(only, min, max) : undefined;
    if (simple !== undefined) {
      const form = regexForm(simple, this.#work);
      if (form.type === 'automaton') return this.#quotedAutomaton(form.automaton, anyLength);
      this.#work.spend(JSON.stringify(simple).length / 32);
      return this.#shared(quoted(simple));
    }
    return this.#quotedAutomaton(patternsAutomaton(branch, this.#work), branch);
  }

  #quotedAutomaton(automaton: Automaton, bounds: LengthBounds): Expression | undefined {
    const prefix = `${this.#freeName()}s`;
    const shared = (expression: Expression): Expression => this.#shared(expression);
    const content = automatonRules(
      automaton,
      bounds,
      {
        character: (set) => oneCharacter(escaped({ kind: 'characters', set }), shared),
        nameOf: (number) => `${prefix}${number}`,
        addState: (name, expression) => {
          this.#add(name, expression);
          this.states.add(name);
        },
        shared,
      },
      this.#work,
    );
    return content === undefined ? undefined : sequence(literal('"'), content, literal('"'));
  }

  #array(branch: ArrayBranch): Expression | undefined {
    const max = itemsMax(branch);
    const prefix = branch.prefix.slice(0, max);
    const isClosed = hasOnlyPrefix(branch) || branch.rest?.length === 0;
    const rest = isClosed ? undefined : this.#item(branch.rest ?? anything);
    const last = rest === undefined ? Math.min(max ?? Infinity, prefix.length) : (max ?? Infinity);
    // A tuple is written in full unless the schema says how short it may be.
    const min = branch.min ?? prefix.length;
    if (min > last) return undefined;
    const items = prefix.map((shape) => this.#item(shape));
    // From the end: what follows once that many items are written. An item that cannot be written ends the array.
    let tail: Expression | undefined = rest === undefined ? emptyText : this.#moreItems(rest, items.length, min, max);
    for (let index = items.length - 1; index >= 0; index--) {
      const item = items[index];
      const canEnd = index >= min;
      const more: Expression | undefined =
        item === undefined || tail === undefined ? undefined : sequence(...(index > 0 ? [comma] : []), item, tail);
      if (more === undefined) tail = canEnd ? emptyText : undefined;
      else tail = canEnd ? optional(more) : more;
      if (tail !== undefined && index % 8 === 7) tail = this.#shared(tail);
    }
    if (tail === undefined) return undefined;
    return this.#bracketed('[', tail, ']', min === 0);
  }

  #item(shape: Shape): Expression | undefined {
    const expression = this.#shape(shape);
    return expression === undefined ? undefined : this.#shared(expression);
  }

  /** Writes items after `before` others, until there are `min` to `max` in total. */
  #moreItems(item: Expression, before: number, min: number, max: number | undefined): Expression | undefined {
    const [low, high] = [Math.max(min - before, 0), max === undefined ? undefined : max - before];
    if (high !== undefined && high < low) return undefined;
    return this.#listed(item, low, high, before > 0);
  }

  #listed(item: Expression, min: number, max: number | undefined, follows: boolean): Expression {
    if (max === 0) return emptyText;
    const another = sequence(comma, item);
    if (follows) return repetition(another, min, max);
    const more = repetition(another, Math.max(min - 1, 0), max === undefined ? undefined : max - 1);
    return sequence(item, more);
  }

  /** Writes brackets around `inner`, without white space between them if there is nothing inside. */
  #bracketed(open: string, inner: Expression, close: string, canBeEmpty: boolean): Expression {
    const whole = bracketed(
      open,
      inner.kind === 'repetition' && inner.min === 0 && inner.max === 1 ? inner.item : inner,
      close,
    );
    return this.#shared(canBeEmpty ? alternatives(literal(open + close), whole) : whole);
  }

  #object(branch: ObjectBranch): Expression | undefined {
    const isPlain = branch.layers.length + branch.required.length + branch.names.length === 0;
    if (isPlain && branch.min === 0 && branch.max === undefined) return json('json-object');
    const required = new Set(branch.required);
    const members: Member[] = [];
    const declared = declaredNames(branch);
    for (const name of declared) {
      this.#work.spend(5);
      const value = this.#shape(memberShape(branch, name, this.#work));
      const isRequired = required.has(name);
      if (value === undefined && isRequired) return undefined;
      if (value !== undefined) members.push(this.#member(name, value, isRequired));
    }
    const others = namesOnlyDeclared(branch) ? [] : this.#otherMembers(branch, declared);
    const isCounted = branch.min > required.size + 1;
    const [few, open] = isCounted ? this.#fewNames(others) : [[], others];
    for (const [name, value] of few) members.push(this.#member(name, value, false));
    const bounds = { min: branch.min, max: branch.max };
    const list = new MemberList(members, this.#anyOther(open), bounds, this.#work, (each) => this.#shared(each));
    const written = list.written();
    if (written === undefined && list.lacksNames) return this.#refuseMin(branch.minPlace);
    return written;
  }

  #refuseMin(place: string): never {
    const { at } = this.#work;
    const problem =
      "'minProperties' needs several members whose names the schema leaves open, and one could be written twice";
    throw new ApiError('unsupported_value', `'${at}' at ${shortPlace(place)}: ${problem}; list them in 'properties'.`, {
      param: at,
    });
  }

  #member(name: string, value: Expression, isRequired: boolean): Member {
    return { pair: this.#shared(member(literal(JSON.stringify(name)), this.#shared(value))), isRequired };
  }

  /** Separates the groups with few names, each of which can be listed, from the other groups. */
  #fewNames(groups: readonly OtherMembers[]): [few: (readonly [string, Expression])[], open: OtherMembers[]] {
    const few: (readonly [string, Expression])[] = [];
    const open = groups.filter(({ names, value }) => {
      const texts = names === undefined ? undefined : textsOf(names, { max: 256, lengthMax: 128 }, this.#work);
      for (const text of texts ?? []) few.push([text, value]);
      return texts === undefined;
    });
    return [few.sort(([left], [right]) => (left < right ? -1 : 1)), open];
  }

  #anyOther(groups: readonly OtherMembers[]): Expression | undefined {
    const forms = groups.flatMap(({ names, value }) => {
      const name = names === undefined ? json('json-string') : this.#quotedAutomaton(names, anyLength);
      return name === undefined ? [] : [member(name, this.#shared(value))];
    });
    return forms.length === 0 ? undefined : this.#shared(alternatives(...forms));
  }

  /** Returns the undeclared members, in groups of different names. */
  #otherMembers(branch: ObjectBranch, declared: readonly string[]): readonly OtherMembers[] {
    const patterns = [...new Set(branch.layers.flatMap((layer) => layer.patterns.map(({ names }) => names)))];
    const { at } = this.#work;
    if (patterns.length > patternPropertiesMax) {
      throw new ApiError(
        'unsupported_value',
        `'${at}' has an object with more than ${patternPropertiesMax} patternProperties.`,
        { param: at },
      );
    }
    const saysOfOthers =
      branch.layers.every((layer) => layer.patterns.length === 0) ||
      branch.layers.some((layer) => layer.additional !== undefined);
    if (patterns.length === 0 && branch.names.length === 0 && declared.length === 0) {
      const value = this.#shape(this.#additional(branch, new Set()));
      return value === undefined ? [] : [{ names: undefined, value }];
    }
    // Names are grouped by the patterns that they match; each group has its own values.
    let free = anyTextBut(declared, this.#work);
    for (const names of branch.names) {
      free = combined(free, stringAutomaton(names, this.#work), 'and', this.#work);
    }
    let groups: readonly { readonly names: Automaton; readonly matched: ReadonlySet<Automaton> }[] = [
      { names: free, matched: new Set() },
    ];
    for (const [index, pattern] of patterns.entries()) {
      const isLast = index === patterns.length - 1;
      groups = groups.flatMap(({ names, matched }) => {
        const both = combined(names, pattern, 'and', this.#work);
        const found = [{ names: both, matched: new Set([...matched, pattern]) }];
        // Names that match no pattern do not matter if no other members are allowed.
        if (isLast && matched.size === 0 && !saysOfOthers) return found;
        return [...found, { names: combined(names, pattern, 'without', this.#work), matched }];
      });
    }
    return groups.flatMap(({ names, matched }) => {
      if (isEmptyAutomaton(names) || (matched.size === 0 && !saysOfOthers)) return [];
      const value = this.#shape(this.#additional(branch, matched));
      return value === undefined ? [] : [{ names, value }];
    });
  }

  /** Returns the values of undeclared members that match these patterns. */
  #additional(branch: ObjectBranch, matched: ReadonlySet<Automaton>): Shape {
    return branch.layers.reduce<Shape>((shape, layer) => {
      const own = layer.patterns.filter(({ names }) => matched.has(names));
      if (own.length === 0) return bothShapes(shape, layer.additional ?? anything, this.#work);
      return own.reduce((sum, pattern) => bothShapes(sum, pattern.shape, this.#work), shape);
    }, anything);
  }
}

/** Each pattern can double the groups of names. */
const patternPropertiesMax = 5;

interface OtherMembers {
  /** `undefined`: any name. */
  readonly names: Automaton | undefined;
  readonly value: Expression;
}
