/** The instance with members in the order of `properties`, as a grammar writes them; others keep theirs, at the end. */
export function inOrder(data: unknown, schema: unknown, root: unknown): unknown {
  if (typeof data !== 'object' || data === null) return data;
  const schemas = parts(schema, root);
  if (Array.isArray(data)) {
    return data.map((item, index) => {
      const found = schemas.flatMap((each) => {
        const { items, prefixItems } = each;
        const list = Array.isArray(prefixItems) ? prefixItems : Array.isArray(items) ? items : [];
        return [list[index] ?? (Array.isArray(items) ? each['additionalItems'] : items)];
      });
      return inOrder(item, { allOf: found }, root);
    });
  }
  const members = new Map(Object.entries(data));
  const properties = schemas.flatMap((each) => Object.entries(isRecord(each['properties']) ? each['properties'] : {}));
  const required = schemas.flatMap((each) => (Array.isArray(each['required']) ? each['required'] : []));
  const names = new Set([...properties.map(([name]) => name), ...required.map(String), ...members.keys()]);
  const others = schemas.map((each) => each['additionalProperties']);
  return Object.fromEntries(
    [...names].flatMap((name) => {
      if (!members.has(name)) return [];
      const own = properties.flatMap(([each, child]) => (each === name ? [child] : []));
      return [[name, inOrder(members.get(name), { allOf: own.length > 0 ? own : others }, root)]];
    }),
  );
}

/** The schema and those that it is put together of. */
export function parts(schema: unknown, root: unknown): readonly Record<string, unknown>[] {
  if (!isRecord(schema)) return [];
  const inner = ['allOf', 'anyOf', 'oneOf'].flatMap((keyword) =>
    Array.isArray(schema[keyword]) ? schema[keyword] : [],
  );
  const { $ref: reference } = schema;
  const target =
    typeof reference === 'string' && reference.startsWith('#/')
      ? reference
          .slice(2)
          .split('/')
          .reduce<unknown>((value, name) => (isRecord(value) ? value[decodeURIComponent(name)] : undefined), root)
      : undefined;
  return [schema, ...[...inner, target].flatMap((part) => parts(part, root))];
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
