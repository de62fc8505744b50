import type { TSchema } from 'typebox';
import type { Capabilities } from '../catalog/model.ts';
import type { Config, ModelConfig } from './config.ts';
import { decimalText } from './decimal.ts';
import { defaultModels } from './defaults.ts';
import { readYaml, type Path, type SourceDocument } from './document.ts';
import { environmentVariables, type Environment } from './environment.ts';

/** One setting in force. */
export interface Setting {
  /** Its name in messages, for example `models[0].pricing.input_dollars_per_million`. */
  readonly key: string;
  /** `undefined`: not set, and without a default. Secrets are masked. */
  readonly value: Scalar | undefined;
  /** `default`, `tokenhouse.yaml:3`, or `environment` with the name of the variable. */
  readonly source: string;
}

type Scalar = string | number | boolean | null;

const masked = '(secret)';

/** The part of the schema that locates settings. */
interface Node {
  readonly default?: Scalar;
  readonly writeOnly?: boolean;
  readonly properties?: Readonly<Record<string, Node>>;
  readonly items?: Node;
  readonly anyOf?: readonly Node[];
  readonly const?: unknown;
}

/**
 * Everything that the configuration and the environment decide, and the source of each value. `config` is what the boot code made
 * of the same text, so the schema's own defaults are in force wherever the text says nothing.
 */
export function settingsOf(
  config: Config,
  found: { readonly text: string; readonly shownAs: string },
  schema: TSchema,
  environment: Environment,
): readonly Setting[] {
  const document = readYaml(found.text);
  const file = (document.value ?? {}) as Readonly<Record<string, unknown>>;
  const models = file['models'] ?? (readYaml(defaultModels).value as { readonly models: unknown }).models;
  const derived = derivedFrom(config);
  const ofFile = leavesOf(schema as Node, { ...file, models }, []).map(([path, value]): Setting => {
    const key = keyOf(path);
    return { key, value: derived.has(key) ? derived.get(key) : value, source: sourceOf(path, document, found.shownAs) };
  });
  return [...ofFile, ...ofEnvironment(environment)];
}

/** The settings of a value with their defaults; `undefined` where there is neither. */
function leavesOf(node: Node, value: unknown, path: Path): readonly (readonly [Path, Scalar | undefined])[] {
  if (node.properties !== undefined) {
    const group = (value ?? {}) as Readonly<Record<string, unknown>>;
    return Object.entries(node.properties).flatMap(([key, member]) => leavesOf(member, group[key], [...path, key]));
  }
  if (node.anyOf?.every((choice) => choice.properties !== undefined) === true) {
    const { engine } = value as { readonly engine?: unknown };
    const chosen = node.anyOf.find((choice) => choice.properties?.['engine']?.const === engine);
    return chosen === undefined ? [] : leavesOf(chosen, value, path);
  }
  if (path.at(-1) === 'scripts') return [[path, `${(value as readonly unknown[]).length} scripts`]];
  if (node.items !== undefined) {
    const { items } = node;
    // A list of words that is left out may still have a value (`derivedFrom`).
    if (value === undefined && items.properties === undefined) return [[path, undefined]];
    return ((value ?? []) as readonly unknown[]).flatMap((entry, index) => leavesOf(items, entry, [...path, index]));
  }
  const scalar = (value === undefined ? node.default : value) as Scalar | undefined;
  return [[path, node.writeOnly === true && value !== undefined ? masked : scalar]];
}

/** Values that the boot code derives: where a default depends on something else, or the value in use is not the written one. */
function derivedFrom(config: Config): ReadonlyMap<string, Scalar | undefined> {
  const { storage } = config;
  const stored = storage.type === 'sqlite' ? `sqlite:${storage.path}` : storage.shown;
  const derived = new Map<string, Scalar | undefined>([['storage', stored]]);
  for (const [index, model] of config.models.entries()) {
    const at = `models[${index}]`;
    derived.set(`${at}.display_name`, model.displayName);
    for (const [flag, is] of flagsOf(model)) derived.set(`${at}.${flag}`, is);
    const { pricing } = model;
    for (const [name, microcents] of [
      ['input', pricing.inputMicrocentsPerMillion],
      ['output', pricing.outputMicrocentsPerMillion],
      ['cache_read', pricing.cacheReadMicrocentsPerMillion],
    ] as const)
      derived.set(`${at}.pricing.${name}_dollars_per_million`, Number(decimalText(microcents, 8)));
    for (const [place, backend] of model.backends.entries()) {
      const key = `${at}.backends[${place}]`;
      derived.set(`${key}.name`, backend.name);
      if (backend.engine === 'openai') derived.set(`${key}.api_key`, backend.apiKey === undefined ? undefined : masked);
      // The label of a source holds no credentials.
      if (backend.engine === 'llama')
        for (const [source, { label }] of backend.sources.entries()) derived.set(`${key}.sources[${source}]`, label);
    }
  }
  return derived;
}

/** The flags of the cards, under the keys of the file. */
function flagsOf({ capabilities, zdrCapabilities }: ModelConfig): readonly (readonly [string, Scalar])[] {
  const inSnake = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const booleans = (group: object, at: string): [string, Scalar][] =>
    Object.entries(group).flatMap(([name, is]) => (typeof is === 'boolean' ? [[`${at}.${inSnake(name)}`, is]] : []));
  const ofAnyApi = ({ vision, tools, reasoning, chat: { logprobs, logitBias } }: Capabilities) => {
    return { vision, tools, reasoning, logprobs, logitBias };
  };
  return [
    ...booleans(ofAnyApi(capabilities), 'capabilities'),
    ...booleans(capabilities.chat, 'capabilities.chat_completions'),
    ...booleans(capabilities.responses, 'capabilities.responses'),
    ['capabilities.responses.text_format', capabilities.responses.textFormats.join(', ')],
    ...booleans(capabilities.messages, 'capabilities.messages'),
    // `tools` of any API; `supported` is about zero data retention, not about chat.
    ...booleans({ ...zdrCapabilities.chat, ...ofAnyApi(zdrCapabilities), supported: capabilities.zdr }, 'zdr'),
    ['reasoning.efforts', capabilities.efforts.join(', ')],
    ['reasoning.default', capabilities.defaultEffort],
  ];
}

/** Alternative keys in the file for the same thing. */
const otherNames: Readonly<Record<string, readonly string[]>> = {
  api_key: ['api_key_env'],
  input_dollars_per_million: ['input_cents_per_million'],
  output_dollars_per_million: ['output_cents_per_million'],
  cache_read_dollars_per_million: ['cache_read_cents_per_million', 'cache_read_microcents_per_million'],
};

function sourceOf(path: Path, document: SourceDocument, shownAs: string): string {
  const last = path.at(-1)!;
  const others = typeof last === 'string' ? (otherNames[last] ?? []) : [];
  for (const candidate of [path, ...others.map((other) => [...path.slice(0, -1), other])]) {
    if (!document.has(candidate)) continue;
    const where = `${shownAs}:${document.placeOf(candidate).line}`;
    return candidate.at(-1) === 'api_key_env' ? `environment ${document.textOf(candidate)} (${where})` : where;
  }
  return 'default';
}

function ofEnvironment(environment: Environment): readonly Setting[] {
  const value = (name: string): Scalar | undefined => {
    const set = environment.variable(name);
    if (set === undefined) return name === 'TOKENHOUSE_MODEL_DIR' ? environment.modelDirectory : undefined;
    if (['TOKENHOUSE_SECRET', 'TOKENHOUSE_KEY', 'TOKENHOUSE_SMTP_PASSWORD', 'HF_TOKEN'].includes(name)) return masked;
    return name === 'TOKENHOUSE_MODEL_DIR' ? environment.modelDirectory : set;
  };
  return Object.keys(environmentVariables).map((name) => ({
    key: name,
    value: value(name),
    source: environment.variable(name) === undefined ? 'default' : `environment ${name}`,
  }));
}

function keyOf(path: Path): string {
  return path.map((step, index) => (typeof step === 'number' ? `[${step}]` : index === 0 ? step : `.${step}`)).join('');
}
