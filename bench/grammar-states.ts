import { step, type Program } from '../src/inference/constraints/program.ts';

/** What is left to do after a rule: one continuation on top of others. Equal ones are the same object. */
interface Stack {
  readonly id: number;
  readonly after: number;
  readonly below: Stack | undefined;
  readonly above: Map<number, Stack>;
}

interface Place {
  readonly at: number;
  readonly stack: Stack;
}

/** Everything that can follow one beginning of a text. It never changes, so a beginning can be continued in many ways. */
export interface State {
  readonly places: readonly Place[];
  readonly isComplete: boolean;
  readonly next: Map<number, State>;
}

/** More places than this at once are not followed. */
const placesMax = 20_000;

/**
 * The automaton of a program, made state by state as it is asked for. It is not `Acceptor`: a state here can be continued again and tells
 * which characters it allows.
 */
export class GrammarStates {
  readonly #code: Program;
  readonly #bottom: Stack = { id: 0, after: -1, below: undefined, above: new Map() };
  #stacks = 1;
  readonly #known = new Map<string, State>();
  /** For each step, the fewest characters to the end of its rule; infinite where no text leads there. */
  readonly #costs: Map<number, number>;
  readonly start: State;

  constructor(program: Program) {
    this.#code = program;
    this.#costs = costsOf(program);
    this.start = this.#state([{ at: program[0]!, stack: this.#bottom }]);
  }

  /** Steps that a text can reach and from which no text leads to the end: each is an allowed character that leads nowhere. */
  get deadSteps(): number {
    return [...this.#costs].filter(([at, cost]) => cost === Infinity && this.#code[at] !== step.end).length;
  }

  after(state: State, point: number): State | undefined {
    let next = state.next.get(point);
    if (next === undefined) {
      const places = state.places.filter(({ at }) =>
        this.ranges(at).some(([low, high]) => low <= point && point <= high),
      );
      next = this.#state(places.map(({ at, stack }) => ({ at: at + 2, stack })));
      state.next.set(point, next);
    }
    return next.places.length > 0 || next.isComplete ? next : undefined;
  }

  /** Whether a character between these two can follow. */
  allows(state: State, first: number, last: number): boolean {
    return state.places.some(({ at }) => this.ranges(at).some(([low, high]) => low <= last && first <= high));
  }

  /** One way to end the text: a random one for the first `free` characters, then the shortest. */
  finish(from: State, random: () => number, free: number): string {
    let state = from;
    let text = '';
    for (let count = 0; !state.isComplete || (count < free && state.places.length > 0); count++) {
      if (count > 20_000) throw new Error('the shortest way does not end');
      const { places } = state;
      const place =
        count < free
          ? places[Math.floor(random() * places.length)]!
          : places.reduce((best, each) => (this.#cost(each) < this.#cost(best) ? each : best));
      const point = this.#character(place.at, random);
      text += String.fromCodePoint(point);
      state = this.after(state, point)!;
    }
    return text;
  }

  ranges(at: number): readonly (readonly [number, number])[] {
    const code = this.#code;
    const operand = code[at + 1]!;
    if (code[at] === step.character) return [[operand, operand]];
    return Array.from({ length: code[operand]! }, (_, index) => {
      return [code[operand + 1 + 2 * index]!, code[operand + 2 + 2 * index]!] as const;
    });
  }

  #character(at: number, random: () => number): number {
    const ranges = this.ranges(at);
    const letter = 97 + Math.floor(random() * 26);
    if (random() < 0.8 && ranges.some(([low, high]) => low <= letter && letter <= high)) return letter;
    const [low, high] = ranges[Math.floor(random() * ranges.length)]!;
    return low + Math.floor(random() * Math.min(high - low + 1, 60));
  }

  #cost({ at, stack }: Place): number {
    let sum = this.#costs.get(at) ?? Infinity;
    for (let each: Stack | undefined = stack; each?.below !== undefined; each = each.below) {
      sum += this.#costs.get(each.after) ?? Infinity;
    }
    return sum;
  }

  /** All places before a character that can be reached from these without one. */
  #state(from: readonly Place[]): State {
    const code = this.#code;
    const todo = [...from];
    const seen = new Set<string>();
    const places: Place[] = [];
    let isComplete = false;
    for (let place = todo.pop(); place !== undefined; place = todo.pop()) {
      const { at, stack } = place;
      const key = `${at} ${stack.id}`;
      if (seen.has(key)) continue;
      seen.add(key);
      if (seen.size > placesMax) throw new RangeError('too many places');
      if (code[at] === step.character || code[at] === step.set) places.push(place);
      else if (code[at] === step.jump) todo.push({ at: code[at + 1]!, stack });
      else if (code[at] === step.ways) {
        for (let way = 1; way <= code[at + 1]!; way++) todo.push({ at: code[at + 1 + way]!, stack });
      } else if (code[at] === step.rule) {
        todo.push({ at: code[at + 1]!, stack: this.#ends(at + 2) ? stack : this.#pushed(stack, at + 2) });
      } else if (stack.below === undefined) isComplete = true;
      else todo.push({ at: stack.after, stack: stack.below });
    }
    const name = `${isComplete} ${places
      .map(({ at, stack }) => `${at}.${stack.id}`)
      .sort()
      .join(' ')}`;
    let state = this.#known.get(name);
    if (state === undefined) this.#known.set(name, (state = { places, isComplete, next: new Map() }));
    return state;
  }

  #ends(from: number): boolean {
    let at = from;
    while (this.#code[at] === step.jump) at = this.#code[at + 1]!;
    return this.#code[at] === step.end;
  }

  #pushed(below: Stack, after: number): Stack {
    let stack = below.above.get(after);
    if (stack === undefined) below.above.set(after, (stack = { id: this.#stacks++, after, below, above: new Map() }));
    return stack;
  }
}

/** The costs of all steps that can be reached from the root. */
function costsOf(code: Program): Map<number, number> {
  const reached = new Set<number>();
  const todo = [code[0]!];
  for (let at = todo.pop(); at !== undefined; at = todo.pop()) {
    if (reached.has(at)) continue;
    reached.add(at);
    todo.push(...following(code, at));
  }
  const costs = new Map([...reached].sort((left, right) => right - left).map((at) => [at, Infinity]));
  const costAt = (at: number): number => costs.get(at)!;
  for (let changed = true; changed;) {
    changed = false;
    for (const [at, before] of costs) {
      const cost = costOf(code, at, costAt);
      if (cost >= before) continue;
      costs.set(at, cost);
      changed = true;
    }
  }
  return costs;
}

function costOf(code: Program, at: number, costAt: (at: number) => number): number {
  if (code[at] === step.end) return 0;
  if (code[at] === step.character) return 1 + costAt(at + 2);
  if (code[at] === step.set) return code[code[at + 1]!] === 0 ? Infinity : 1 + costAt(at + 2);
  if (code[at] === step.rule) return costAt(code[at + 1]!) + costAt(at + 2);
  return Math.min(...following(code, at).map(costAt));
}

function following(code: Program, at: number): readonly number[] {
  if (code[at] === step.end) return [];
  if (code[at] === step.jump) return [code[at + 1]!];
  if (code[at] === step.ways) return [...code.subarray(at + 2, at + 2 + code[at + 1]!)];
  return code[at] === step.rule ? [code[at + 1]!, at + 2] : [at + 2];
}
