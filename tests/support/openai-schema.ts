import { existsSync, readFileSync } from 'node:fs';

import { Compile } from 'typebox/schema';
import type { Validator } from 'typebox/schema';

/**
 * OpenAI's published OpenAPI document as a judge of what we send. It is not part of the repository: a machine that has it says
 * where with `OPENAI_SCHEMA`.
 */
export class OpenAiSchema {
  readonly #schemas: Readonly<Record<string, Node>>;
  readonly #validators = new Map<string, Validator>();

  private constructor(schemas: Readonly<Record<string, Node>>) {
    this.#schemas = schemas;
  }

  /** `undefined` when no file is named. Throws when it is named and not there: a judge that stays at home judges nothing. */
  static load(): OpenAiSchema | undefined {
    const path = process.env['OPENAI_SCHEMA'];
    if (path === undefined || path === '') return undefined;
    if (!existsSync(path)) throw new Error(`OPENAI_SCHEMA names a file that is not there: ${path}`);
    const { components } = JSON.parse(readFileSync(path, 'utf8')) as {
      components: { schemas: Readonly<Record<string, Node>> };
    };
    return new OpenAiSchema(jsonSchema(components.schemas) as Readonly<Record<string, Node>>);
  }

  /**
   * How a value departs from the schema of this name: where, and what the schema would have, sorted and each once. Fields
   * that the schema does not know are departures too, although it allows them.
   */
  departures(name: string, value: unknown): readonly string[] {
    const [, errors] = this.#validator(name).Errors(value);
    // A type list is reported once for each alternative and once for the whole.
    const wrong = errors.map(
      ({ instancePath, message }) => `${pathOf(instancePath)}: ${message.replaceAll(/\s+/g, ' ')}`,
    );
    const unknown = this.#unknownFields([this.#schema(name)], value, '').map((at) => `${at}: not in the schema`);
    return [...new Set([...wrong, ...unknown])].toSorted();
  }

  #schema(name: string): Node {
    const schema = this.#schemas[name];
    if (schema === undefined) throw new Error(`the document has no schema '${name}'`);
    return schema;
  }

  #validator(name: string): Validator {
    this.#schema(name);
    const known = this.#validators.get(name);
    if (known !== undefined) return known;
    const schema = { $ref: `#/components/schemas/${name}`, components: { schemas: this.#schemas } };
    const validator: Validator = Compile(schema);
    this.#validators.set(name, validator);
    return validator;
  }

  #unknownFields(schemas: readonly Node[], value: unknown, at: string): readonly string[] {
    const nodes = schemas.flatMap((schema) => this.#alternatives(schema));
    if (Array.isArray(value)) {
      const items = nodes.flatMap(({ items: node }) => node ?? []);
      return items.length === 0 ? [] : value.flatMap((item) => this.#unknownFields(items, item, `${at}[]`));
    }
    if (typeof value !== 'object' || value === null) return [];
    const isOpen =
      nodes.every(({ properties }) => properties === undefined) ||
      // A map, such as a JSON Schema in a tool.
      nodes.some(({ additionalProperties: more }) => more !== undefined && more !== false);
    if (isOpen) return [];
    return Object.entries(value).flatMap(([field, inner]) => {
      const path = at === '' ? field : `${at}.${field}`;
      const known = nodes.flatMap(({ properties }) =>
        properties !== undefined && Object.hasOwn(properties, field) ? [properties[field]!] : [],
      );
      return known.length === 0 ? [path] : this.#unknownFields(known, inner, path);
    });
  }

  /** The schema and what it is made of, references followed. */
  #alternatives(schema: Node): readonly Node[] {
    const target = schema.$ref === undefined ? [] : [this.#schema(schema.$ref.split('/').at(-1) ?? '')];
    const inner = [...target, ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
    return [schema, ...inner.flatMap((node) => this.#alternatives(node))];
  }
}

interface Node {
  readonly $ref?: string;
  readonly anyOf?: readonly Node[];
  readonly oneOf?: readonly Node[];
  readonly allOf?: readonly Node[];
  readonly items?: Node;
  readonly properties?: Readonly<Record<string, Node>>;
  readonly additionalProperties?: unknown;
}

/** OpenAPI's own words in those of JSON Schema: no `discriminator`, and `nullable` as an alternative. */
function jsonSchema(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(jsonSchema);
  if (typeof node !== 'object' || node === null) return node;
  const { discriminator, nullable, ...rest } = node as Record<string, unknown>;
  // Where the words are names of properties, schemas stand behind them.
  const isWord = typeof (discriminator as { propertyName?: unknown } | undefined)?.propertyName === 'string';
  const kept = isWord || discriminator === undefined ? rest : { ...rest, discriminator };
  const plain = typeof nullable === 'boolean' || nullable === undefined ? kept : { ...kept, nullable };
  const inner = Object.fromEntries(Object.entries(plain).map(([key, value]) => [key, jsonSchema(value)]));
  return nullable === true ? { anyOf: [inner, { type: 'null' }] } : inner;
}

/** `/choices/0/message` → `choices[].message`. */
const pathOf = (pointer: string): string =>
  pointer
    .split('/')
    .slice(1)
    .map((step) => (/^\d+$/.test(step) ? '[]' : `.${step}`))
    .join('')
    .replace(/^\./, '');
