import type { Automaton } from './automaton.ts';
import type { Expression } from './grammar.ts';
import { everyNumber, type NumberRange } from './numbers.ts';

/**
 * The meaning of a JSON Schema, as a union of branches of one type each: the form in which schemas can be intersected (`allOf`),
 * compared (`oneOf`) and written as a grammar. No branch: no value is valid.
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
 * `implied`: the schema names no type, and its keywords are about another one. Such a value is valid, but a model that is
 * asked for `{"properties": …}` is asked for an object.
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
  /** All of them match; over the characters of the string, not over its JSON text. */
  readonly patterns: readonly Expression[];
  /** In characters. */
  readonly min: number;
  readonly max: number | undefined;
}

export interface ArrayBranch extends OfType<'array'> {
  readonly prefix: readonly Shape[];
  /** Shape of the items after the prefix; `undefined` when the schema does not say. */
  readonly rest: Shape | undefined;
  /** `undefined` when the schema does not say. */
  readonly min: number | undefined;
  readonly max: number | undefined;
}

export interface ObjectBranch extends OfType<'object'> {
  /** Each holds by itself, as the members of `allOf` do. */
  readonly layers: readonly Layer[];
  readonly required: readonly string[];
  /** All of these match the names of all members. */
  readonly names: readonly StringBranch[];
  readonly min: number;
  /** Where the schema says so; empty when it does not. */
  readonly minPlace: string;
  readonly max: number | undefined;
}

/** `properties`, `patternProperties` and `additionalProperties` of one schema. */
export interface Layer {
  readonly properties: ReadonlyMap<string, Shape>;
  readonly patterns: readonly { readonly names: Automaton; readonly shape: Shape }[];
  /** `undefined` when the schema does not say. */
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
