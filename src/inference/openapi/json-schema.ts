import type { TSchema } from 'typebox';

import type { NamedSchema } from '../dialects/description.ts';

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
export type JsonObject = Readonly<Record<string, Json>>;

/** The named schemas of a document, and the references to them. */
export class Components {
  readonly #named = new Map<TSchema, { readonly name: string; readonly schema: NamedSchema }>();

  /** Adds a schema. The same schema may be added again under the same name. */
  add(name: string, schema: NamedSchema): void {
    const known = this.#named.get(schema.schema);
    if (known !== undefined && known.name !== name)
      throw new Error(`one schema has two names: ${known.name} and ${name}`);
    for (const other of this.#named.values()) {
      if (other.name === name && other.schema.schema !== schema.schema)
        throw new Error(`two schemas have the name ${name}`);
    }
    this.#named.set(schema.schema, { name, schema });
  }

  /** Prints a schema: as a reference if it has a name. */
  print(schema: TSchema): JsonObject {
    const known = this.#named.get(schema);
    return known === undefined ? this.#body(schema, '', {}, new Set()) : { $ref: `#/components/schemas/${known.name}` };
  }

  /** `components.schemas`. */
  printAll(): JsonObject {
    return Object.fromEntries(
      [...this.#named.values()].map(({ name, schema }) => {
        const used = new Set<string>();
        const body = this.#body(schema.schema, '', schema.fields, used);
        const unknown = Object.keys(schema.fields).filter((field) => !used.has(field));
        if (unknown.length > 0) throw new Error(`${name} has no field ${unknown.join(', ')}`);
        return [name, schema.description === undefined ? body : { ...body, description: schema.description }];
      }),
    );
  }

  /** `at`: the path of the schema inside the named one, as in `fields`. Fields whose text was used are added to `used`. */
  #body(schema: TSchema, at: string, fields: NamedSchema['fields'], used: Set<string>): JsonObject {
    const inner = (child: unknown, path = at): Json => {
      const known = this.#named.get(child as TSchema);
      return known === undefined
        ? this.#body(child as TSchema, path, fields, used)
        : { $ref: `#/components/schemas/${known.name}` };
    };
    const node = schema as Readonly<Record<string, unknown>>;
    const printed: Record<string, Json> = {};
    for (const [keyword, value] of Object.entries(node)) {
      switch (keyword) {
        case 'properties':
          printed[keyword] = Object.fromEntries(
            Object.entries(value as object).map(([name, child]) => {
              const path = at === '' ? name : `${at}.${name}`;
              const text = fields[path];
              if (text !== undefined) used.add(path);
              const body = inner(child, path);
              return [name, text === undefined ? body : { ...(body as JsonObject), description: text }];
            }),
          );
          break;
        case 'items':
        case 'additionalProperties':
          printed[keyword] = typeof value === 'boolean' ? value : inner(value);
          break;
        case 'anyOf':
          printed[keyword] = (value as readonly unknown[]).map((child) => inner(child));
          break;
        default:
          printed[keyword] = value as Json;
      }
    }
    return orNull(printed);
  }
}

/** Prints a type or null as one type list, which is easier for readers and for client generators. */
function orNull(schema: Record<string, Json>): Record<string, Json> {
  const { anyOf, ...rest } = schema;
  if (!Array.isArray(anyOf) || anyOf.length !== 2) return schema;
  const [first, second] = anyOf as readonly JsonObject[];
  const isPlain = typeof first?.['type'] === 'string' && first['enum'] === undefined && first['const'] === undefined;
  return isPlain && second?.['type'] === 'null' ? { ...first, type: [first['type']!, 'null'], ...rest } : schema;
}
