import type { Automaton } from './automaton.ts';
import type { CodePoints } from './code-points.ts';
import { alternatives, emptyText, repetition, rule, sequence, type Expression } from './grammar.ts';
import type { Work } from './work.ts';

/** Lengths of texts, in characters. */
export interface LengthBounds {
  readonly min: number;
  readonly max: number | undefined;
}
export const anyLength: LengthBounds = { min: 0, max: undefined };

/** Where the generated rules go. */
export interface RulesOf {
  /** Returns the expression of one character of the set, as written in the text. */
  readonly character: (set: CodePoints) => Expression;
  /** Returns the name of state rule `number`, which never changes. */
  readonly nameOf: (number: number) => string;
  /** Adds the rule of a state: alternatives of a character and another state, or nothing; already in normal form. */
  readonly addState: (name: string, expression: Expression) => void;
  /** Adds any other expression as a rule. */
  readonly shared: (expression: Expression) => Expression;
}

/** Returns the expression of one character, no longer than a name, because it is repeated for each state with that edge. */
export const oneCharacter = (expression: Expression, shared: (expression: Expression) => Expression): Expression => {
  const isShort = expression.kind === 'characters' && expression.set.length <= inlineRangesMax;
  return isShort || expression.kind === 'literal' ? expression : shared(expression);
};
const inlineRangesMax = 3;

/**
 * Returns the texts of an automaton within the bounds, as rules that an engine follows without a stack: one per state or, while the length
 * still matters, one per state and number of characters before it. `undefined`: no such text exists.
 */
export function automatonRules(
  automaton: Automaton,
  bounds: LengthBounds,
  rules: RulesOf,
  work: Work,
): Expression | undefined {
  const places = new Places(automaton, bounds, work);
  return places.start === undefined ? undefined : new PlaceWriter(places, automaton, rules, work).written();
}

/** Whether a text of the automaton has a length within the bounds. */
export function hasLength(automaton: Automaton, { min, max }: LengthBounds, work: Work): boolean {
  // A text longer than this passes a state twice, and is still long enough without the part in between.
  const last = Math.min(max ?? Infinity, min + automaton.length);
  let states = new Set(automaton.length === 0 ? [] : [0]);
  for (let length = 0; length <= last && states.size > 0; length++) {
    const next = new Set<number>();
    for (const state of states) {
      const { accepts, edges } = automaton[state]!;
      if (accepts && length >= min) return true;
      work.spend(1 + edges.length);
      for (const { target } of edges) next.add(target);
    }
    states = next;
  }
  return false;
}

/** Returns the lengths of the shortest and the longest text from each state to an accepting one; the longest can be infinite. */
function reaches(automaton: Automaton): readonly { readonly shortest: number; readonly longest: number }[] {
  const before: number[][] = automaton.map(() => []);
  automaton.forEach(({ edges }, from) => edges.forEach(({ target }) => before[target]!.push(from)));
  const shortest = automaton.map(({ accepts }) => (accepts ? 0 : Infinity));
  const near = automaton.flatMap(({ accepts }, state) => (accepts ? [state] : []));
  for (const state of near) {
    for (const from of before[state]!) {
      if (shortest[from] !== Infinity) continue;
      shortest[from] = shortest[state]! + 1;
      near.push(from);
    }
  }
  // From the ends backwards; states on a loop, or before one, are never visited.
  const longest = automaton.map(() => Infinity);
  const open = automaton.map(({ edges }) => edges.length);
  const done = automaton.flatMap(({ edges }, state) => (edges.length === 0 ? [state] : []));
  for (const state of done) {
    longest[state] = Math.max(0, ...automaton[state]!.edges.map(({ target }) => longest[target]! + 1));
    for (const from of before[state]!) if (--open[from]! === 0) done.push(from);
  }
  return automaton.map((_, state) => ({ shortest: shortest[state]!, longest: longest[state]! }));
}

interface Place {
  readonly state: number;
  /** Number of characters before it; `undefined`: every text from here on satisfies the bounds. */
  readonly count: number | undefined;
  readonly accepts: boolean;
  /** The next places, by the edges of the state; `undefined`: no text satisfies the bounds. */
  next: readonly (number | undefined)[];
}

/** Maximum counted repetitions of one state: an engine expands each of them, but shares a chain of states. */
const repetitionsMax = 4;

/** The states of an automaton combined with the number of characters before them, if it matters; dead ends are removed. */
class Places {
  readonly all: Place[] = [];
  readonly start: number | undefined;
  readonly bounds: LengthBounds;
  readonly #automaton: Automaton;
  readonly #reaches: ReturnType<typeof reaches>;
  readonly #numbers = new Map<number, number>();
  /** The places, by state, that only repeat one set of characters. */
  readonly #tails = new Map<number, number[]>();
  readonly #work: Work;

  constructor(automaton: Automaton, bounds: LengthBounds, work: Work) {
    this.#automaton = automaton;
    this.bounds = bounds;
    this.#work = work;
    work.spend(automaton.length);
    this.#reaches = reaches(automaton);
    this.start = automaton.length === 0 ? undefined : this.#place(0, 0);
    for (let at = 0; at < this.all.length; at++) if (!this.#isTail(at)) this.#expand(at);
    for (const [state, places] of this.#tails) if (places.length > repetitionsMax) this.#chain(state, places);
    const isLive = this.#live();
    for (const place of this.all)
      place.next = place.next.map((at) => (at !== undefined && isLive[at] ? at : undefined));
    if (this.start !== undefined && !isLive[this.start]) this.start = undefined;
  }

  /** Whether the place is written as a single counted repetition. */
  repeats({ state, next }: Place): boolean {
    return this.#tails.has(state) && next.length === 0;
  }

  /** Returns the place with this state and count, if the bounds can be satisfied from there. */
  #place(state: number, count: number): number | undefined {
    const { min, max } = this.bounds;
    const { shortest, longest } = this.#reaches[state]!;
    const room = (max ?? Infinity) - count;
    if (room < shortest || longest < min - count) return undefined;
    const isFree = count >= min && room >= longest;
    const key = isFree ? -1 - state : count * this.#automaton.length + state;
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    const accepts = this.#automaton[state]!.accepts && count >= min;
    const number = this.all.push({ state, count: isFree ? undefined : count, accepts, next: [] }) - 1;
    this.#numbers.set(key, number);
    return number;
  }

  #isTail(at: number): boolean {
    const { state } = this.all[at]!;
    const { edges } = this.#automaton[state]!;
    if (edges.length !== 1 || edges[0]!.target !== state) return false;
    const others = this.#tails.get(state);
    if (others === undefined) this.#tails.set(state, [at]);
    else others.push(at);
    return true;
  }

  #expand(at: number): void {
    const place = this.all[at]!;
    const { edges } = this.#automaton[place.state]!;
    this.#work.spend(1 + edges.length);
    // Once the length no longer matters, all counts share one place.
    place.next = edges.map(({ target }) =>
      place.count === undefined ? this.#free(target) : this.#place(target, place.count + 1),
    );
  }

  #free(state: number): number {
    const key = -1 - state;
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    const number = this.all.push({ state, count: undefined, accepts: this.#automaton[state]!.accepts, next: [] }) - 1;
    this.#numbers.set(key, number);
    return number;
  }

  #chain(state: number, places: readonly number[]): void {
    this.#tails.delete(state);
    const first = this.all.length;
    for (const at of places) this.#expand(at);
    for (let at = first; at < this.all.length; at++) this.#expand(at);
  }

  /** Finds the places that lead to an end. A character adds one to the count, so a place comes before its successors. */
  #live(): readonly boolean[] {
    const isLive = this.all.map(
      ({ state, count, accepts }) => accepts || count === undefined || this.#tails.has(state),
    );
    for (let at = this.all.length - 1; at >= 0; at--) {
      if (!isLive[at]) isLive[at] = this.all[at]!.next.some((next) => next !== undefined && isLive[next]);
    }
    return isLive;
  }
}

class PlaceWriter {
  readonly #places: Places;
  readonly #automaton: Automaton;
  readonly #rules: RulesOf;
  readonly #work: Work;
  /** Rule names, in the order in which places are written. */
  readonly #names = new Map<number, string>();
  readonly #characters = new Map<CodePoints, Expression>();

  constructor(places: Places, automaton: Automaton, rules: RulesOf, work: Work) {
    this.#places = places;
    this.#automaton = automaton;
    this.#rules = rules;
    this.#work = work;
  }

  written(): Expression {
    const whole = this.#from(this.#places.start!);
    for (const [at, name] of this.#names) this.#rules.addState(name, this.#state(this.#places.all[at]!));
    return whole;
  }

  /** Returns the expression for the texts from a place on. */
  #from(at: number): Expression {
    const place = this.#places.all[at]!;
    if (this.#places.repeats(place)) return this.#repeated(place);
    if (place.accepts && place.next.every((next) => next === undefined)) return emptyText;
    let name = this.#names.get(at);
    if (name === undefined) {
      name = this.#rules.nameOf(this.#names.size);
      this.#names.set(at, name);
    }
    return rule(name);
  }

  #state({ state, accepts, next }: Place): Expression {
    const { edges } = this.#automaton[state]!;
    this.#work.spend(1 + edges.length);
    const forms = edges.flatMap(({ set }, index) => {
      const target = next[index];
      return target === undefined ? [] : [sequence(this.#character(set), this.#from(target))];
    });
    return alternatives(...forms, ...(accepts ? [emptyText] : []));
  }

  #repeated({ state, count }: Place): Expression {
    const { min, max } = this.#places.bounds;
    const character = this.#character(this.#automaton[state]!.edges[0]!.set);
    if (count === undefined) return this.#rules.shared(repetition(character, 0, undefined));
    return this.#rules.shared(
      repetition(character, Math.max(min - count, 0), max === undefined ? undefined : max - count),
    );
  }

  #character(set: CodePoints): Expression {
    const known = this.#characters.get(set);
    if (known !== undefined) return known;
    const made = this.#rules.character(set);
    this.#characters.set(set, made);
    return made;
  }
}
