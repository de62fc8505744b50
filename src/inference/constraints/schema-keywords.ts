/** A JSON Schema that is an object; its keywords are not yet checked. */
export type SchemaObject = Readonly<Record<string, unknown>>;

export const isRecord = (value: unknown): value is SchemaObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Keywords whose value is a schema, or a list of schemas. */
const schemas: ReadonlySet<string> = new Set([
  'items',
  'additionalItems',
  'prefixItems',
  'contains',
  'additionalProperties',
  'propertyNames',
  'unevaluatedItems',
  'unevaluatedProperties',
  'allOf',
  'anyOf',
  'oneOf',
  'not',
  'if',
  'then',
  'else',
]);

/** Keywords whose value maps names to schemas. */
const namedSchemas: ReadonlySet<string> = new Set([
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
]);

/**
 * Returns a copy in which each direct subschema is replaced by the result of `replace`. Data that only looks like a schema (`enum`,
 * `const`, `default`, a property called `items`) is left unchanged.
 */
export function eachSubschema(
  schema: SchemaObject,
  place: string,
  replace: (child: unknown, place: string) => unknown,
): SchemaObject {
  // fromEntries creates own members even for names like __proto__.
  return Object.fromEntries(
    Object.entries(schema).map(([keyword, value]) => {
      const at = `${place}/${pointerPart(keyword)}`;
      if (schemas.has(keyword)) {
        if (Array.isArray(value)) return [keyword, value.map((child, index) => replace(child, `${at}/${index}`))];
        return [keyword, isRecord(value) ? replace(value, at) : value];
      }
      if (!namedSchemas.has(keyword) || !isRecord(value)) return [keyword, value];
      const members = Object.entries(value).map(([name, child]) => [
        name,
        isRecord(child) ? replace(child, `${at}/${pointerPart(name)}`) : child,
      ]);
      return [keyword, Object.fromEntries(members)];
    }),
  );
}

export const pointerPart = (name: string): string => name.replaceAll('~', '~0').replaceAll('/', '~1');
