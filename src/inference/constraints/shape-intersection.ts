import { hasLength } from './automaton-rules.ts';
import { accepts, anyText, automatonOf, combined, ofLength, type Automaton } from './automaton.ts';
import { sameExpression } from './grammar.ts';
import { bothRanges, inRange, isEmptyRange } from './numbers.ts';
import {
  anything,
  nothing,
  type ArrayBranch,
  type Branch,
  type Layer,
  type ObjectBranch,
  type Shape,
  type StringBranch,
} from './shape.ts';
import type { Work } from './work.ts';

/** Returns the values that both shapes allow. Never narrower than that; wider only if two patterns of member names overlap. */
export function bothShapes(left: Shape, right: Shape, work: Work): Shape {
  work.spend(1);
  if (left === anything) return right;
  if (right === anything || left === right) return left;
  return left.flatMap((a) => right.flatMap((b) => bothBranches(a, b, work) ?? []));
}

function bothBranches(left: Branch, right: Branch, work: Work): Branch | undefined {
  work.spend(2);
  const implied = left.implied || right.implied;
  if (left.type === 'value') return allowsValue(right, left.value, work) ? { ...left, implied } : undefined;
  if (right.type === 'value') return allowsValue(left, right.value, work) ? { ...right, implied } : undefined;
  if (left.type === 'number' && right.type === 'number') {
    const range = bothRanges(left.range, right.range);
    const whole = left.whole || right.whole;
    return isEmptyRange(range, whole) ? undefined : { type: 'number', implied, whole, range };
  }
  if (left.type === 'string' && right.type === 'string') {
    const both = bothStrings(left, right, implied);
    return isEmptyString(both, work) ? undefined : both;
  }
  if (left.type === 'array' && right.type === 'array') return bothArrays(left, right, implied, work);
  if (left.type === 'object' && right.type === 'object') {
    const both: ObjectBranch = {
      type: 'object',
      implied,
      layers: [...left.layers, ...right.layers],
      required: [...new Set([...left.required, ...right.required])],
      names: [...left.names, ...right.names],
      min: Math.max(left.min, right.min),
      minPlace: left.min >= right.min ? left.minPlace : right.minPlace,
      max: lesser(left.max, right.max),
    };
    work.spend(both.layers.length + both.required.length);
    return isEmptyObject(both, work) ? undefined : both;
  }
  return left.type === right.type ? { ...left, implied } : undefined;
}

const lesser = (left: number | undefined, right: number | undefined): number | undefined =>
  left === undefined ? right : right === undefined ? left : Math.min(left, right);

function bothStrings(left: StringBranch, right: StringBranch, implied: boolean): StringBranch {
  const more = right.patterns.filter((pattern) => !left.patterns.some((other) => sameExpression(pattern, other)));
  return {
    type: 'string',
    implied,
    patterns: more.length === 0 ? left.patterns : [...left.patterns, ...more],
    min: Math.max(left.min, right.min),
    max: lesser(left.max, right.max),
  };
}

/** Combines a string's patterns into one automaton, without its lengths. */
export function patternsAutomaton({ patterns }: StringBranch, work: Work): Automaton {
  return work.once(patterns, () =>
    patterns.reduce((both, pattern) => combined(both, automatonOf(pattern, work), 'and', work), anyText),
  );
}

/** Combines a string's patterns and lengths into one automaton. */
export function stringAutomaton(branch: StringBranch, work: Work): Automaton {
  const automaton = patternsAutomaton(branch, work);
  const isBounded = branch.min > 0 || branch.max !== undefined;
  return isBounded ? ofLength(automaton, branch.min, branch.max, work) : automaton;
}

function isEmptyString(branch: StringBranch, work: Work): boolean {
  if (branch.max !== undefined && branch.min > branch.max) return true;
  const isBounded = branch.min > 0 || branch.max !== undefined;
  if (branch.patterns.length + Number(isBounded) < 2 || branch.patterns.length === 0) return false;
  return !hasLength(patternsAutomaton(branch, work), branch, work);
}

function bothArrays(left: ArrayBranch, right: ArrayBranch, implied: boolean, work: Work): ArrayBranch | undefined {
  const length = Math.max(left.prefix.length, right.prefix.length);
  const at = (branch: ArrayBranch, index: number): Shape => branch.prefix[index] ?? branch.rest ?? anything;
  const both: ArrayBranch = {
    type: 'array',
    implied,
    prefix: Array.from({ length }, (_, index) => bothShapes(at(left, index), at(right, index), work)),
    rest:
      left.rest === undefined && right.rest === undefined
        ? undefined
        : bothShapes(left.rest ?? anything, right.rest ?? anything, work),
    min: left.min === undefined ? right.min : Math.max(left.min, right.min ?? 0),
    max: lesser(left.max, right.max),
  };
  return (both.min ?? 0) > (itemsMax(both) ?? Infinity) ? undefined : both;
}

/** Returns the maximum number of items of an array: up to the first position where nothing is allowed. */
export function itemsMax(branch: ArrayBranch): number | undefined {
  const never = branch.prefix.findIndex((shape) => shape.length === 0);
  if (never >= 0) return lesser(branch.max, never);
  return branch.rest?.length === 0 ? lesser(branch.max, branch.prefix.length) : branch.max;
}

/** Returns the object's shape for the member with this name. */
export function memberShape(branch: ObjectBranch, name: string, work: Work): Shape {
  if (!branch.names.every((names) => allowsText(names, name, work))) return nothing;
  return branch.layers.reduce<Shape>(
    (shape, layer) => bothShapes(shape, layerShape(layer, name, work), work),
    anything,
  );
}

function layerShape(layer: Layer, name: string, work: Work): Shape {
  const declared = layer.properties.get(name);
  let shape = declared ?? anything;
  let isSaid = declared !== undefined;
  for (const pattern of layer.patterns) {
    work.spend(1 + name.length);
    if (!accepts(pattern.names, name)) continue;
    shape = bothShapes(shape, pattern.shape, work);
    isSaid = true;
  }
  return isSaid ? shape : (layer.additional ?? anything);
}

function isEmptyObject(branch: ObjectBranch, work: Work): boolean {
  if (branch.max !== undefined && (branch.max < branch.min || branch.max < branch.required.length)) return true;
  return branch.required.some((name) => memberShape(branch, name, work).length === 0);
}

function allowsText(branch: StringBranch, text: string, work: Work): boolean {
  work.spend(1);
  const length = [...text].length;
  if (length < branch.min || length > (branch.max ?? Infinity)) return false;
  return branch.patterns.every((pattern) => accepts(automatonOf(pattern, work), text));
}

/** Whether the value is valid, for the members of `enum` and for `const`. */
export function allowsValue(branch: Branch, value: unknown, work: Work): boolean {
  work.spend(1);
  switch (branch.type) {
    case 'null':
      return value === null;
    case 'boolean':
      return typeof value === 'boolean';
    case 'number':
      return typeof value === 'number' && (!branch.whole || Number.isInteger(value)) && inRange(value, branch.range);
    case 'string':
      return typeof value === 'string' && allowsText(branch, value, work);
    case 'value':
      return sameValue(branch.value, value, work);
    case 'array': {
      if (!Array.isArray(value)) return false;
      if (value.length < (branch.min ?? 0) || value.length > (branch.max ?? Infinity)) return false;
      return value.every((item, index) => shapeAllows(branch.prefix[index] ?? branch.rest ?? anything, item, work));
    }
    case 'object': {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
      const members = Object.entries(value);
      if (members.length < branch.min || members.length > (branch.max ?? Infinity)) return false;
      if (!branch.required.every((name) => Object.hasOwn(value, name))) return false;
      return members.every(([name, each]) => shapeAllows(memberShape(branch, name, work), each, work));
    }
  }
}

export const shapeAllows = (shape: Shape, value: unknown, work: Work): boolean =>
  shape === anything || shape.some((branch) => allowsValue(branch, value, work));

/** Compares as JSON Schema does: the order of members does not matter. */
function sameValue(left: unknown, right: unknown, work: Work): boolean {
  work.spend(1);
  if (left === right) return true;
  if (typeof left !== 'object' || typeof right !== 'object' || left === null || right === null) return false;
  if (Array.isArray(left) || Array.isArray(right)) {
    if (!Array.isArray(left) || !Array.isArray(right) || left.length !== right.length) return false;
    return left.every((item, index) => sameValue(item, right[index], work));
  }
  const members = Object.entries(left);
  if (members.length !== Object.keys(right).length) return false;
  return members.every(
    ([name, value]) =>
      Object.hasOwn(right, name) && sameValue(value, (right as Readonly<Record<string, unknown>>)[name], work),
  );
}
