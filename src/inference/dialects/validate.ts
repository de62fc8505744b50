import type { TSchema, Static } from 'typebox';
import { Compile } from 'typebox/compile';

import { ApiError } from '../../platform/errors.ts';

/**
 * Makes the check of one endpoint's body from its schema.
 *
 * The check throws (specification §7.2, contracts decisions 1 and 12):
 * - `invalid_json_request` 400 when a field of `required` is missing, with `param` the field;
 * - `schema_validation_failed` 422 when the body is no object, or a field has a wrong type, range or shape, with `param`
 *   the path of the first fault, written `messages[0].content`.
 */
export function bodyCheck<Schema extends TSchema>(
  schema: Schema,
  required: readonly string[],
): (body: unknown) => Static<Schema> {
  const validator = compiledOnUse(schema);
  return (body) => {
    if (validator().Check(body)) return body as Static<Schema>;
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw new ApiError('schema_validation_failed', 'The body must be a JSON object.');
    }
    for (const name of required) {
      if (!Object.hasOwn(body, name)) {
        throw new ApiError('invalid_json_request', `The required field '${name}' is missing.`, { param: name });
      }
    }
    const fault = findFault(schema as SchemaNode, body);
    if (fault === undefined) throw new Error('the compiled check refuses what the schema accepts');
    const param = fieldPath(fault.path);
    throw new ApiError('schema_validation_failed', `'${param}' ${[...new Set(fault.wordings)].join(', or ')}.`, {
      param,
    });
  };
}

/**
 * Makes the check of a value within a body whose shape depends on neighbouring fields. `at` is its path. Throws `schema_validation_failed`
 * 422.
 */
export function shapeCheck<Schema extends TSchema>(schema: Schema): (value: unknown, at: string) => Static<Schema> {
  const validator = compiledOnUse(schema);
  return (value, at) => {
    if (validator().Check(value)) return value as Static<Schema>;
    const fault = findFault(schema as SchemaNode, value);
    if (fault === undefined) throw new Error('the compiled check refuses what the schema accepts');
    const inner = fieldPath(fault.path);
    const param = inner === '' || inner.startsWith('[') ? `${at}${inner}` : `${at}.${inner}`;
    throw new ApiError('schema_validation_failed', `'${param}' ${[...new Set(fault.wordings)].join(', or ')}.`, {
      param,
    });
  };
}

/** Compiles on first use: compiling all families' schemas would add 25 ms to every start. */
function compiledOnUse<Schema extends TSchema>(schema: Schema) {
  let validator: ReturnType<typeof compile> | undefined;
  const compile = () => Compile(schema);
  return () => (validator ??= compile());
}

/** Maximum levels of arrays and objects in a free-form field; real schemas have a dozen. */
const nestingMax = 128;

/**
 * Refuses a free-form value that could not be printed again: one nested so deeply that it would overflow the stack, with an unpaired
 * surrogate in its text, or with an infinite number. Throws `schema_validation_failed` 422.
 */
export function checkFreeForm(value: unknown, param: string): void {
  const fault = freeFormFault(value, nestingMax);
  if (fault !== undefined) throw new ApiError('schema_validation_failed', `'${param}' ${fault}.`, { param });
}

function freeFormFault(value: unknown, levels: number): string | undefined {
  // 1e999 is valid JSON, becomes infinite, and would be printed as null.
  if (typeof value === 'number')
    return Number.isFinite(value) ? undefined : 'must not contain a number outside the range of doubles';
  if (typeof value === 'string') return value.isWellFormed() ? undefined : 'must be well-formed text';
  if (typeof value !== 'object' || value === null) return undefined;
  if (levels === 0) return `must not nest deeper than ${nestingMax} levels`;
  for (const [name, child] of Object.entries(value)) {
    const fault = name.isWellFormed() ? freeFormFault(child, levels - 1) : 'must be well-formed text';
    if (fault !== undefined) return fault;
  }
  return undefined;
}

interface Fault {
  /** Taken from the checked value, not from the body. */
  readonly path: readonly (string | number)[];
  /** The required forms: several for a union. */
  readonly wordings: readonly string[];
}

/** The JSON Schema keywords used by endpoint schemas. */
interface SchemaNode {
  readonly type?: 'object' | 'array' | 'string' | 'integer' | 'number' | 'boolean' | 'null';
  readonly anyOf?: readonly SchemaNode[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: SchemaNode | false;
  readonly items?: SchemaNode;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
}

/**
 * Returns the first fault in the order of the schema. The validator's own list of errors walks the whole body, however long the list
 * already is: 3.9 s for an array of five million numbers, 10.6 s for 800,000 messages of which the last is wrong; this takes 1 ms and 0.4
 * s.
 */
function findFault(schema: SchemaNode, value: unknown): Fault | undefined {
  if (schema.anyOf !== undefined) return findFaultOfUnion(schema.anyOf, value);
  const reported = faultHere(schema, value);
  if (reported !== undefined) return { path: [], wordings: [reported] };
  if (schema.type === 'array') return findFaultOfItems(schema.items, value as readonly unknown[]);
  return schema.type === 'object' ? findFaultOfFields(schema, value as Readonly<Record<string, unknown>>) : undefined;
}

/** The client meant the form of a union that matched deepest; at equal depth all are named. */
function findFaultOfUnion(forms: readonly SchemaNode[], value: unknown): Fault | undefined {
  let best: Fault | undefined;
  for (const form of forms) {
    const fault = findFault(form, value);
    if (fault === undefined) return undefined;
    const deeper = fault.path.length - (best?.path.length ?? -1);
    if (deeper > 0) best = fault;
    else if (deeper === 0) best = { path: fault.path, wordings: [...(best?.wordings ?? []), ...fault.wordings] };
  }
  return best;
}

function findFaultOfItems(items: SchemaNode | undefined, value: readonly unknown[]): Fault | undefined {
  if (items === undefined) return undefined;
  for (let index = 0; index < value.length; index++) {
    const fault = findFault(items, value[index]);
    if (fault !== undefined) return within(index, fault);
  }
  return undefined;
}

function findFaultOfFields(schema: SchemaNode, value: Readonly<Record<string, unknown>>): Fault | undefined {
  const { properties = {}, required = [], additionalProperties } = schema;
  for (const name in properties) {
    const present = Object.hasOwn(value, name);
    if (!present && required.includes(name)) return { path: [name], wordings: ['is required'] };
    const field = properties[name];
    const fault = present && field !== undefined ? findFault(field, value[name]) : undefined;
    if (fault !== undefined) return within(name, fault);
  }
  if (additionalProperties === undefined) return undefined;
  for (const name of Object.keys(value)) {
    if (Object.hasOwn(properties, name)) continue;
    if (additionalProperties === false) return { path: [name], wordings: ['is an unknown field'] };
    const fault = findFault(additionalProperties, value[name]);
    if (fault !== undefined) return within(name, fault);
  }
  return undefined;
}

const within = (step: string | number, fault: Fault): Fault => ({
  path: [step, ...fault.path],
  wordings: fault.wordings,
});

/** Returns what is wrong with a value itself, apart from its members. */
function faultHere(schema: SchemaNode, value: unknown): string | undefined {
  if (schema.enum !== undefined && !schema.enum.includes(value))
    return `must be one of ${schema.enum.map((one) => JSON.stringify(one)).join(', ')}`;
  if (schema.const !== undefined && schema.const !== value) return `must be ${JSON.stringify(schema.const)}`;
  if (schema.type === undefined) return undefined;
  switch (schema.type) {
    case 'object':
      return typeof value === 'object' && value !== null && !Array.isArray(value) ? undefined : 'must be an object';
    case 'array':
      return Array.isArray(value)
        ? faultOfSize(schema.minItems, schema.maxItems, value.length, 'elements')
        : 'must be an array';
    case 'string':
      return typeof value === 'string'
        ? (faultOfSize(schema.minLength, schema.maxLength, codePoints(value, schema), 'characters') ??
            faultOfPattern(schema.pattern, value))
        : 'must be a string';
    case 'integer':
      return Number.isInteger(value) ? faultOfRange(schema, value as number) : 'must be an integer';
    case 'number':
      // 1e999 is valid JSON and becomes infinite.
      return Number.isFinite(value) ? faultOfRange(schema, value as number) : 'must be a number';
    case 'boolean':
      return typeof value === 'boolean' ? undefined : 'must be true or false';
    case 'null':
      return value === null ? undefined : 'must be null';
  }
}

/** Lengths are in code points; counted only where it can matter, because texts are long. */
function codePoints(text: string, schema: SchemaNode): number {
  const { maxLength } = schema;
  return maxLength === undefined || text.length > 2 * maxLength ? text.length : [...text].length;
}

function faultOfSize(
  least: number | undefined,
  most: number | undefined,
  size: number,
  what: string,
): string | undefined {
  if (least !== undefined && size < least)
    return least === 1 ? 'must not be empty' : `must have at least ${least} ${what}`;
  return most !== undefined && size > most ? `must have at most ${most} ${what}` : undefined;
}

/** Patterns come from our own schemas only. */
const faultOfPattern = (pattern: string | undefined, text: string): string | undefined =>
  pattern === undefined || new RegExp(pattern, 'u').test(text) ? undefined : `must match ${pattern}`;

function faultOfRange(schema: SchemaNode, value: number): string | undefined {
  if (schema.minimum !== undefined && value < schema.minimum) return `must be at least ${schema.minimum}`;
  if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum)
    return `must be more than ${schema.exclusiveMinimum}`;
  return schema.maximum !== undefined && value > schema.maximum ? `must be at most ${schema.maximum}` : undefined;
}

/** Clients choose the names in a map, so an echoed name is cut at this length. */
const namePartMax = 64;

/** `['messages', 0, 'content']` → `messages[0].content`. */
function fieldPath(path: Fault['path']): string {
  let text = '';
  for (const segment of path) {
    if (typeof segment === 'number') text += `[${segment}]`;
    else
      text += (text === '' ? '' : '.') + (segment.length > namePartMax ? `${segment.slice(0, namePartMax)}…` : segment);
  }
  return text;
}
