import { ApiError } from '../../platform/errors.ts';
import { automatonOf } from './automaton.ts';
import type { Expression } from './grammar.ts';
import type { NumberRange } from './numbers.ts';
import { regexExpression } from './regex.ts';
import { isRecord, pointerPart, type SchemaObject } from './schema-keywords.ts';
import { shortPlace } from './schema-refs.ts';
import { allowsValue, bothShapes } from './shape-intersection.ts';
import { disjointShapes } from './shape-overlap.ts';
import {
  anyArray,
  anyNumber,
  anyObject,
  anyString,
  anything,
  nothing,
  type Branch,
  type Layer,
  type Shape,
  type StringBranch,
} from './shape.ts';
import type { Work } from './work.ts';

/**
 * Reads a JSON Schema without references. Keywords that decoding cannot enforce are dropped (§4.2.3(3)); all other keywords are enforced or
 * refused, never ignored (contracts decision 15).
 */
export class SchemaReader {
  readonly #work: Work;
  readonly #patterns = new Map<string, Expression>();

  constructor(work: Work) {
    this.#work = work;
  }

  shape(schema: unknown, place: string): Shape {
    if (schema === true) return anything;
    if (schema === false) return nothing;
    if (!isRecord(schema)) return this.#refuse('a schema is an object, true or false', place);
    return this.#work.once(schema, () => this.#shape(schema, place));
  }

  #shape(schema: SchemaObject, place: string): Shape {
    this.#work.spend(10);
    for (const keyword of unenforceable) {
      if (Object.hasOwn(schema, keyword)) this.#refuse(`'${keyword}' cannot be enforced`, place);
    }
    let shape = this.#typed(schema, place);
    if (Object.hasOwn(schema, 'enum')) shape = this.#values(this.#list(schema, 'enum', place), shape);
    if (Object.hasOwn(schema, 'const')) shape = this.#values([schema['const']], shape);
    for (const [index, part] of this.#list(schema, 'allOf', place).entries()) {
      shape = bothShapes(shape, this.shape(part, `${place}/allOf/${index}`), this.#work);
    }
    shape = this.#dependencies(schema, shape, place);
    if (Object.hasOwn(schema, 'anyOf')) shape = this.#parts(schema, 'anyOf', shape, place).flat();
    if (Object.hasOwn(schema, 'oneOf')) shape = this.#oneOf(this.#parts(schema, 'oneOf', shape, place), place);
    return this.#unevaluated(schema, shape, place);
  }

  /**
   * `unevaluatedProperties` and `unevaluatedItems` cover what no keyword of this schema covers, `allOf`, `anyOf` and the others included. Each
   * branch is one way to satisfy all of them, so its layers and its prefix tell what is covered.
   */
  #unevaluated(schema: SchemaObject, shape: Shape, place: string): Shape {
    const own = (keyword: string): Shape | undefined =>
      Object.hasOwn(schema, keyword) ? this.shape(schema[keyword], `${place}/${keyword}`) : undefined;
    const [members, items] = [own('unevaluatedProperties'), own('unevaluatedItems')];
    if (members === undefined && items === undefined) return shape;
    return shape.flatMap((branch) => {
      if (branch.type === 'object' && members !== undefined) {
        const rest = { ...anyObject, layers: [uncovered(branch.layers, members)] };
        return branch.layers.some(({ additional }) => additional !== undefined)
          ? [branch]
          : bothShapes([branch], [rest], this.#work);
      }
      const isOpen = branch.type === 'array' && branch.rest === undefined;
      return isOpen && items !== undefined
        ? bothShapes([{ ...branch, rest: items }], [{ ...anyArray }], this.#work)
        : [branch];
    });
  }

  /** Returns each part combined with its sibling keywords. */
  #parts(schema: SchemaObject, keyword: 'anyOf' | 'oneOf', beside: Shape, place: string): readonly Shape[] {
    return this.#list(schema, keyword, place).map((part, index) =>
      bothShapes(beside, this.shape(part, `${place}/${keyword}/${index}`), this.#work),
    );
  }

  /** A value that matches two parts would be invalid: parts that overlap in what the model may write are refused. */
  #oneOf(parts: readonly Shape[], place: string): Shape {
    parts.forEach((part, index) => {
      for (const [other, earlier] of parts.slice(0, index).entries()) {
        if (disjointShapes(earlier, part, this.#work)) continue;
        this.#refuse(
          `a value can match both ${other} and ${index}, which cannot be prevented; use anyOf`,
          `${place}/oneOf`,
        );
      }
    });
    return parts.flat();
  }

  #values(values: readonly unknown[], shape: Shape): Shape {
    return values.flatMap((value) => {
      const isAllowed = shape === anything || shape.some((branch) => allowsValue(branch, value, this.#work));
      return isAllowed ? [{ type: 'value', value, implied: false } as const] : [];
    });
  }

  /** "If a is present, then this" becomes "a is absent, or this holds". */
  #dependencies(schema: SchemaObject, shape: Shape, place: string): Shape {
    let found = shape;
    for (const keyword of ['dependentRequired', 'dependentSchemas', 'dependencies']) {
      for (const [name, then] of Object.entries(this.#record(schema, keyword, place))) {
        const at = `${place}/${keyword}/${pointerPart(name)}`;
        const absent: Shape = [...withoutObjects, { ...anyObject, layers: [layerOf([[name, nothing]])] }];
        const names = Array.isArray(then) ? this.#names(then, at) : [];
        const present: Shape = [{ ...anyObject, required: [...new Set([name, ...names])] }];
        const held = Array.isArray(then) ? present : bothShapes(present, this.shape(then, at), this.#work);
        found = [...bothShapes(found, absent, this.#work), ...bothShapes(found, held, this.#work)];
      }
    }
    return found;
  }

  #typed(schema: SchemaObject, place: string): Shape {
    const named = schema['type'];
    const types = named === undefined ? undefined : Array.isArray(named) ? named : [named];
    if (types?.some((type) => typeof type !== 'string' || !typeNames.has(type)) || types?.length === 0) {
      this.#refuse("'type' is not a JSON type", `${place}/type`);
    }
    const said = new Set(keywordTypes.flatMap(([keyword, type]) => (Object.hasOwn(schema, keyword) ? [type] : [])));
    if (types === undefined && said.size === 0) return anything;
    const wanted = new Set<string>(types ?? typeNames);
    if (types !== undefined && schema['nullable'] === true) wanted.add('null');
    // Every integer is a number.
    if (wanted.has('number')) wanted.delete('integer');
    return [...wanted].flatMap((type) => {
      const branch = this.#branch(type, schema, place);
      return branch === undefined ? [] : [{ ...branch, implied: types === undefined && !said.has(type) }];
    });
  }

  #branch(type: string, schema: SchemaObject, place: string): Branch | undefined {
    switch (type) {
      case 'null':
      case 'boolean':
        return { type, implied: false };
      case 'integer':
      case 'number': {
        const branch = { ...anyNumber, whole: type === 'integer', range: this.#range(schema, place) };
        const [kept] = bothShapes([branch], [anyNumber], this.#work);
        return kept;
      }
      case 'string':
        return this.#string(schema, place);
      case 'array':
        return this.#array(schema, place);
      default:
        return this.#object(schema, place);
    }
  }

  #range(schema: SchemaObject, place: string): NumberRange {
    const side = (inclusive: string, exclusive: string, tighter: (a: number, b: number) => number) => {
      const bound = this.#number(schema, inclusive, place);
      // In draft 4 the exclusive keyword is a flag beside the inclusive one.
      if (typeof schema[exclusive] === 'boolean') return { bound, excluded: schema[exclusive] };
      const other = this.#number(schema, exclusive, place);
      if (other === undefined) return { bound, excluded: false };
      const isOther = bound === undefined || tighter(bound, other) === other;
      return { bound: isOther ? other : bound, excluded: isOther };
    };
    const low = side('minimum', 'exclusiveMinimum', Math.max);
    const high = side('maximum', 'exclusiveMaximum', Math.min);
    return { min: low.bound, minExcluded: low.excluded, max: high.bound, maxExcluded: high.excluded };
  }

  #string(schema: SchemaObject, place: string): Branch | undefined {
    const { pattern } = schema;
    if (pattern !== undefined && typeof pattern !== 'string') this.#refuse("'pattern' is not text", place);
    const branch: StringBranch = {
      ...anyString,
      patterns: typeof pattern === 'string' ? [this.#pattern(pattern, `${place}/pattern`)] : [],
      min: this.#count(schema, 'minLength', place) ?? 0,
      max: this.#count(schema, 'maxLength', place),
    };
    return bothShapes([branch], [{ ...anyString }], this.#work)[0];
  }

  /** One object per pattern, so that whatever is derived from it is derived once. */
  #pattern(pattern: string, place: string): Expression {
    const known = this.#patterns.get(pattern);
    if (known !== undefined) return known;
    const expression = regexExpression(pattern, 'search', this.#work, ` at ${shortPlace(place)}`);
    this.#patterns.set(pattern, expression);
    return expression;
  }

  #array(schema: SchemaObject, place: string): Branch | undefined {
    const { items } = schema;
    // Before draft 2020-12 a list of `items` meant today's `prefixItems`, and `additionalItems` today's `items`.
    const isOld = Array.isArray(items);
    const keyword = isOld ? 'items' : 'prefixItems';
    const prefix = this.#list(schema, keyword, place).map((item, index) =>
      this.shape(item, `${place}/${keyword}/${index}`),
    );
    const restKeyword = isOld ? 'additionalItems' : 'items';
    const rest = Object.hasOwn(schema, restKeyword)
      ? this.shape(schema[restKeyword], `${place}/${restKeyword}`)
      : undefined;
    const branch = {
      ...anyArray,
      prefix,
      rest,
      min: this.#count(schema, 'minItems', place),
      max: this.#count(schema, 'maxItems', place),
    };
    return bothShapes([branch], [{ ...anyArray }], this.#work)[0];
  }

  #object(schema: SchemaObject, place: string): Branch | undefined {
    const properties = Object.entries(this.#record(schema, 'properties', place)).map(
      ([name, child]) => [name, this.shape(child, `${place}/properties/${pointerPart(name)}`)] as const,
    );
    const patterns = Object.entries(this.#record(schema, 'patternProperties', place)).map(([pattern, child]) => {
      const at = `${place}/patternProperties/${pointerPart(pattern)}`;
      return { names: automatonOf(this.#pattern(pattern, at), this.#work), shape: this.shape(child, at) };
    });
    const additional = Object.hasOwn(schema, 'additionalProperties')
      ? this.shape(schema['additionalProperties'], `${place}/additionalProperties`)
      : undefined;
    const names = Object.hasOwn(schema, 'propertyNames')
      ? this.shape(schema['propertyNames'], `${place}/propertyNames`)
      : anything;
    const required = Object.hasOwn(schema, 'required') ? this.#names(schema['required'], `${place}/required`) : [];
    const hasLayer = properties.length + patterns.length > 0 || additional !== undefined;
    const branch = {
      ...anyObject,
      layers: hasLayer ? [{ properties: new Map(properties), patterns, additional }] : [],
      required,
      names: names === anything ? [] : [this.#nameBranch(names, `${place}/propertyNames`)],
      min: this.#count(schema, 'minProperties', place) ?? 0,
      minPlace: `${place}/minProperties`,
      max: this.#count(schema, 'maxProperties', place),
    };
    return bothShapes([branch], [{ ...anyObject }], this.#work)[0];
  }

  #nameBranch(shape: Shape, place: string): StringBranch {
    const texts = shape.filter((branch) => branch.type === 'string' || typeof valueOf(branch) === 'string');
    const [only] = texts;
    if (texts.length === 1 && only?.type === 'string') return only;
    const values = texts.map(valueOf);
    if (!values.every((value) => typeof value === 'string')) {
      return this.#refuse('several forms of names cannot be enforced', place);
    }
    const forms = values.map((value) => ({ kind: 'literal', text: value }) as const);
    return { ...anyString, patterns: [{ kind: 'alternatives', items: forms }] };
  }

  #list(schema: SchemaObject, keyword: string, place: string): readonly unknown[] {
    const value = schema[keyword];
    if (!Object.hasOwn(schema, keyword)) return [];
    return Array.isArray(value) ? value : this.#refuse(`'${keyword}' is not a list`, place);
  }

  #record(schema: SchemaObject, keyword: string, place: string): SchemaObject {
    const value = schema[keyword];
    if (!Object.hasOwn(schema, keyword)) return {};
    return isRecord(value) ? value : this.#refuse(`'${keyword}' is not an object`, place);
  }

  #names(value: unknown, place: string): readonly string[] {
    const isNames = Array.isArray(value) && value.every((name) => typeof name === 'string');
    return isNames ? value : this.#refuse('a list of names is expected', place);
  }

  #number(schema: SchemaObject, keyword: string, place: string): number | undefined {
    const value = schema[keyword];
    if (!Object.hasOwn(schema, keyword)) return undefined;
    return typeof value === 'number' ? value : this.#refuse(`'${keyword}' is not a number`, place);
  }

  #count(schema: SchemaObject, keyword: string, place: string): number | undefined {
    const value = this.#number(schema, keyword, place);
    if (value !== undefined && (!Number.isInteger(value) || value < 0)) {
      this.#refuse(`'${keyword}' is not a whole number from 0`, place);
    }
    return value;
  }

  #refuse(problem: string, place: string): never {
    const { at } = this.#work;
    throw new ApiError('unsupported_value', `'${at}' at ${shortPlace(place)}: ${problem}.`, { param: at });
  }
}

const valueOf = (branch: Branch): unknown => (branch.type === 'value' ? branch.value : undefined);

/** Keywords that affect validity, but that no grammar of bounded size can express. */
const unenforceable = ['contains', 'minContains', 'maxContains'];

const typeNames: ReadonlySet<string> = new Set(['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']);

/** The type that each keyword concerns: a schema without `type` is taken to mean the types that its keywords concern. */
const typeOfKeywords = {
  object: [
    'properties',
    'required',
    'additionalProperties',
    'patternProperties',
    'propertyNames',
    'minProperties',
    'maxProperties',
    'unevaluatedProperties',
  ],
  array: ['items', 'additionalItems', 'prefixItems', 'minItems', 'maxItems', 'unevaluatedItems'],
  string: ['pattern', 'minLength', 'maxLength'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
} as const;
const keywordTypes: readonly (readonly [string, string])[] = Object.entries(typeOfKeywords).flatMap(
  ([type, keywords]) => keywords.map((keyword) => [keyword, type] as const),
);

const layerOf = (properties: readonly (readonly [string, Shape])[]): Layer => ({
  properties: new Map(properties),
  patterns: [],
  additional: undefined,
});

/** The layer that allows all members that these layers cover, and gives the others this shape. */
const uncovered = (layers: readonly Layer[], additional: Shape): Layer => ({
  properties: new Map(
    layers.flatMap(({ properties }) => [...properties.keys()].map((name) => [name, anything] as const)),
  ),
  patterns: layers.flatMap(({ patterns }) => patterns.map(({ names }) => ({ names, shape: anything }))),
  additional,
});

const withoutObjects: Shape = anything.filter((branch) => branch.type !== 'object');
