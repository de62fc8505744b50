import { camel, type Camel } from '../platform/camel-case.ts';
import type { Path } from './document.ts';
import type { Environment } from './environment.ts';
import type { SchemaNode } from '../platform/schema-node.ts';

/**
 * A setting, or a group or list of them, declared once: its schema (for the checks, editors, `init` and the documentation) and how
 * its value in the file becomes the value in use. The type of the configuration follows from the settings (`config.ts`).
 */
export interface Setting<out Value> {
  readonly schema: SchemaNode;
  /** Whether a group is invalid without it. */
  readonly isRequired: boolean;
  /** `written` has the form of the schema; `undefined`: not in the file. */
  read(written: unknown, at: Path, reading: Reading): Value;
}

export type ValueOf<Of> = Of extends Setting<infer Value> ? Value : never;

/** What settings can access of the file and of this computer while they are read. */
export interface Reading {
  /** The base of relative paths. */
  readonly directory: string;
  readonly environment: Environment;
  /** Reports a fault of meaning. */
  report(at: Path, what: string): void;
  /** Whether the file, a variable or an option has this key, with a valid value or not. */
  isWritten(at: Path): boolean;
  /** Whether its value is in the file, where others may read it. */
  isInFile(at: Path): boolean;
  /** A scalar exactly as written, such as `0.10`; `undefined` for a default. */
  textOf(at: Path): string | undefined;
  /** Sets the value that `config show` prints, if it is neither the written one nor the schema's default. */
  show(at: Path, value: Scalar | undefined): void;
  /** Sets the value that a running service keeps until a restart. */
  fix(at: Path, value: unknown): void;
}

export type Scalar = string | number | boolean | null;

/** Without a default, the value of an omitted setting is `undefined`. */
type Given<Value> =
  { readonly default: Value; readonly example?: unknown } | { readonly default?: undefined; readonly example: unknown };
type InUse<Value, Of> = Of extends { readonly default: unknown }
  ? undefined extends Of['default']
    ? Value | undefined
    : Value
  : Value | undefined;

/** `convert` makes the value in use from the written one, or from the default. */
function leaf<Written, Value, const Of extends Given<Written>>(
  schema: SchemaNode,
  description: string,
  given: Of,
  convert: (written: Written, at: Path, reading: Reading) => Value,
): Setting<InUse<Value, Of>> {
  const { default: byDefault, example = byDefault } = given as { default?: Written; example?: unknown };
  return {
    schema: {
      ...schema,
      description,
      examples: [example],
      ...(byDefault === undefined ? {} : { default: byDefault }),
    },
    isRequired: false,
    read: (written, at, reading) => {
      const value = written === undefined ? byDefault : (written as Written);
      return (value === undefined ? undefined : convert(value, at, reading)) as InUse<Value, Of>;
    },
  };
}

const asWritten = <Value>(value: Value): Value => value;

export function integer<const Of extends Given<number>>(
  minimum: number,
  maximum: number,
  description: string,
  given: Of,
): Setting<InUse<number, Of>> {
  return leaf({ type: 'integer', minimum, maximum }, description, given, asWritten<number>);
}

export const flag = <const Of extends Given<boolean>>(description: string, given: Of): Setting<InUse<boolean, Of>> =>
  leaf({ type: 'boolean' }, description, given, asWritten<boolean>);

export const text = <const Of extends Given<string>>(description: string, given: Of): Setting<InUse<string, Of>> =>
  leaf({ type: 'string', minLength: 1, maxLength: 1000 }, description, given, asWritten<string>);

/** A string that matches a pattern. */
export const textLike = <const Of extends Given<string>>(
  pattern: string,
  description: string,
  given: Of,
): Setting<InUse<string, Of>> => leaf({ type: 'string', pattern }, description, given, asWritten<string>);

/** A line of printable text. */
export const line = <const Of extends Given<string>>(description: string, given: Of): Setting<InUse<string, Of>> =>
  textLike('^[^\\x00-\\x1f\\x7f]{1,200}$', description, given);

/** One of several words. */
export function choice<const Word extends string, const Of extends Given<NoInfer<Word>>>(
  words: readonly Word[],
  description: string,
  given: Of,
): Setting<InUse<Word, Of>> {
  return leaf({ anyOf: words.map(wordSchema) }, description, given, asWritten<Word>);
}

export const wordSchema = (word: string): SchemaNode => ({ type: 'string', const: word });

/** The word that distinguishes a group from its alternatives: `engine: llama`. */
export const tag = <const Word extends string>(word: Word, description: string): Setting<Word> => ({
  schema: { ...wordSchema(word), description },
  isRequired: true,
  read: () => word,
});

/** The URL of a server, without a trailing slash. */
export const url = (description: string, example: string): Setting<string | undefined> =>
  leaf(
    { type: 'string', pattern: '^https?://[^\\s/?#]+[^\\s?#]*$', maxLength: 2000 },
    description,
    { example },
    withoutSlash,
  );

export const withoutSlash = (text: string): string => text.replace(/\/+$/, '');

/** Converts seconds to milliseconds: `drain_timeout_seconds` becomes `drainTimeoutMs`. */
export const seconds = (description: string, byDefault: number): Setting<number> =>
  leaf(
    { type: 'number', exclusiveMinimum: 0, maximum: 86_400 },
    description,
    { default: byDefault },
    (written: number) => milliseconds(written, 1000),
  );

/** Converts to milliseconds; one written unit is `parts` of them. */
export const milliseconds = (written: number, parts: number): number => Math.max(1, Math.round(written * parts));

/** Any number in a range, converted by `convert`. */
export const number = <Value, const Of extends Given<number>>(
  range: Pick<SchemaNode, 'minimum' | 'maximum' | 'exclusiveMinimum'>,
  description: string,
  given: Of,
  convert: (written: number, at: Path, reading: Reading) => Value,
): Setting<InUse<Value, Of>> => leaf({ type: 'number', ...range }, description, given, convert);

/** A value with a schema from another part, used as written. */
export const value = <Value = unknown>(schema: SchemaNode): Setting<Value> => ({
  schema,
  isRequired: false,
  read: (written) => written as Value,
});

export const required = <Value>(setting: Setting<Value>): Setting<Exclude<Value, undefined>> =>
  ({ ...setting, isRequired: true }) as Setting<Exclude<Value, undefined>>;

/** A group or list that is `undefined` if omitted. */
export const optional = <Value>(setting: Setting<Value>): Setting<Value | undefined> => ({
  ...setting,
  read: (written, at, reading) => (written === undefined ? undefined : setting.read(written, at, reading)),
});

/** Never shown, nor repeated in messages. */
export const hidden = <Value>(setting: Setting<Value>): Setting<Value> => ({
  ...setting,
  schema: { ...setting.schema, writeOnly: true },
});

/** Needs a restart; its group passes what is compared to `Reading.fix`. */
export const partUntilRestart = <Value>(setting: Setting<Value>): Setting<Value> => ({
  ...setting,
  schema: { ...setting.schema, 'x-restart': true },
});

/** Fixed when the process starts, so a running service refuses a file that changes it (reliability S8). */
export const untilRestart = <Value>(setting: Setting<Value>): Setting<Value> => ({
  ...partUntilRestart(setting),
  read: (written, at, reading) => {
    const inUse = setting.read(written, at, reading);
    reading.fix(at, inUse);
    return inUse;
  },
});

type Members = Readonly<Record<string, Setting<unknown>>>;
export type ValuesOf<Of extends Members> = {
  readonly [Key in keyof Of & string as FieldName<Key>]: ValueOf<Of[Key]>;
};

/** Renames settings whose value has another unit: `window_hours` becomes `windowMs`. */
type FieldName<Key extends string> = Key extends `${infer Name}_seconds`
  ? Camel<`${Name}_ms`>
  : Key extends `${infer Name}_minutes`
    ? Camel<`${Name}_ms`>
    : Key extends `${infer Name}_hours`
      ? Camel<`${Name}_ms`>
      : Key extends `${infer Name}_cents`
        ? Camel<`${Name}_microcents`>
        : Camel<Key>;

const fieldName = (key: string): string =>
  camel(key.replace(/_(seconds|minutes|hours)$/, '_ms').replace(/_cents$/, '_microcents'));

/** Makes the value of a group or list from its members' values, and reports faults in their combination. */
type Become<Members, Value> = (members: Members, at: Path, reading: Reading) => Value;

/** A group of settings, all of which are in use whether or not the file has the group. */
export function group<const Of extends Members>(description: string, members: Of): Setting<ValuesOf<Of>>;
export function group<const Of extends Members, Value>(
  description: string,
  members: Of,
  become: Become<ValuesOf<Of>, Value>,
): Setting<Value>;
export function group<Of extends Members, Value>(
  description: string,
  members: Of,
  become?: Become<ValuesOf<Of>, Value>,
): Setting<unknown> {
  const named = Object.entries(members).map(([key, member]) => ({ key, field: fieldName(key), member }));
  const requiredKeys = named.filter(({ member }) => member.isRequired).map(({ key }) => key);
  return {
    schema: {
      type: 'object',
      ...(requiredKeys.length === 0 ? {} : { required: requiredKeys }),
      properties: Object.fromEntries(named.map(({ key, member }) => [key, member.schema])),
      additionalProperties: false,
      description,
    },
    isRequired: false,
    read: (written, at, reading) => {
      const given = (written ?? {}) as Readonly<Record<string, unknown>>;
      const values = Object.fromEntries(
        named.map(({ key, field, member }) => [field, member.read(given[key], [...at, key], reading)]),
      ) as ValuesOf<Of>;
      return become === undefined ? values : become(values, at, reading);
    },
  };
}

interface ListShape {
  readonly description: string;
  readonly minItems?: number;
  readonly maxItems: number;
  readonly example?: unknown;
}

/** An entry of a list, with its position in the file. */
export type Entry<Value> = readonly [index: number, value: Exclude<Value, undefined>];

/** A list; empty if omitted. */
export function list<Item>(item: Setting<Item>, shape: ListShape): Setting<readonly Exclude<Item, undefined>[]>;
export function list<Item, Value>(
  item: Setting<Item>,
  shape: ListShape,
  become: Become<readonly Entry<Item>[], readonly Value[]>,
): Setting<readonly Value[]>;
export function list<Item, Value>(
  item: Setting<Item>,
  { description, minItems, maxItems, example }: ListShape,
  become?: Become<readonly Entry<Item>[], readonly Value[]>,
): Setting<unknown> {
  return {
    schema: {
      type: 'array',
      items: item.schema,
      ...(minItems === undefined ? {} : { minItems }),
      maxItems,
      description,
      ...(example === undefined ? {} : { examples: [example] }),
    },
    isRequired: false,
    read: (written, at, reading) => {
      // The gaps are what `withoutFaults` has removed, so that the others keep their positions.
      const entries = [...((written ?? []) as readonly unknown[]).entries()]
        .filter(([, entry]) => entry !== undefined)
        .map(([index, entry]) => [index, item.read(entry, [...at, index], reading)] as const)
        .filter((entry): entry is Entry<Item> => entry[1] !== undefined);
      return become === undefined ? entries.map(([, entry]) => entry) : become(entries, at, reading);
    },
  };
}

/** Groups distinguished by the constant of one key. */
export function oneOf<const Groups extends readonly Setting<unknown>[]>(
  key: string,
  groups: Groups,
): Setting<ValueOf<Groups[number]>> {
  return {
    schema: { anyOf: groups.map(({ schema }) => schema) },
    isRequired: false,
    read: (written, at, reading) => {
      const chosen = (written as Readonly<Record<string, unknown>>)[key];
      const own = groups.find(({ schema }) => schema.properties?.[key]?.const === chosen);
      return own!.read(written, at, reading) as ValueOf<Groups[number]>;
    },
  };
}

/** Reports each entry that duplicates an earlier one: `identityOf` is the same for both. */
export function reportTwins<Value>(
  entries: readonly Entry<Value>[],
  identityOf: (value: Entry<Value>[1]) => string,
  report: (entry: Entry<Value>, earlier: Entry<Value>[1]) => void,
): void {
  const seen = new Map<string, Entry<Value>[1]>();
  for (const entry of entries) {
    const identity = identityOf(entry[1]);
    const earlier = seen.get(identity);
    if (earlier !== undefined) report(entry, earlier);
    seen.set(identity, entry[1]);
  }
}
