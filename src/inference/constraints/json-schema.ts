import { ApiError } from '../../platform/errors.ts';
import { checkGrammarSize, type Grammar } from './grammar.ts';
import { withJsonRules } from './json-text.ts';
import { normalForm } from './normal-form.ts';
import { inlineRefs } from './schema-refs.ts';
import { SchemaReader } from './schema-shape.ts';
import { ShapeWriter } from './shape-grammar.ts';
import { Work } from './work.ts';

const schemaCharactersMax = 65_536;
const schemaDepthMax = 64;

/**
 * Converts a JSON Schema into a grammar of JSON texts. Each text is valid under the schema, except for the keywords that §4.2.3(3) drops
 * (docs/constraints.md). Members are written in the order of `properties`; an object has no members beyond `properties`, unless the schema
 * mentions others.
 *
 * Throws `json_schema_refs_unsupported` 400 for references (see `inlineRefs`), and `unsupported_value` 400 for a schema that cannot be
 * enforced, is invalid, allows no value, or exceeds a bound (contracts decisions 13 and 15). `at` is the `param` of the error; its message
 * says where in the schema.
 */
export function jsonSchemaGrammar(schema: unknown, at: string): Grammar {
  checkSchemaSize(schema, at);
  const work = new Work(at);
  const shape = new SchemaReader(work).shape(inlineRefs(schema, at), '#');
  const writer = new ShapeWriter(work);
  const root = writer.root(shape);
  if (root === undefined) {
    throw new ApiError('unsupported_value', `'${at}' allows no value.`, { param: at });
  }
  const grammar = normalForm(withJsonRules(root, writer.rules), work, writer.states);
  checkGrammarSize(grammar, at);
  return grammar;
}

/** Throws `unsupported_value` 400 for a schema that exceeds the bounds; walks without recursion. */
function checkSchemaSize(schema: unknown, at: string): void {
  const refuse = (problem: string): never => {
    throw new ApiError('unsupported_value', `'${at}' ${problem}.`, { param: at });
  };
  const open: { readonly value: unknown; readonly depth: number }[] = [{ value: schema, depth: 0 }];
  let characters = 0;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, depth } = next;
    if (depth > schemaDepthMax) refuse(`nests deeper than ${schemaDepthMax} levels`);
    if (typeof value === 'object' && value !== null) {
      for (const [name, child] of Object.entries(value)) {
        characters += Array.isArray(value) ? 1 : name.length + 4;
        open.push({ value: child, depth: depth + 1 });
      }
    } else characters += typeof value === 'string' ? value.length + 2 : String(value).length;
    if (characters > schemaCharactersMax) refuse(`is longer than ${schemaCharactersMax} characters`);
  }
}
