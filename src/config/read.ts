import path from 'node:path';
import type { TSchema } from 'typebox';
import { parseSource, type ModelFileSource } from '../model-files/source.ts';
import { check } from './check.ts';
import type {
  BackendConfig,
  Config,
  LimitsConfig,
  ListenConfig,
  ModelConfig,
  PricingConfig,
  ServerConfig,
  StorageConfig,
} from './config.ts';
import { scaledDecimal } from './decimal.ts';
import { defaultFirstCreditCents, defaultLimits, defaultModels, defaultServer, defaultStorage } from './defaults.ts';
import { readYaml, type Path, type SourceDocument } from './document.ts';
import type { Environment } from './environment.ts';
import { ConfigError, type Problem } from './problem.ts';
import { configSchema, type BackendInFile, type ConfigFile, type ModelInFile } from './schema.ts';
import { Secret } from './secret.ts';

export interface ReadOptions {
  /** Absolute path of the file; `undefined` when the text is none of a file. */
  readonly file?: string | undefined;
  /** What messages call the file. */
  readonly shownAs?: string | undefined;
  /** Relative paths count from here. */
  readonly directory: string;
  readonly environment: Environment;
  readonly scriptSchema?: TSchema | undefined;
}

/**
 * The text of a `tokenhouse.yaml` as a complete, checked and frozen configuration. Throws `ConfigError` with everything that
 * is wrong: faults of the YAML first, then of the shape, then of the meaning, because each step needs the one before.
 */
export function readConfig(text: string, options: ReadOptions): Config {
  const document = readYaml(text);
  const shownAs = options.shownAs ?? 'tokenhouse.yaml';
  const problems: Problem[] = document.faults.map(({ place, what }) => ({
    where: `${shownAs}:${place.line}:${place.column}`,
    what,
  }));
  if (problems.length > 0) throw new ConfigError(problems);

  const where = (at: Path, of: 'key' | 'value' = 'value'): string => {
    const place = of === 'key' ? document.placeOfKey(at) : document.placeOf(at);
    return `${shownAs}:${place.line}:${place.column}`;
  };
  const value = document.value ?? {};
  for (const finding of check(configSchema(options.scriptSchema), value)) {
    problems.push({ where: where(finding.path, finding.at), what: finding.what });
  }
  if (problems.length > 0) throw new ConfigError(inOrderOfTheFile(problems));

  const file = value as ConfigFile;
  const reading: Reading = { document, options, report: (at, what) => problems.push({ where: where(at), what }) };
  const config: Config = {
    file: options.file,
    server: serverOf(file, reading),
    storage: storageOf(file, reading),
    accounts: {
      firstCreditMicrocents:
        amount(reading, ['accounts', 'first_credit_cents'], 6) ?? scaledDecimal(defaultFirstCreditCents, 6)!,
    },
    models: file.models === undefined ? modelsOfDefaults(options) : modelsOf(file.models, reading),
  };
  if (problems.length > 0) throw new ConfigError(inOrderOfTheFile(problems));
  return deepFreeze(config);
}

/** What the steps after the shape check share. */
interface Reading {
  readonly document: SourceDocument;
  readonly options: ReadOptions;
  report(at: Path, what: string): void;
}

function inOrderOfTheFile(problems: readonly Problem[]): Problem[] {
  const place = (problem: Problem) => problem.where.split(':').slice(-2).map(Number) as [number, number];
  return problems.toSorted((a, b) => place(a)[0] - place(b)[0] || place(a)[1] - place(b)[1]);
}

function serverOf(file: ConfigFile, reading: Reading): ServerConfig {
  const inference = listenOf(file.server?.inference, defaultServer.inference);
  const account = listenOf(file.server?.account, defaultServer.account);
  if (inference.port === account.port && inference.port !== 0) {
    const at =
      file.server?.account?.port === undefined ? ['server', 'inference', 'port'] : ['server', 'account', 'port'];
    reading.report(
      at,
      `both hosts have port ${account.port}, and only one of them can listen there; give one of them another port`,
    );
  }
  return { inference, account, limits: limitsOf(file, reading) };
}

type ListenInFile = NonNullable<NonNullable<ConfigFile['server']>['inference']>;

function listenOf(
  listen: ListenInFile | undefined,
  defaults: { readonly host: string; readonly port: number },
): ListenConfig {
  return {
    host: listen?.host ?? defaults.host,
    port: listen?.port ?? defaults.port,
    publicUrl: listen?.public_url?.replace(/\/+$/, ''),
  };
}

function limitsOf(file: ConfigFile, reading: Reading): LimitsConfig {
  const limits = { ...defaultLimits, ...file.server?.limits };
  const milliseconds = (seconds: number) => Math.max(1, Math.round(seconds * 1000));
  if (limits.bodies_in_flight_bytes_max < limits.body_bytes_max) {
    const key =
      file.server?.limits?.bodies_in_flight_bytes_max === undefined ? 'body_bytes_max' : 'bodies_in_flight_bytes_max';
    reading.report(
      ['server', 'limits', key],
      'bodies_in_flight_bytes_max is below body_bytes_max, so the largest allowed body could never be taken; raise the one or lower the other',
    );
  }
  return {
    bodyBytesMax: limits.body_bytes_max,
    bodiesInFlightBytesMax: limits.bodies_in_flight_bytes_max,
    firstTokenTimeoutMs: milliseconds(limits.first_token_timeout_seconds),
    streamIdleTimeoutMs: milliseconds(limits.stream_idle_timeout_seconds),
    requestTimeoutMs: milliseconds(limits.request_timeout_seconds),
    primeTimeoutMs: milliseconds(limits.prime_timeout_seconds),
    drainTimeoutMs: milliseconds(limits.drain_timeout_seconds),
    readerStallTimeoutMs: milliseconds(limits.reader_stall_timeout_seconds),
    concurrencyPerAccountMax: limits.concurrency_per_account_max,
  };
}

function storageOf(file: ConfigFile, { options, report }: Reading): StorageConfig {
  const storage = file.storage ?? defaultStorage;
  if (!storage.startsWith('sqlite:')) {
    // The URL may hold a password, so it is not repeated.
    report(['storage'], `PostgreSQL is not built yet, so nothing could be stored; write ${defaultStorage}`);
  }
  const absolute = path.resolve(options.directory, storage.slice('sqlite:'.length));
  return { type: 'sqlite', path: absolute, directory: path.dirname(absolute) };
}

function modelsOfDefaults(options: ReadOptions): readonly ModelConfig[] {
  return readConfig(defaultModels, { ...options, shownAs: 'defaults', file: undefined }).models;
}

function modelsOf(models: readonly ModelInFile[], reading: Reading): readonly ModelConfig[] {
  const seen = new Map<string, string>();
  return models.map((model, index) => {
    const at: Path = ['models', index];
    const earlier = seen.get(model.id.toLowerCase());
    if (earlier !== undefined) {
      reading.report(
        [...at, 'id'],
        `the id "${model.id}" is taken by "${earlier}" (upper and lower case are the same), so requests could mean either; rename one`,
      );
    }
    seen.set(model.id.toLowerCase(), model.id);
    return modelOf(model, at, reading);
  });
}

function modelOf(model: ModelInFile, at: Path, reading: Reading): ModelConfig {
  const maxOutputTokens = model.max_output_tokens ?? null;
  if (maxOutputTokens !== null && maxOutputTokens > model.context_length) {
    reading.report(
      [...at, 'max_output_tokens'],
      `max_output_tokens is above context_length (${model.context_length}), which no answer can reach; lower it, or write null`,
    );
  }
  return {
    id: model.id,
    displayName: model.display_name ?? model.id,
    description: model.description,
    ownedBy: model.owned_by ?? 'tokenhouse',
    contextLength: model.context_length,
    maxOutputTokens,
    pricing: pricingOf(model, [...at, 'pricing'], reading),
    sampling: model.sampling ?? 'honor',
    capabilities: { vision: false, tools: false, reasoning: false },
    template: { defaultSystem: model.template?.default_system ?? 'template' },
    backends: backendsOf(model.backends, [...at, 'backends'], reading),
  };
}

function pricingOf(model: ModelInFile, at: Path, reading: Reading): PricingConfig {
  const { cache_read_cents_per_million: inCents, cache_read_microcents_per_million: inMicrocents } = model.pricing;
  if (inCents !== undefined && inMicrocents !== undefined) {
    reading.report(
      [...at, 'cache_read_cents_per_million'],
      'the cache price stands here twice, in cents and in microcents; keep one of the two',
    );
  }
  const input = amount(reading, [...at, 'input_cents_per_million'], 6) ?? 0n;
  const output = amount(reading, [...at, 'output_cents_per_million'], 6) ?? 0n;
  const cacheRead =
    amount(reading, [...at, 'cache_read_microcents_per_million'], 0) ??
    amount(reading, [...at, 'cache_read_cents_per_million'], 6) ??
    input;
  if (cacheRead > input) {
    // A hold is taken at the input price, and a charge never exceeds its hold (reliability I2).
    const key = inMicrocents === undefined ? 'cache_read_cents_per_million' : 'cache_read_microcents_per_million';
    reading.report(
      [...at, key],
      'cached tokens would cost more than uncached ones, and no hold covers that; lower it to the input price or below',
    );
  }
  return {
    inputMicrocentsPerMillion: input,
    outputMicrocentsPerMillion: output,
    cacheReadMicrocentsPerMillion: cacheRead,
  };
}

/** Largest price and credit, in microcents: sums of them stay far inside 64 bits. */
const amountMax = 10n ** 15n;

/** The amount at `path` in microcents, from its decimal text; `places` is 6 where it is written in cents. */
function amount({ document, report }: Reading, at: Path, places: 0 | 6): bigint | undefined {
  const text = document.textOf(at);
  if (text === undefined) return undefined;
  const microcents = scaledDecimal(text, places);
  if (microcents !== undefined && microcents <= amountMax) return microcents;
  const rule =
    places === 0
      ? 'a whole number of microcents, for example 2500000'
      : 'cents with at most six decimal places, for example 2.5';
  report(
    at,
    microcents === undefined
      ? `${String(at.at(-1))} is ${text.slice(0, 60)}, which cannot be counted exactly; write ${rule}`
      : `${String(at.at(-1))} is ${text.slice(0, 60)}, above the largest amount of ${amountMax} microcents; lower it`,
  );
  return 0n;
}

function backendsOf(backends: readonly BackendInFile[], at: Path, reading: Reading): readonly BackendConfig[] {
  const names = new Set<string>();
  return backends.map((backend, index) => {
    const name = backend.name ?? (backends.length === 1 ? backend.engine : `${backend.engine}-${index + 1}`);
    if (names.has(name))
      reading.report(
        [...at, index],
        `another backend of this model is called "${name}" too, so logs could not tell them apart; give it another name`,
      );
    names.add(name);
    return backendOf(backend, name, [...at, index], reading);
  });
}

const defaultQueue = 64;

function backendOf(backend: BackendInFile, name: string, at: Path, reading: Reading): BackendConfig {
  switch (backend.engine) {
    case 'llama':
      return {
        engine: 'llama',
        name,
        sources: sourcesOf(backend.sources, [...at, 'sources'], reading),
        sha256: backend.sha256.toLowerCase(),
        bytes: backend.bytes,
        slots: backend.slots,
        queueMax: backend.queue ?? defaultQueue,
        threads: backend.threads,
      };
    case 'openai':
      return {
        engine: 'openai',
        name,
        flavor: backend.flavor,
        url: backendUrl(backend.url, [...at, 'url'], reading),
        model: backend.model,
        apiKey: apiKeyOf(backend, at, reading),
        zdr: backend.zdr ?? false,
        concurrencyMax: backend.max_concurrency,
      };
    case 'scripted':
      return { engine: 'scripted', name, scripts: backend.scripts };
  }
}

function sourcesOf(sources: readonly string[], at: Path, { options, report }: Reading): readonly ModelFileSource[] {
  return sources.flatMap((text, index) => {
    const source = parseSource(text, options.directory);
    if (!('problem' in source)) return [source];
    report([...at, index], source.problem);
    return [];
  });
}

function backendUrl(text: string, at: Path, { report }: Reading): string {
  if (!URL.canParse(text))
    report(at, 'not a URL, so no request could be sent there; write for example http://10.0.0.5:8000/v1');
  else if (new URL(text).username !== '' || new URL(text).password !== '')
    report(at, 'a name or password in a URL ends up in logs; use api_key_env instead');
  return text.replace(/\/+$/, '');
}

function apiKeyOf(
  backend: Extract<BackendInFile, { engine: 'openai' }>,
  at: Path,
  { options, report }: Reading,
): Secret | undefined {
  if (backend.api_key_env === undefined) return backend.api_key === undefined ? undefined : new Secret(backend.api_key);
  if (backend.api_key !== undefined)
    report([...at, 'api_key'], 'the key stands here twice, as api_key and as api_key_env; keep one of the two');
  const value = options.environment.variable(backend.api_key_env);
  if (value !== undefined) return new Secret(value);
  report(
    [...at, 'api_key_env'],
    `the environment variable ${backend.api_key_env} is not set, so the server would refuse every request; set it, or remove this line`,
  );
  return undefined;
}

function deepFreeze<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}
