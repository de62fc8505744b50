import type { Path } from './document.ts';
import { matches, type SchemaNode } from '../platform/schema-node.ts';
import { suggestion } from './suggestion.ts';

/** A violation of the schema. `at: 'key'` means that the key of `path` itself is at fault, not its value. */
export interface Finding {
  readonly path: Path;
  readonly at: 'key' | 'value';
  readonly what: string;
}

/**
 * Describes all violations of the schema in `value`, in its order. Among alternatives that a constant distinguishes
 * (`engine: llama`), the value is checked only against the chosen one.
 */
export function check(node: SchemaNode, value: unknown, path: Path = []): Finding[] {
  if (node.type === 'object' && node.properties !== undefined) return checkObject(node, value, path);
  if (node.type === 'array' && node.items !== undefined) return checkArray(node, value, path);
  const tag = node.anyOf === undefined ? undefined : tagOf(node.anyOf);
  if (tag !== undefined) return checkTagged(node.anyOf!, tag, value, path);
  return matches(node, value) ? [] : [{ path, at: 'value', what: mismatch(node, value, path) }];
}

const roundsMax = 16;

/**
 * A copy of `value` without what the schema forbids, so that the meaning of the rest can be checked too. Entries of lists become
 * gaps, because their neighbours must keep their index.
 */
export function withoutFaults(schema: SchemaNode, value: unknown): unknown {
  const copy: unknown = structuredClone(value);
  // What is removed may have been required, and then the group around it is removed in the next round.
  for (let round = 0; round < roundsMax; round++) {
    const findings = check(schema, copy);
    if (findings.length === 0) return copy;
    for (const { path } of findings) {
      if (path.length === 0) return {};
      remove(copy, path);
    }
  }
  return {};
}

function remove(value: unknown, path: Path): void {
  let parent = value as Record<string | number, unknown> | undefined;
  for (const step of path.slice(0, -1)) parent = parent?.[step] as typeof parent;
  if (parent === undefined || parent === null) return;
  const last = path.at(-1)!;
  if (Array.isArray(parent)) parent[last as number] = undefined;
  else delete parent[last];
}

function checkObject(schema: SchemaNode, value: unknown, path: Path): Finding[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return [{ path, at: 'value', what: mismatch(schema, value, path) }];
  }
  const findings: Finding[] = [];
  const known = Object.keys(schema.properties!);
  for (const [key, member] of Object.entries(value)) {
    const memberSchema = Object.hasOwn(schema.properties!, key) ? schema.properties![key] : undefined;
    if (memberSchema !== undefined) findings.push(...check(memberSchema, member, [...path, key]));
    else if (schema.additionalProperties === false)
      findings.push({ path: [...path, key], at: 'key', what: unknownKey(key, known, path) });
  }
  for (const key of schema.required ?? []) {
    if (!Object.hasOwn(value, key))
      findings.push({ path, at: 'value', what: missingKey(key, schema.properties![key]!, path) });
  }
  return findings;
}

function checkArray(schema: SchemaNode, value: unknown, path: Path): Finding[] {
  if (!Array.isArray(value)) return [{ path, at: 'value', what: mismatch(schema, value, path) }];
  const { minItems = 0, maxItems = Infinity } = schema;
  if (value.length < minItems || value.length > maxItems) {
    const count = value.length < minItems ? `at least ${minItems}` : `at most ${maxItems}`;
    return [
      {
        path,
        at: 'value',
        what: `${nameOf(path)} has ${value.length} entries, but needs ${count}${because(schema)}${forExample(schema, path)}`,
      },
    ];
  }
  // YAML has no undefined entries: they are the gaps that `withoutFaults` leaves.
  return value.flatMap((item, index) => (item === undefined ? [] : check(schema.items!, item, [...path, index])));
}

/** The key that distinguishes all alternatives: each has a different constant there. */
export function tagOf(alternatives: readonly SchemaNode[]): string | undefined {
  const [first] = alternatives;
  return Object.keys(first?.properties ?? {}).find((key) =>
    alternatives.every(
      (alternative) => alternative.properties?.[key]?.const !== undefined && alternative.required?.includes(key),
    ),
  );
}

function checkTagged(alternatives: readonly SchemaNode[], tag: string, value: unknown, path: Path): Finding[] {
  const tags = alternatives.map((alternative) => String(alternative.properties![tag]!.const));
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return [
      {
        path,
        at: 'value',
        what: `${nameOf(path)} is ${shown(value)}, but must be a group of settings with ${tag}: ${tags.join(', ')}`,
      },
    ];
  }
  if (!Object.hasOwn(value, tag)) {
    const near = Object.keys(value).find((key) => suggestion(key, [tag]) !== undefined);
    if (near !== undefined)
      return [
        { path: [...path, near], at: 'key', what: `unknown key "${near}" in ${nameOf(path)}; did you mean "${tag}"?` },
      ];
    return [
      {
        path,
        at: 'value',
        what: `"${tag}" is missing in ${nameOf(path)}, and it decides which other settings are allowed; add ${tag}: ${tags.join(' or ')}`,
      },
    ];
  }
  const chosen = (value as Record<string, unknown>)[tag];
  const alternative = alternatives.find((candidate) => candidate.properties![tag]!.const === chosen);
  if (alternative !== undefined) return checkObject(alternative, value, path);
  return [{ path: [...path, tag], at: 'value', what: notOneOf(`"${tag}"`, chosen, tags) }];
}

function unknownKey(key: string, known: readonly string[], path: Path): string {
  const near = suggestion(key, known);
  const repair = near === undefined ? `known here: ${known.join(', ')}` : `did you mean "${near}"?`;
  return `unknown key ${JSON.stringify(key.slice(0, 60))} in ${nameOf(path)}, it has no effect; ${repair}`;
}

function missingKey(key: string, schema: SchemaNode, path: Path): string {
  return `"${key}" is missing in ${nameOf(path)}${because(schema)}${forExample(schema, [key])}`;
}

function mismatch(schema: SchemaNode, value: unknown, path: Path): string {
  const values = allowedValues(schema);
  if (values !== undefined) return notOneOf(nameOf(path), value, values) + because(schema);
  const found = schema.writeOnly === true ? 'not usable' : shown(value);
  const quotes =
    schema.type === 'string' && (typeof value === 'number' || typeof value === 'boolean') ? ' (put it in quotes)' : '';
  return `${nameOf(path)} is ${found}, but must be ${expected(schema)}${quotes}${because(schema)}${forExample(schema, path)}`;
}

function notOneOf(name: string, value: unknown, allowed: readonly string[]): string {
  const near = typeof value === 'string' ? suggestion(value, allowed) : undefined;
  const repair = near === undefined ? '' : `; did you mean "${near}"?`;
  return `${name} is ${shown(value)}, but must be ${listed(allowed)}${repair}`;
}

/** The constants of an enumeration, however it is written; `undefined` if the schema is not one. */
function allowedValues(schema: SchemaNode): readonly string[] | undefined {
  if (schema.const !== undefined) return [String(schema.const)];
  if (schema.enum !== undefined) return schema.enum.map(String);
  if (schema.anyOf?.every((alternative) => alternative.const !== undefined))
    return schema.anyOf.map(({ const: value }) => String(value));
  return undefined;
}

function expected(schema: SchemaNode): string {
  if (schema.const !== undefined) return String(schema.const);
  if (schema.anyOf !== undefined) return schema.anyOf.map(expected).join(' or ');
  switch (schema.type) {
    case 'object':
      return 'a group of settings';
    case 'array':
      return 'a list';
    case 'boolean':
      return 'true or false';
    case 'null':
      return 'null';
    case 'string':
      return 'a text of the expected form';
    case 'integer':
      return `a whole number${range(schema)}`;
    case 'number':
      return `a number${range(schema)}`;
    case undefined:
    default:
      return 'something else';
  }
}

function range({ minimum, maximum, exclusiveMinimum }: SchemaNode): string {
  const low = exclusiveMinimum === undefined ? minimum : `above ${exclusiveMinimum}`;
  if (low !== undefined && maximum !== undefined)
    return typeof low === 'number' ? ` from ${low} to ${maximum}` : ` ${low}, at most ${maximum}`;
  if (low !== undefined) return typeof low === 'number' ? ` of at least ${low}` : ` ${low}`;
  return maximum === undefined ? '' : ` of at most ${maximum}`;
}

const because = (schema: SchemaNode): string => (schema.description === undefined ? '' : ` (${schema.description})`);

function forExample(schema: SchemaNode, path: Path): string {
  const example = schema.examples?.[0];
  if (example === undefined) return '';
  const key = path.at(-1);
  const text = typeof example === 'string' ? example : JSON.stringify(example);
  return `; for example ${typeof key === 'string' ? `${key}: ` : ''}${text}`;
}

/** The name of a setting in messages. */
export function nameOf(path: Path): string {
  if (path.length === 0) return 'the file';
  return path
    .map((step, index) => (typeof step === 'number' ? `[${step}]` : index === 0 ? step : `.${step}`))
    .join('')
    .slice(0, 200);
}

function listed(words: readonly string[]): string {
  return words.length < 2 ? (words[0] ?? 'nothing') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`;
}

function shown(value: unknown): string {
  if (value === null || value === undefined) return 'empty';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'a group of settings';
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
