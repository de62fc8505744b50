import {
  anyCodePoint,
  codePoints,
  complement,
  holds,
  onePoint,
  union,
  type CodePointRange,
  type CodePoints,
} from './code-points.ts';
import type { Expression } from './grammar.ts';
import type { Work } from './work.ts';

/**
 * A deterministic automaton over characters: what an expression without rules matches, in a form that can be intersected and subtracted.
 * State 0 is the start; a character without an edge is refused. From every state, acceptance is still possible.
 */
export type Automaton = readonly State[];

interface State {
  readonly accepts: boolean;
  /** The sets of one state do not overlap. */
  readonly edges: readonly Listener[];
}
interface Listener {
  readonly set: CodePoints;
  readonly target: number;
}

export const anyText: Automaton = [{ accepts: true, edges: [{ set: anyCodePoint, target: 0 }] }];

/** Whether it matches nothing. */
export const isEmptyAutomaton = (automaton: Automaton): boolean => automaton.length === 0;

export function accepts(automaton: Automaton, text: string): boolean {
  let state = automaton[0];
  for (const character of text) {
    const point = character.codePointAt(0) ?? 0;
    const listener = state?.edges.find(({ set }) => holds(set, point));
    state = listener === undefined ? undefined : automaton[listener.target];
    if (state === undefined) return false;
  }
  return state?.accepts ?? false;
}

/** Returns all texts, sorted; `undefined`: there are more than `max`, or one is longer than `lengthMax`. */
export function textsOf(
  automaton: Automaton,
  { max, lengthMax }: { readonly max: number; readonly lengthMax: number },
  work: Work,
): readonly string[] | undefined {
  const found: string[] = [];
  // From every state, acceptance is still possible, so each branch ends in a text that counts, or exceeds the length.
  const hasAll = (state: number, text: string, length: number): boolean => {
    work.spend(1);
    const { accepts: isText, edges } = automaton[state] ?? { accepts: false, edges: [] };
    if (isText && found.push(text) > max) return false;
    if (edges.length > 0 && length === lengthMax) return false;
    for (const { set, target } of edges) {
      for (const [first, last] of set) {
        for (let point = first; point <= last; point++) {
          if (!hasAll(target, text + String.fromCodePoint(point), length + 1)) return false;
        }
      }
    }
    return true;
  };
  return hasAll(0, '', 0) ? found.sort() : undefined;
}

/** Accepts every text except these. Texts with unpaired surrogates do not matter, since a model never writes them. */
export function anyTextBut(texts: Iterable<string>, work: Work): Automaton {
  interface Node {
    isText: boolean;
    readonly next: Map<string, number>;
  }
  const nodes: Node[] = [{ isText: false, next: new Map() }];
  for (const text of texts) {
    if (!text.isWellFormed()) continue;
    let at = 0;
    for (const character of text) {
      work.spend(1);
      const next: number = nodes[at]?.next.get(character) ?? nodes.push({ isText: false, next: new Map() }) - 1;
      nodes[at]?.next.set(character, next);
      at = next;
    }
    const last = nodes[at];
    if (last !== undefined) last.isText = true;
  }
  if (nodes.length === 1 && !nodes[0]!.isText) return anyText;
  const elsewhere = nodes.length;
  const states = nodes.map(({ isText, next }) => {
    work.spend(next.size);
    const edges = Array.from(next, ([character, target]) => ({ set: codePoints([onePoint(character)]), target }));
    const others = complement(codePoints(Array.from(next.keys(), onePoint)));
    return { accepts: !isText, edges: [...edges, { set: others, target: elsewhere }] };
  });
  return [...states, { accepts: true, edges: [{ set: anyCodePoint, target: elsewhere }] }];
}

/** Returns the texts of `left` that `right` also matches or, with `without`, does not match. */
export function combined(left: Automaton, right: Automaton, how: 'and' | 'without', work: Work): Automaton {
  if (left === anyText && how === 'and') return right;
  if (right.length === 0 && how === 'without') return left;
  return explored(
    [0, right.length === 0 ? -1 : 0] as readonly [number, number],
    ([a, b]) => `${a} ${b}`,
    ([a, b]) => {
      const [state, other] = [left[a], right[b]];
      if (state === undefined) return { accepts: false, edges: [] };
      const inRight = other?.accepts ?? false;
      const edges: { set: CodePoints; target: readonly [number, number] }[] = [];
      for (const { parts, set } of overlaid([state.edges, other?.edges ?? []], work)) {
        const [target, otherTarget] = parts;
        if (target === undefined || (how === 'and' && otherTarget === undefined)) continue;
        edges.push({ set, target: [target, otherTarget ?? -1] });
      }
      return { accepts: state.accepts && inRight === (how === 'and'), edges };
    },
    work,
  );
}

/** Returns the texts whose length is between `min` and `max` characters. */
export function ofLength(automaton: Automaton, min: number, max: number | undefined, work: Work): Automaton {
  const last = max ?? min;
  return explored(
    [0, 0] as readonly [number, number],
    ([state, length]) => `${state} ${length}`,
    ([state, length]) => {
      const { accepts: accepting, edges } = automaton[state] ?? { accepts: false, edges: [] };
      const full = length === last;
      return {
        accepts: accepting && length >= min,
        edges:
          full && max !== undefined
            ? []
            : edges.map(({ set, target }) => ({ set, target: [target, full ? length : length + 1] as const })),
      };
    },
    work,
  );
}

/** Converts an expression without rules into an automaton, once. */
export const automatonOf = (expression: Expression, work: Work): Automaton =>
  subsetAutomaton(expression, work).automaton;

/** `width`: how many positions of the expression a text can be at simultaneously; infinite if that was not counted. */
export const subsetAutomaton = (expression: Expression, work: Work): SubsetAutomaton =>
  work.once(expression, () => subsets(expression, work));

interface SubsetAutomaton {
  readonly automaton: Automaton;
  readonly width: number;
}

/** The subset construction over Thompson's states. */
function subsets(expression: Expression, work: Work): SubsetAutomaton {
  const nodes: ThompsonNode[] = [];
  const end = nodes.push({ silent: [], edges: [] }) - 1;
  const start = thompson(expression, end, nodes, work);
  let width = 0;
  const closure = (from: Iterable<number>): readonly number[] => {
    const reached = new Set<number>(from);
    for (const node of reached) {
      // Any text may follow here, so other positions no longer matter.
      if (nodes[node]?.isOpen === true && reached.size > 3) {
        width = Infinity;
        return closure([node]);
      }
      work.spend(1);
      for (const next of nodes[node]?.silent ?? []) reached.add(next);
    }
    return [...reached].sort((a, b) => a - b);
  };
  const automaton = explored(
    closure([start]),
    (set) => set.join(' '),
    (set) => {
      const edges = set.flatMap((node) => nodes[node]?.edges ?? []);
      width = Math.max(width, edges.length);
      return {
        accepts: set.includes(end),
        edges: overlaidSets(edges, work).map(({ set: points, targets }) => ({ set: points, target: closure(targets) })),
      };
    },
    work,
  );
  return { automaton, width };
}

interface ThompsonNode {
  readonly silent: number[];
  /** Whether every text leads from here to the end. */
  readonly isOpen?: boolean;
  readonly edges: readonly Listener[];
}

/** Adds the states of an expression in front of `next`, and returns its start. */
function thompson(expression: Expression, next: number, nodes: ThompsonNode[], work: Work): number {
  work.spend(1);
  const add = (silent: number[], edges: readonly Listener[] = []): number => nodes.push({ silent, edges }) - 1;
  switch (expression.kind) {
    case 'literal':
      return [...expression.text].reduceRight((target, character) => {
        work.spend(1);
        return add([], [{ set: codePoints([onePoint(character)]), target }]);
      }, next);
    case 'characters':
      return add([], [{ set: expression.set, target: next }]);
    case 'sequence':
      return expression.items.reduceRight((target, item) => thompson(item, target, nodes, work), next);
    case 'alternatives':
      return add(expression.items.map((item) => thompson(item, next, nodes, work)));
    case 'repetition': {
      const { item, min, max } = expression;
      let target = next;
      if (max === undefined) {
        const isOpen = next === 0 && item.kind === 'characters' && item.set === anyCodePoint;
        target = nodes.push({ silent: [next], edges: [], isOpen }) - 1;
        nodes[target]?.silent.push(thompson(item, target, nodes, work));
      } else {
        for (let i = min; i < max; i++) target = add([next, thompson(item, target, nodes, work)]);
      }
      for (let i = 0; i < min; i++) target = thompson(item, target, nodes, work);
      return target;
    }
    case 'rule':
      throw new Error('an automaton has no rules');
  }
}

/** Visits all states reachable from `start`, and keeps those from which acceptance is possible. */
function explored<Key>(
  start: Key,
  nameOf: (key: Key) => string,
  expand: (key: Key) => {
    readonly accepts: boolean;
    readonly edges: readonly { readonly set: CodePoints; readonly target: Key }[];
  },
  work: Work,
): Automaton {
  const numbers = new Map([[nameOf(start), 0]]);
  const keys = [start];
  const states: State[] = [];
  for (let at = 0; at < keys.length; at++) {
    const key = keys[at] as Key;
    const { accepts: accepting, edges } = expand(key);
    const targets = new Map<number, CodePoints>();
    for (const { set, target } of edges) {
      const name = nameOf(target);
      work.spend(2 + set.length + name.length / 16);
      let number = numbers.get(name);
      if (number === undefined) {
        number = keys.push(target) - 1;
        numbers.set(name, number);
      }
      const known = targets.get(number);
      targets.set(number, known === undefined ? set : union(known, set));
    }
    states.push({ accepts: accepting, edges: Array.from(targets, ([target, set]) => ({ set, target })) });
  }
  return trimmed(states, work);
}

/** Removes the states from which acceptance is no longer possible. */
function trimmed(states: readonly State[], work: Work): Automaton {
  const before: number[][] = states.map(() => []);
  states.forEach(({ edges }, from) => {
    for (const { target } of edges) before[target]?.push(from);
  });
  const live = new Set(states.flatMap(({ accepts: accepting }, number) => (accepting ? [number] : [])));
  for (const state of live) {
    work.spend(1);
    for (const from of before[state] ?? []) live.add(from);
  }
  if (!live.has(0)) return [];
  const numbers = new Map<number, number>();
  for (const number of [...live].sort((a, b) => a - b)) numbers.set(number, numbers.size);
  return states.flatMap(({ accepts: accepting, edges }, number) => {
    if (!live.has(number)) return [];
    const kept = edges.flatMap(({ set, target }) => {
      const renumbered = numbers.get(target);
      return renumbered === undefined ? [] : [{ set, target: renumbered }];
    });
    return [{ accepts: accepting, edges: kept }];
  });
}

/** Cuts the edges of two states wherever either begins or ends: `parts` are the targets on the left and on the right. */
function overlaid(
  sides: readonly [readonly Listener[], readonly Listener[]],
  work: Work,
): readonly { readonly set: CodePoints; readonly parts: readonly [number | undefined, number | undefined] }[] {
  const marked = sides.flatMap((edges, side) => edges.map(({ set, target }) => ({ set, target: target * 2 + side })));
  return overlaidSets(marked, work).map(({ set, targets }) => {
    const of = (side: number): number | undefined => {
      const target = targets.find((each) => each % 2 === side);
      return target === undefined ? undefined : (target - side) / 2;
    };
    return { set, parts: [of(0), of(1)] };
  });
}

/** Cuts overlapping sets into ranges with the same targets; ranges with the same targets are merged. */
function overlaidSets(
  edges: readonly Listener[],
  work: Work,
): readonly { readonly set: CodePoints; readonly targets: readonly number[] }[] {
  const events: { readonly point: number; readonly target: number; readonly opens: boolean }[] = [];
  for (const { set, target } of edges) {
    work.spend(set.length);
    for (const [first, last] of set) {
      events.push({ point: first, target, opens: true }, { point: last + 1, target, opens: false });
    }
  }
  events.sort((a, b) => a.point - b.point);
  const open = new Map<number, number>();
  const found = new Map<string, { readonly ranges: CodePointRange[]; readonly targets: readonly number[] }>();
  let from = 0;
  for (const { point, target, opens } of events) {
    if (point > from && open.size > 0) {
      const targets = [...open.keys()].sort((a, b) => a - b);
      work.spend(1 + targets.length);
      const name = targets.join(' ');
      const known = found.get(name);
      if (known === undefined) found.set(name, { ranges: [[from, point - 1]], targets });
      else known.ranges.push([from, point - 1]);
    }
    from = point;
    const count = (open.get(target) ?? 0) + (opens ? 1 : -1);
    if (count === 0) open.delete(target);
    else open.set(target, count);
  }
  return [...found.values()].map(({ ranges, targets }) => ({ set: codePoints(ranges), targets }));
}
