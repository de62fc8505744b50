import type { Automaton } from './automaton.ts';
import type { Expression } from './grammar.ts';
import { everyNumber, type NumberRange } from './numbers.ts';

/**
 * The meaning of a JSON Schema, as a union of branches of one type each: the form in which schemas can be intersected (`allOf`), compared
 * (`oneOf`) and written as a grammar. Without branches, no value is valid.
 */
export type Shape = readonly Branch[];

export type Branch =
  | { readonly type: 'null'; readonly implied: boolean }
  | { readonly type: 'boolean'; readonly implied: boolean }
  | { readonly type: 'value'; readonly value: unknown; readonly implied: boolean }
  | NumberBranch
  | StringBranch
  | ArrayBranch
  | ObjectBranch;

/**
 * `implied`: the schema names no type, and its keywords concern another one. Such a value is valid, but a model that is given
 * `{"properties": …}` is expected to write an object.
 */
interface OfType<Type extends string> {
  readonly type: Type;
  readonly implied: boolean;
}

export interface NumberBranch extends OfType<'number'> {
  readonly whole: boolean;
  readonly range: NumberRange;
}

export interface StringBranch extends OfType<'string'> {
  /** All of them match the characters of the string, not its JSON text. */
  readonly patterns: readonly Expression[];
  /** Length in characters. */
  readonly min: number;
  readonly max: number | undefined;
}

export interface ArrayBranch extends OfType<'array'> {
  readonly prefix: readonly Shape[];
  /** Shape of the items after the prefix; `undefined`: not specified. */
  readonly rest: Shape | undefined;
  /** `undefined`: not specified. */
  readonly min: number | undefined;
  readonly max: number | undefined;
}

export interface ObjectBranch extends OfType<'object'> {
  /** Each layer applies independently, like the members of `allOf`. */
  readonly layers: readonly Layer[];
  readonly required: readonly string[];
  /** All of these match the names of all members. */
  readonly names: readonly StringBranch[];
  readonly min: number;
  /** Where the schema specifies `min`; empty if it does not. */
  readonly minPlace: string;
  readonly max: number | undefined;
}

/** `properties`, `patternProperties` and `additionalProperties` of one schema. */
export interface Layer {
  readonly properties: ReadonlyMap<string, Shape>;
  readonly patterns: readonly { readonly names: Automaton; readonly shape: Shape }[];
  /** `undefined`: not specified. */
  readonly additional: Shape | undefined;
}

export const anyString: StringBranch = { type: 'string', implied: false, patterns: [], min: 0, max: undefined };
export const anyNumber: NumberBranch = { type: 'number', implied: false, whole: false, range: everyNumber };
export const anyArray: ArrayBranch = {
  type: 'array',
  implied: false,
  prefix: [],
  rest: undefined,
  min: undefined,
  max: undefined,
};
export const anyObject: ObjectBranch = {
  type: 'object',
  implied: false,
  layers: [],
  required: [],
  names: [],
  min: 0,
  minPlace: '',
  max: undefined,
};

/** The shape of every value. */
export const anything: Shape = [
  anyObject,
  anyArray,
  anyString,
  anyNumber,
  { type: 'boolean', implied: false },
  { type: 'null', implied: false },
];
export const nothing: Shape = [];
