import { readYaml, type Path, type SourceDocument } from './document.ts';
import { matches, type SchemaNode } from '../platform/schema-node.ts';
import { environmentVariables, type SettingVariable } from './environment.ts';
import type { Problem } from './problem.ts';
import { suggestion } from './suggestion.ts';

/** A setting from a variable or a command line option, which overrides the file. */
export interface Override {
  readonly path: Path;
  /** The variable or the option: `TOKENHOUSE_SERVER__INFERENCE__PORT`, `--port`. */
  readonly name: string;
  /** The same for `config show`: `environment TOKENHOUSE_…`, `option --port`. */
  readonly source: string;
  readonly text: string;
}

/** The combined settings. */
export interface GivenSettings extends Pick<SourceDocument, 'value' | 'has' | 'textOf'> {
  /** The override of the setting at this path, or of the first of its members, if there is one. */
  overrideAt(path: Path): Override | undefined;
  /** Problems in combining the overrides. */
  readonly problems: readonly Problem[];
}

const prefix = 'TOKENHOUSE_';

/**
 * The settings from variables. `TOKENHOUSE_SERVER__INFERENCE__HOST` is `server.inference.host`: two underscores are a dot, numbers
 * count the entries of a list from 0. `_FILE` after the name of a secret: the value is in that file. A name that is neither a
 * setting nor a variable of `environmentVariables` is a problem, because a misspelt one would be ignored.
 */
export function overridesOf(
  variables: readonly SettingVariable[],
  schema: SchemaNode,
): { readonly overrides: readonly Override[]; readonly problems: readonly Problem[] } {
  const overrides: Override[] = [];
  const problems: Problem[] = [];
  for (const { name, text, textOfFile } of variables) {
    const path = pathOf(name);
    const source = `environment ${name}`;
    const secretPath = name.endsWith('_FILE') ? pathOf(name.slice(0, -'_FILE'.length)) : undefined;
    if (nodeAt(schema, path) !== undefined) overrides.push({ path, name, source, text });
    else if (secretPath !== undefined && nodeAt(schema, secretPath)?.writeOnly === true) {
      const found = textOfFile();
      if ('problem' in found) problems.push({ where: name, what: found.problem });
      else overrides.push({ path: secretPath, name, source, text: found.text });
    } else problems.push({ where: name, what: unknownName(name, schema) });
  }
  return { overrides: overrides.toSorted((a, b) => inOrder(a.path, b.path)), problems };
}

/** Sorts a group before its members, so that they are put into it, and the entries of a list by their numbers. */
function inOrder(a: Path, b: Path): number {
  const at = a.findIndex((step, index) => step !== b[index]);
  if (at < 0) return a.length - b.length;
  const [one, other] = [a[at]!, b[at]];
  if (other === undefined) return 1;
  if (typeof one === 'number' && typeof other === 'number') return one - other;
  return String(one) < String(other) ? -1 : 1;
}

/** Removes `prefix`, and converts to lower case and numbers. */
const pathOf = (name: string): Path =>
  name
    .slice(prefix.length)
    .split('__')
    .map((step) => (/^\d{1,4}$/.test(step) ? Number(step) : step.toLowerCase()));

/** The name of a setting's variable, with 0 for the entries of lists. */
const nameOf = (path: Path): string => `${prefix}${path.join('__').toUpperCase()}`;

/** The schema at a path; `undefined` for an unknown setting. */
function nodeAt(node: SchemaNode, path: Path): SchemaNode | undefined {
  const [step, ...rest] = path;
  if (step === undefined) return node;
  if (typeof step === 'number') return node.items === undefined ? undefined : nodeAt(node.items, rest);
  const groups = [node, ...(node.anyOf ?? [])].flatMap(({ properties }) =>
    properties !== undefined && Object.hasOwn(properties, step) ? [properties[step]!] : [],
  );
  const [first, ...others] = groups;
  if (first === undefined) return undefined;
  // For a key that several engines have, any of them determines its type.
  return nodeAt(others.length === 0 ? first : { anyOf: groups }, rest);
}

function unknownName(name: string, schema: SchemaNode): string {
  const known = [...Object.keys(environmentVariables), ...pathsOf(schema, []).map(nameOf)];
  const near = suggestion(name, known);
  const repair =
    near === undefined
      ? 'docs/configuration.md lists them; `tokenhouse config show` names every setting'
      : `did you mean ${near}?`;
  return `there is no setting or variable of this name, so it would have no effect; ${repair}`;
}

function pathsOf(node: SchemaNode, path: Path): Path[] {
  const below = [
    ...Object.entries(node.properties ?? {}),
    ...(node.anyOf ?? []).flatMap(({ properties }) => Object.entries(properties ?? {})),
  ].flatMap(([key, member]) => pathsOf(member, [...path, key]));
  const items = node.items?.properties === undefined && node.items?.anyOf === undefined ? undefined : node.items;
  if (items !== undefined) below.push(...pathsOf(items, [...path, 0]));
  return below.length === 0 ? [path] : below;
}

/** The file with the values of variables and options. */
export function withOverrides(
  document: SourceDocument,
  overrides: readonly Override[],
  schema: SchemaNode,
): GivenSettings {
  const problems: Problem[] = [];
  const parts = overrides.flatMap((override) => {
    const part = partOf(nodeAt(schema, override.path) ?? {}, override.text);
    if (typeof part !== 'string') return [{ override, ...part }];
    problems.push({ where: override.name, what: part });
    return [];
  });
  // The last one that covers a path wins: options come after variables, members after their group.
  const partAt = (path: Path) => parts.findLast(({ override }) => begins(path, override.path));
  let { value } = document;
  for (const { override, value: part } of parts) {
    const changed = withValue(value, override.path, part);
    if (changed === undefined)
      problems.push({
        where: override.name,
        what: 'the entries of a list are counted from 0 without a gap, and an earlier one is missing; number them 0, 1, 2, …',
      });
    else value = changed.value;
  }
  return {
    value,
    problems,
    overrideAt: (path) => {
      const below = (): Override | undefined => overrides.find((override) => begins(override.path, path));
      return partAt(path)?.override ?? (document.has(path) ? undefined : below());
    },
    has: (path) => {
      const part = partAt(path);
      if (part !== undefined) return part.has(path.slice(part.override.path.length));
      return document.has(path) || parts.some(({ override }) => begins(override.path, path));
    },
    textOf: (path) => {
      const part = partAt(path);
      return part === undefined ? document.textOf(path) : part.textOf(path.slice(part.override.path.length));
    },
  };
}

const begins = (path: Path, beginning: Path): boolean =>
  beginning.length <= path.length && beginning.every((step, index) => path[index] === step);

type Part = Pick<SourceDocument, 'value' | 'has' | 'textOf'>;

/**
 * Parses a text by its schema: a string as it is, numbers and words as in YAML, a list of words separated by commas, and everything
 * else as YAML. A returned string says what is wrong with it.
 */
function partOf(schema: SchemaNode, text: string): Part | string {
  const scalar = (value: unknown): Part => ({
    value,
    has: (path) => path.length === 0,
    textOf: (path) => (path.length === 0 ? text : undefined),
  });
  if (matches(schema, text)) return scalar(text);
  const isWords = schema.items !== undefined && schema.items.properties === undefined && !/^\s*\[/.test(text);
  if (isWords) {
    const words = text.split(',').map((word) => word.trim());
    return {
      value: words,
      has: (path) => path.length === 0 || (path.length === 1 && words[path[0] as number] !== undefined),
      textOf: (path) => (path.length === 1 ? words[path[0] as number] : undefined),
    };
  }
  const document = readYaml(text);
  if (document.faults.length > 0) return document.faults[0]!.what;
  const isGroup = typeof document.value === 'object' && document.value !== null;
  const takesGroup =
    schema.type === 'object' || schema.type === 'array' || schema.anyOf?.some(({ properties }) => properties);
  // Where a string belongs, `key: value` is not a group but a faulty string, which the check reports.
  return isGroup && !takesGroup ? scalar(text) : document;
}

/** A copy of a value with another one at the path; undefined if an entry of a list comes before its predecessor. */
function withValue(value: unknown, path: Path, part: unknown): { readonly value: unknown } | undefined {
  const [step, ...rest] = path;
  if (step === undefined) return { value: part };
  if (typeof step === 'number') {
    const list: readonly unknown[] = Array.isArray(value) ? value : [];
    if (step > list.length) return undefined;
    const entry = withValue(list[step], rest, part);
    return entry && { value: [...list.slice(0, step), entry.value, ...list.slice(step + 1)] };
  }
  const group = typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
  const member = withValue((group as Readonly<Record<string, unknown>>)[step], rest, part);
  return member && { value: Object.assign(Object.create(null) as object, group, { [step]: member.value }) };
}
