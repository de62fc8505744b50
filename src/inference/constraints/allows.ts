import { inlineRefs } from './schema-refs.ts';
import { SchemaReader } from './schema-shape.ts';
import { shapeAllows } from './shape-intersection.ts';
import { Work } from './work.ts';

/**
 * Whether a JSON value is valid under a schema, by the keywords that decoding enforces; `undefined`: the schema has others, or finding out takes
 * more than `stepsMax` steps, of a microsecond each. `steps`: the number that were taken. A value of a type that no part of a `oneOf` names is
 * allowed, although it fits several.
 */
export function schemaAllows(
  schema: unknown,
  value: unknown,
  stepsMax: number,
): { readonly allows: boolean | undefined; readonly steps: number } {
  const work = new Work('schema', stepsMax);
  try {
    const shape = new SchemaReader(work).shape(inlineRefs(schema, work.at), '#');
    return { allows: shapeAllows(shape, value, work), steps: work.steps };
  } catch {
    return { allows: undefined, steps: work.steps };
  }
}
