import { ApiError } from '../../platform/errors.ts';
import { eachSubschema, isRecord, type SchemaObject } from './schema-keywords.ts';

/** Bound on the values of the schema with every reference expanded. A real schema has about a hundred values. */
const inlinedValuesMax = 20_000;
/** Maximum levels of JSON, expanded. */
const inlinedDepthMax = 128;

/**
 * Returns the schema with each local `$ref` replaced by its target (§4.2.3(2)), without `$defs` and `definitions`. Keywords beside a `$ref`
 * apply as well. A reference that is remote, unresolved, recursive, or makes the schema too large is refused with
 * `json_schema_refs_unsupported` 400 (contracts decision 21); the message names the place. A value that is not an object, or a schema
 * without references, is returned unchanged.
 */
export function inlineRefs(schema: unknown, at: string): unknown {
  if (!isRecord(schema)) return schema;
  return new Inliner(schema, at).inlined(schema, { place: '#', depth: 0, open: [] });
}

interface Position {
  /** JSON pointer into the schema being read. */
  readonly place: string;
  readonly depth: number;
  /** The references that led here. */
  readonly open: readonly string[];
}

/** An inlined schema, and its size in each place. It leads back to no open reference, so it is finite. */
interface Inlined {
  readonly schema: unknown;
  readonly values: number;
  readonly levels: number;
}

class Inliner {
  readonly #root: SchemaObject;
  readonly #at: string;
  /** One object per inlined schema, so that whatever is derived from it is derived once. */
  readonly #made = new Map<SchemaObject, Inlined>();
  #values = 0;
  #depthMost = 0;
  #inlinedAny = false;

  constructor(root: SchemaObject, at: string) {
    this.#root = root;
    this.#at = at;
  }

  inlined(schema: unknown, position: Position): unknown {
    if (!isRecord(schema)) {
      this.#count(position, 1);
      return schema;
    }
    const known = this.#made.get(schema);
    if (known !== undefined) {
      this.#count({ ...position, depth: position.depth + known.levels }, known.values);
      return known.schema;
    }
    const [valuesBefore, depthMost] = [this.#values, this.#depthMost];
    this.#depthMost = position.depth;
    this.#count(position, 1);
    const made = this.#inlinedFirst(schema, position);
    const levels = this.#depthMost - position.depth;
    this.#made.set(schema, { schema: made, values: this.#values - valuesBefore, levels });
    this.#depthMost = Math.max(this.#depthMost, depthMost);
    return made;
  }

  #inlinedFirst(schema: SchemaObject, position: Position): unknown {
    for (const name of ['$dynamicRef', '$recursiveRef']) {
      if (Object.hasOwn(schema, name)) this.#refuse(`${name} is not supported`, position);
    }
    if (!Object.hasOwn(schema, '$ref')) return this.#copied(schema, position);
    const { $ref: reference, ...beside } = schema;
    const target = this.#resolved(reference, position);
    this.#inlinedAny = true;
    const name = String(reference);
    if (position.open.includes(name)) this.#refuse('a $ref leads back to itself', position);
    const named = this.inlined(target, {
      place: position.place,
      depth: position.depth + 1,
      open: [...position.open, name],
    });
    const others = this.#copied(beside, position);
    if (Object.keys(others).every((keyword) => annotations.has(keyword))) {
      return isRecord(named) ? { ...named, ...others } : named;
    }
    // These two cover what the target leaves, so they stay outside.
    const { unevaluatedProperties, unevaluatedItems, ...rest } = others;
    return {
      allOf: [named, rest],
      ...(unevaluatedProperties === undefined ? {} : { unevaluatedProperties }),
      ...(unevaluatedItems === undefined ? {} : { unevaluatedItems }),
    };
  }

  #copied(schema: SchemaObject, position: Position): SchemaObject {
    const { $defs: _, definitions: __, ...kept } = schema;
    for (const value of Object.values(kept)) this.#count(position, valuesIn(value));
    return eachSubschema(kept, position.place, (child, place) =>
      this.inlined(child, { place, depth: position.depth + 1, open: position.open }),
    );
  }

  #resolved(reference: unknown, position: Position): unknown {
    if (typeof reference !== 'string') return this.#refuse('a $ref is not text', position);
    if (!reference.startsWith('#')) return this.#refuse('a remote $ref is not supported', position);
    if (reference === '#') return this.#root;
    if (!reference.startsWith('#/')) return this.#refuse('a $ref names an anchor, not a path', position);
    let value: unknown = this.#root;
    for (const part of reference.slice(2).split('/')) {
      const name = this.#unescaped(part, position);
      // Own members only: `#/__proto__` and `#/constructor` refer to nothing.
      const isThere = typeof value === 'object' && value !== null && Object.hasOwn(value, name);
      if (!isThere) return this.#refuse('a $ref points to nothing in the schema', position);
      value = (value as Readonly<Record<string, unknown>>)[name];
    }
    if (!isRecord(value) && typeof value !== 'boolean')
      return this.#refuse('a $ref does not point to a schema', position);
    return value;
  }

  #unescaped(part: string, position: Position): string {
    try {
      return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
    } catch {
      return this.#refuse('a $ref is not a JSON pointer', position);
    }
  }

  /** Before the first reference the size is that of the client's schema, which is bounded when it is compiled. */
  #count(position: Position, values: number): void {
    this.#values += values;
    this.#depthMost = Math.max(this.#depthMost, position.depth);
    if (this.#values > inlinedValuesMax) {
      this.#refuse(
        `the schema is larger than ${inlinedValuesMax} values with its $refs written out`,
        position,
        this.#inlinedAny,
      );
    }
    if (position.depth > inlinedDepthMax) {
      this.#refuse(
        `the schema nests deeper than ${inlinedDepthMax} levels with its $refs written out`,
        position,
        this.#inlinedAny,
      );
    }
  }

  #refuse(problem: string, { place }: Position, isOfReferences = true): never {
    const code = isOfReferences ? 'json_schema_refs_unsupported' : 'unsupported_value';
    throw new ApiError(code, `'${this.#at}' at ${shortPlace(place)}: ${problem}.`, { param: this.#at });
  }
}

/** Keywords that do not affect which values are valid. */
const annotations: ReadonlySet<string> = new Set([
  'title',
  'description',
  'default',
  'examples',
  'example',
  'deprecated',
  'readOnly',
  'writeOnly',
  '$comment',
  '$schema',
  '$id',
  'id',
]);

/** Returns a pointer for a message; a deep one keeps its end. */
export const shortPlace = (place: string): string => (place.length <= 200 ? place : `…${place.slice(-200)}`);

/** Values of members that are not schemas count too, because references copy them. */
function valuesIn(value: unknown): number {
  if (Array.isArray(value)) return value.length;
  return isRecord(value) ? Object.keys(value).length : 1;
}
