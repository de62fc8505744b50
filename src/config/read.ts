import { check, withoutFaults } from './check.ts';
import type { Config } from './config.ts';
import { readYaml, type Path } from './document.ts';
import type { Environment } from './environment.ts';
import { identityOf } from './identity.ts';
import { overridesOf, withOverrides, type GivenSettings, type Override } from './overrides.ts';
import { ConfigError, type Problem } from './problem.ts';
import type { SchemaNode } from '../platform/schema-node.ts';
import { configSetting } from './schema.ts';
import type { Reading, Scalar } from './setting.ts';

export interface ReadOptions {
  /** Absolute path of the file; `undefined` if the text is not from a file. */
  readonly file?: string | undefined;
  /** The name of the file in messages. */
  readonly shownAs?: string | undefined;
  /** The base of relative paths. */
  readonly directory: string;
  readonly environment: Environment;
  readonly scriptSchema?: SchemaNode | undefined;
  /** Settings from command line options. */
  readonly overrides?: readonly Override[] | undefined;
  /** See `LoadOptions`. */
  readonly running?: Config | undefined;
}

/**
 * Reads the text of a `tokenhouse.yaml` into a complete, checked and frozen configuration, overridden by variables and options.
 * Throws `ConfigError` with all faults, in the order of the file: only those of the YAML if there are any, because nothing after
 * them can be trusted; otherwise faults of shape, and faults of meaning in what has the right shape.
 */
export const readConfig = (text: string, options: ReadOptions): Config => readSettings(text, options).config;

export interface ReadSettings {
  readonly config: Config;
  readonly given: GivenSettings;
  /** The line of the file with the setting at a path; `undefined` if the file does not have it. */
  readonly lineOf: (path: Path) => number | undefined;
  /** Values to show that neither the file nor a default of the schema has, by the `keyOf` of their paths. */
  readonly shown: ReadonlyMap<string, Scalar | undefined>;
}

/** Reads the configuration, and what `config show` needs to know about the text. Throws like `readConfig`. */
export function readSettings(text: string, options: ReadOptions): ReadSettings {
  const document = readYaml(text);
  const shownAs = options.shownAs ?? 'tokenhouse.yaml';
  const inFile = ({ line, column }: { readonly line: number; readonly column: number }): string =>
    `${shownAs}:${line}:${column}`;
  if (document.faults.length > 0)
    throw new ConfigError(document.faults.map(({ place, what }) => ({ where: inFile(place), what })));

  const setting = configSetting(options.scriptSchema);
  const ofVariables = overridesOf(options.environment.settings, setting.schema);
  const given = withOverrides(document, [...ofVariables.overrides, ...(options.overrides ?? [])], setting.schema);
  const where = (path: Path, at: 'key' | 'value' = 'value'): string =>
    given.overrideAt(path)?.name ?? inFile(at === 'key' ? document.placeOfKey(path) : document.placeOf(path));
  const value = given.value ?? {};
  const findings = check(setting.schema, value);
  const problems: Problem[] = findings.map(({ path, at, what }) => ({ where: where(path, at), what }));
  const ofShape = new Set(problems.map((problem) => problem.where));
  // Ports and sizes are compared with each other; a comparison with a removed one would be wrong.
  const isServerWhole = !findings.some(({ path: [section] }) => section === 'server');
  const report = (at: Path, what: string): void => {
    const place = where(at);
    if (!ofShape.has(place) && (isServerWhole || at[0] !== 'server')) problems.push({ where: place, what });
  };

  const shown = new Map<string, Scalar | undefined>();
  const fixed: Record<string, unknown> = {};
  const reading: Reading = {
    directory: options.directory,
    environment: options.environment,
    report,
    isWritten: given.has,
    isInFile: (at) => given.overrideAt(at) === undefined && document.has(at),
    textOf: given.textOf,
    show: (at, inUse) => void shown.set(keyOf(at), inUse),
    fix: (at, inUse) => void (fixed[keyOf(at)] = inUse),
  };
  const written = findings.length === 0 ? value : withoutFaults(setting.schema, value);
  const config: Config = { file: options.file, fixed, ...setting.read(written, [], reading) };
  if (options.running !== undefined) {
    // The content may have disappeared: the service was not started with variables alone.
    if (options.running.file !== undefined && document.value === null)
      report([], 'the file is empty, and a running service cannot return to the defaults; restart it instead');
    else refuseRestart(options.running, config, given, report);
  }
  problems.unshift(...ofVariables.problems, ...given.problems);
  if (problems.length > 0) throw new ConfigError(inOrderOfTheFile(problems));
  const lineOf = (path: Path): number | undefined => (document.has(path) ? document.placeOf(path).line : undefined);
  return { config: deepFreeze(config), given, lineOf, shown };
}

/** Refuses a file as a whole if it changes what is fixed for the life of the process (reliability S8). */
function refuseRestart(running: Config, next: Config, { has }: GivenSettings, report: Reading['report']): void {
  const changed = Object.keys(next.fixed).filter(
    (key) => identityOf([running.fixed[key]]) !== identityOf([next.fixed[key]]),
  );
  const isServerMoved = changed.some((key) => key.startsWith('server.'));
  for (const key of changed) {
    const at = key.split('.');
    // The default payment provider follows from the addresses, which then have their own message.
    if (key === 'payments.provider' && isServerMoved && !has(at)) continue;
    report(at, `${key} cannot change while the service runs; restart it, or put the old value back`);
  }
}

/** The name of a setting in messages, for example `models[0].pricing.input_dollars_per_million`. */
export const keyOf = (path: Path): string =>
  path.map((step, index) => (typeof step === 'number' ? `[${step}]` : index === 0 ? step : `.${step}`)).join('');

/** Problems outside the file come first. */
function inOrderOfTheFile(problems: readonly Problem[]): Problem[] {
  const place = ({ where }: Problem) => {
    const [, line, column] = /:(\d+):(\d+)$/.exec(where) ?? [];
    return [Number(line ?? 0), Number(column ?? 0)] as const;
  };
  return problems.toSorted((a, b) => place(a)[0] - place(b)[0] || place(a)[1] - place(b)[1]);
}

function deepFreeze<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}
