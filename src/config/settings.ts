import { tagOf } from './check.ts';
import { defaultModels } from './defaults.ts';
import type { Path } from './document.ts';
import { environmentVariables, secretVariables, type Environment } from './environment.ts';
import { keyOf, type ReadSettings } from './read.ts';
import type { SchemaNode } from '../platform/schema-node.ts';
import type { Scalar } from './setting.ts';

/** One setting in force. */
export interface Setting {
  /** Its name in messages, for example `models[0].pricing.input_dollars_per_million`. */
  readonly key: string;
  /** `undefined`: not set, and without a default. Secrets are masked. */
  readonly value: Scalar | undefined;
  /** `default`, `tokenhouse.yaml:3`, or `environment` or `option` followed by the name. */
  readonly source: string;
}

const masked = '(secret)';

/**
 * Everything that the configuration and the environment decide, and the source of each value: as the boot code read the same text,
 * so the schema's own defaults apply wherever the text says nothing.
 */
export function settingsOf(
  read: ReadSettings,
  shownAs: string,
  schema: SchemaNode,
  environment: Environment,
): readonly Setting[] {
  const { given, shown } = read;
  const written = (given.value ?? {}) as Readonly<Record<string, unknown>>;
  const models = written['models'] ?? defaultModels;
  const settings = leavesOf(schema, { ...written, models }, []).map(([path, value]): Setting => {
    const key = keyOf(path);
    return { key, value: shown.has(key) ? shown.get(key) : value, source: sourceOf(path, read, shownAs) };
  });
  return [...settings, ...ofEnvironment(environment)];
}

/** The settings of a value with their defaults; `undefined` if there is neither. */
function leavesOf(node: SchemaNode, value: unknown, path: Path): readonly (readonly [Path, Scalar | undefined])[] {
  if (node.properties !== undefined) {
    const group = (value ?? {}) as Readonly<Record<string, unknown>>;
    return Object.entries(node.properties).flatMap(([key, member]) => leavesOf(member, group[key], [...path, key]));
  }
  const tag = node.anyOf === undefined ? undefined : tagOf(node.anyOf);
  if (tag !== undefined) {
    const said = (value as Readonly<Record<string, unknown>> | undefined)?.[tag];
    const chosen = node.anyOf!.find((choice) => choice.properties?.[tag]?.const === said);
    return chosen === undefined ? [] : leavesOf(chosen, value, path);
  }
  if (path.at(-1) === 'scripts') return [[path, `${(value as readonly unknown[]).length} scripts`]];
  if (node.items !== undefined) {
    const { items } = node;
    // An omitted list of words may still have a value (`ReadSettings.shown`).
    if (value === undefined && items.properties === undefined) return [[path, undefined]];
    return ((value ?? []) as readonly unknown[]).flatMap((entry, index) => leavesOf(items, entry, [...path, index]));
  }
  const scalar = (value === undefined ? node.default : value) as Scalar | undefined;
  return [[path, node.writeOnly === true && value !== undefined ? masked : scalar]];
}

/** Alternative keys in the file for the same thing. */
const otherNames: Readonly<Record<string, readonly string[]>> = {
  api_key: ['api_key_env'],
  input_dollars_per_million: ['input_cents_per_million'],
  output_dollars_per_million: ['output_cents_per_million'],
  cache_read_dollars_per_million: ['cache_read_cents_per_million', 'cache_read_microcents_per_million'],
};

function sourceOf(path: Path, { given, lineOf }: ReadSettings, shownAs: string): string {
  const last = path.at(-1)!;
  const others = typeof last === 'string' ? (otherNames[last] ?? []) : [];
  for (const candidate of [path, ...others.map((other) => [...path.slice(0, -1), other])]) {
    if (!given.has(candidate)) continue;
    const where = given.overrideAt(candidate)?.source ?? `${shownAs}:${lineOf(candidate)}`;
    return candidate.at(-1) === 'api_key_env' ? `environment ${given.textOf(candidate)} (${where})` : where;
  }
  return 'default';
}

function ofEnvironment(environment: Environment): readonly Setting[] {
  const value = (name: string): Scalar | undefined => {
    const set = environment.variable(name);
    if (name === 'TOKENHOUSE_MODEL_DIR') return environment.modelDirectory;
    return set !== undefined && secretVariables.includes(name) ? masked : set;
  };
  const source = (name: string): string => {
    if (environment.variable(name) === undefined) return 'default';
    return `environment ${environment.variable(`${name}_FILE`) === undefined ? name : `${name}_FILE`}`;
  };
  return Object.keys(environmentVariables).map((name) => ({ key: name, value: value(name), source: source(name) }));
}
