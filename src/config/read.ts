import { check, withoutFaults } from './check.ts';
import type { Config } from './config.ts';
import { readYaml, type Path, type SourceDocument } from './document.ts';
import type { Environment } from './environment.ts';
import { identityOf } from './identity.ts';
import { ConfigError, type Problem } from './problem.ts';
import type { SchemaNode } from '../platform/schema-node.ts';
import { configSetting } from './schema.ts';
import type { Reading, Scalar } from './setting.ts';

export interface ReadOptions {
  /** Absolute path of the file; `undefined` when the text is not from a file. */
  readonly file?: string | undefined;
  /** The name of the file in messages. */
  readonly shownAs?: string | undefined;
  /** The base of relative paths. */
  readonly directory: string;
  readonly environment: Environment;
  readonly scriptSchema?: SchemaNode | undefined;
  /** See `LoadOptions`. */
  readonly running?: Config | undefined;
}

/**
 * The text of a `tokenhouse.yaml` as a complete, checked and frozen configuration. Throws `ConfigError` with everything that is
 * wrong, in the order of the file: faults of the YAML alone, because nothing after them can be trusted, else the faults of shape,
 * together with the faults of meaning in what has the right shape.
 */
export const readConfig = (text: string, options: ReadOptions): Config => readSettings(text, options).config;

export interface ReadSettings {
  readonly config: Config;
  readonly document: SourceDocument;
  /** Values to show where neither the file nor a default of the schema has them, by `keyOf` their paths. */
  readonly shown: ReadonlyMap<string, Scalar | undefined>;
}

/** The configuration, and what `config show` needs to know of the text. Throws like `readConfig`. */
export function readSettings(text: string, options: ReadOptions): ReadSettings {
  const document = readYaml(text);
  const shownAs = options.shownAs ?? 'tokenhouse.yaml';
  const where = ({ line, column }: { readonly line: number; readonly column: number }): string =>
    `${shownAs}:${line}:${column}`;
  if (document.faults.length > 0)
    throw new ConfigError(document.faults.map(({ place, what }) => ({ where: where(place), what })));

  const setting = configSetting(options.scriptSchema);
  const value = document.value ?? {};
  const findings = check(setting.schema, value);
  const problems: Problem[] = findings.map(({ path, at, what }) => ({
    where: where(at === 'key' ? document.placeOfKey(path) : document.placeOf(path)),
    what,
  }));
  const ofShape = new Set(problems.map((problem) => problem.where));
  // Ports and sizes are compared with each other; a comparison with a removed one would be wrong.
  const isServerWhole = !findings.some(({ path: [section] }) => section === 'server');
  const report = (at: Path, what: string): void => {
    const place = where(document.placeOf(at));
    if (!ofShape.has(place) && (isServerWhole || at[0] !== 'server')) problems.push({ where: place, what });
  };

  const shown = new Map<string, Scalar | undefined>();
  const fixed: Record<string, unknown> = {};
  const reading: Reading = {
    directory: options.directory,
    environment: options.environment,
    report,
    isWritten: document.has,
    textOf: document.textOf,
    show: (at, inUse) => void shown.set(keyOf(at), inUse),
    fix: (at, inUse) => void (fixed[keyOf(at)] = inUse),
  };
  const written = findings.length === 0 ? value : withoutFaults(setting.schema, value);
  const config: Config = { file: options.file, fixed, ...setting.read(written, [], reading) };
  if (options.running !== undefined) refuseRestart(options.running, config, document, report);
  if (problems.length > 0) throw new ConfigError(inOrderOfTheFile(problems));
  return { config: deepFreeze(config), document, shown };
}

/** A file that changes what is bound for the life of the process is refused as a whole (reliability S8). */
function refuseRestart(running: Config, next: Config, { value, has }: SourceDocument, report: Reading['report']): void {
  if (running.file !== undefined && value === null) {
    report([], 'the file is empty, and a running service cannot return to the defaults; restart it instead');
    return;
  }
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

function inOrderOfTheFile(problems: readonly Problem[]): Problem[] {
  const place = (problem: Problem) => problem.where.split(':').slice(-2).map(Number) as [number, number];
  return problems.toSorted((a, b) => place(a)[0] - place(b)[0] || place(a)[1] - place(b)[1]);
}

function deepFreeze<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}
