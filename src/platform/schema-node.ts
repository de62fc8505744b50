/** The part of JSON Schema that configurations are described with: plain JSON, for editors as well as our checks. */
export interface SchemaNode {
  readonly $schema?: string;
  readonly title?: string;
  readonly type?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly patternProperties?: unknown;
  readonly required?: readonly string[] | undefined;
  readonly additionalProperties?: unknown;
  readonly items?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly description?: string;
  readonly examples?: readonly unknown[];
  readonly default?: unknown;
  /** Never shown. */
  readonly writeOnly?: boolean;
  /** A running service refuses a file that changes it; not a keyword of JSON Schema. */
  readonly 'x-restart'?: boolean;
}

/** The type of what a schema describes. */
export type FromSchema<Schema> = Schema extends { readonly const: infer Constant }
  ? Constant
  : Schema extends { readonly enum: readonly (infer Constant)[] }
    ? Constant
    : Schema extends { readonly anyOf: readonly (infer Alternative)[] }
      ? FromSchema<Alternative>
      : Schema extends { readonly type: 'array'; readonly items: infer Item }
        ? readonly FromSchema<Item>[]
        : Schema extends { readonly properties: infer Properties }
          ? Group<Properties, Schema extends { readonly required: readonly (infer Key)[] } ? Key : never>
          : Schema extends { readonly type: infer Type }
            ? Plain[Type & keyof Plain]
            : unknown;
type Group<Properties, Required> = {
  readonly [Key in keyof Properties as Key extends Required ? Key : never]: FromSchema<Properties[Key]>;
} & {
  readonly [Key in keyof Properties as Key extends Required ? never : Key]?: FromSchema<Properties[Key]>;
};
interface Plain {
  readonly string: string;
  readonly integer: number;
  readonly number: number;
  readonly boolean: boolean;
  readonly object: Readonly<Record<string, unknown>>;
}

/**
 * Whether a value matches the schema. Not TypeBox's validator, because with it each command that reads a configuration loaded 437
 * kB more and took 160 ms of processor time instead of 135. Keywords that our schemas do not use are not handled.
 */
export function matches(schema: SchemaNode, value: unknown): boolean {
  if (schema.anyOf !== undefined && !schema.anyOf.some((alternative) => matches(alternative, value))) return false;
  if (schema.const !== undefined && value !== schema.const) return false;
  if (schema.enum !== undefined && !schema.enum.includes(value)) return false;
  switch (schema.type) {
    case undefined:
      return true;
    case 'null':
      return value === null;
    case 'boolean':
      return typeof value === 'boolean';
    case 'integer':
      return Number.isInteger(value) && isInRange(schema, value as number);
    case 'number':
      return Number.isFinite(value) && isInRange(schema, value as number);
    case 'string':
      return typeof value === 'string' && isText(schema, value);
    case 'array':
      return Array.isArray(value) && isList(schema, value);
    case 'object':
      return isPlainObject(value) && isGroup(schema, value);
    default:
      throw new Error(`a schema has the type ${schema.type}, which nothing checks`);
  }
}

export const isPlainObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function isInRange({ minimum, maximum, exclusiveMinimum }: SchemaNode, value: number): boolean {
  return value >= (minimum ?? -Infinity) && value <= (maximum ?? Infinity) && value > (exclusiveMinimum ?? -Infinity);
}

function isText({ pattern, minLength = 0, maxLength = Infinity }: SchemaNode, value: string): boolean {
  if (value.length < minLength || (pattern !== undefined && !new RegExp(pattern, 'u').test(value))) return false;
  // JSON Schema counts code points.
  return value.length <= maxLength || [...value].length <= maxLength;
}

function isList({ items, minItems = 0, maxItems = Infinity }: SchemaNode, value: readonly unknown[]): boolean {
  if (value.length < minItems || value.length > maxItems) return false;
  return items === undefined || value.every((item) => matches(items, item));
}

function isGroup(
  { properties = {}, required = [], additionalProperties }: SchemaNode,
  value: Readonly<Record<string, unknown>>,
): boolean {
  if (!required.every((key) => Object.hasOwn(value, key))) return false;
  return Object.entries(value).every(([key, member]) => {
    const schema = Object.hasOwn(properties, key) ? properties[key] : undefined;
    return schema === undefined ? additionalProperties !== false : matches(schema, member);
  });
}
