import { bothShapes } from './shape-intersection.ts';
import {
  anything as anyValue,
  nothing,
  type ArrayBranch,
  type Branch,
  type ObjectBranch,
  type Shape,
} from './shape.ts';
import type { Work } from './work.ts';

/**
 * Whether no value that is written for one shape is valid in the other. What is written is narrower than what is valid: an object has only
 * the members that its schema names, unless the schema says more.
 */
export function disjointShapes(left: Shape, right: Shape, work: Work): boolean {
  return (
    bothShapes(writtenShape(left), right, work).length === 0 && bothShapes(left, writtenShape(right), work).length === 0
  );
}

/** Returns the branches from which a grammar is made. */
export function writtenShape(shape: Shape): Shape {
  const said = shape.filter((branch) => !branch.implied);
  return (said.length === 0 ? shape : said).map(writtenBranch);
}

function writtenBranch(branch: Branch): Branch {
  switch (branch.type) {
    case 'object':
      return namesOnlyDeclared(branch) ? { ...branch, layers: [...branch.layers, closedLayer(branch)] } : branch;
    case 'array':
      return hasOnlyPrefix(branch) ? { ...branch, rest: nothing } : branch;
    case 'null':
    case 'boolean':
    case 'value':
    case 'number':
    case 'string':
      return branch;
  }
}

/** Whether an object has only the members that `properties` or `required` name. */
export function namesOnlyDeclared(branch: ObjectBranch): boolean {
  if (branch.layers.some((layer) => layer.additional !== undefined || layer.patterns.length > 0)) return false;
  return branch.layers.some((layer) => layer.properties.size > 0);
}

export const hasOnlyPrefix = (branch: ArrayBranch): boolean => branch.rest === undefined && branch.prefix.length > 0;

/** The names of the members that an object can certainly have, in writing order. */
export const declaredNames = (branch: ObjectBranch): readonly string[] => [
  ...new Set([...branch.layers.flatMap((layer) => [...layer.properties.keys()]), ...branch.required]),
];

const closedLayer = (branch: ObjectBranch) => ({
  // This layer allows each name; the other layers still constrain it.
  properties: new Map(declaredNames(branch).map((name) => [name, anyValue] as const)),
  patterns: [],
  additional: nothing,
});
