import { isIP } from 'node:net';
import type { Path } from '../document.ts';
import { parseSource, type ModelFileSource } from '../model-source.ts';
import { featureNames, type FeatureName } from '../../generation/feature-names.ts';
import { flavorNames } from '../../generation/flavor-names.ts';
import type { SchemaNode } from '../../platform/schema-node.ts';
import { Secret } from '../secret.ts';
import {
  choice,
  flag,
  group,
  hidden,
  integer,
  list,
  milliseconds,
  number,
  oneOf,
  optional,
  reportTwins,
  required,
  tag,
  text,
  textLike,
  value,
  wordSchema,
  type Reading,
  type Setting,
  type ValueOf,
} from '../setting.ts';
import { discovery, type DiscoveryConfig } from './discovery.ts';
import { managed } from './managed.ts';
import { serverUrl } from './server-url.ts';
import { loadAdapters, loadedAt, priorityAt } from './started-with.ts';

const engine = <Name extends string>(name: Name) => tag(name, 'the engine; it decides which other settings apply');

const common = {
  name: textLike(
    '^[ -~]{1,64}$',
    'name of the backend in logs and usage; when left out, the engine, numbered if there are several',
    { example: 'gpu-1' },
  ),
  disabled: flag('true: it gets no requests and is asked nothing, as during maintenance; the card stays as it is', {
    default: false,
    example: true,
  }),
  // The operator's assurance (reliability §4).
  zdr: flag('true when this backend retains nothing of a request that asks for it', { default: false, example: true }),
  rank: integer(
    1,
    100,
    'backends of rank 2 get requests when no backend of rank 1 can take them, and so on; when no backend of the model has a rank, those that differ only in address share the load, and the others come after them in the order of the file',
    { example: 2 },
  ),
  weight: number(
    { minimum: 0.01, maximum: 100 },
    'how much work it is given beside the other backends of its rank; its speed need not be said, it is measured',
    { default: 1, example: 2 },
    (written) => written,
  ),
};

const queue = integer(0, 1e6, 'maximum of requests that wait for a slot at this backend', { default: 64 });

/** Sources of the model file, in the order of attempts. */
const sources = required(
  list(
    text('a source of the model file', { example: 'hf:owner/repository/file.gguf@revision' }),
    {
      minItems: 1,
      maxItems: 16,
      description: 'sources of the model file, tried in order',
      example: ['hf:owner/repository/file.gguf@revision'],
    },
    (written, at, { directory, report, show }) =>
      written.flatMap(([index, source]) => {
        const parsed = parseSource(source, directory);
        if ('problem' in parsed) {
          report([...at, index], parsed.problem);
          return [];
        }
        // The label of a source holds no credentials.
        show([...at, index], parsed.label);
        return [parsed];
      }),
  ),
);

/** A file, identified by its content. */
export const modelFile = {
  sources,
  sha256: required(
    textLike('^[0-9a-fA-F]{64}$', 'SHA-256 of the model file; a different file is never loaded', {
      example: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
    }),
  ),
  bytes: integer(1, 1e13, 'size of the model file', { example: 98_362_432 }),
};

/** The part of the model that runs on a GPU. */
const gpu: Setting<'auto' | 'off' | number> = {
  schema: {
    anyOf: [
      wordSchema('auto'),
      wordSchema('off'),
      integer(1, 10_000, 'layers of the model on the GPU', { example: 20 }).schema,
    ],
    description:
      'what of the model a GPU computes, where a build for it is installed (`tokenhouse engine install`; none is needed on a Mac with an Apple processor); auto: as many layers as its memory has room for; a number: so many layers, also on a software device',
    examples: ['auto', 'off', 20],
    default: 'auto',
  },
  isRequired: false,
  read: (written = 'auto') => written as 'auto' | 'off' | number,
};

const llama = group(
  'the embedded llama.cpp',
  {
    engine: engine('llama'),
    ...common,
    ...modelFile,
    parts: list(
      group('a further file', modelFile, ({ sha256, ...others }) => ({ ...others, sha256: sha256.toLowerCase() })),
      {
        maxItems: 255,
        description:
          'further files of a model that is split (`-00002-of-0000N.gguf`), in order; the sources above are those of the first',
      },
    ),
    queue,
    slots: integer(1, 256, 'requests that generate at the same time; 4 when left out, fewer when memory is short', {
      example: 4,
    }),
    threads: integer(1, 1024, 'maximum of processor threads for prefill; one per core when left out', {
      example: 2,
    }),
    decode_threads: integer(1, 1024, 'processor threads for decoding; when left out, one or all, whichever is faster', {
      example: 1,
    }),
    gpu,
    idle_unload_minutes: number(
      { exclusiveMinimum: 0, maximum: 100_000 },
      'idle time after which the model is unloaded until the next request; never when left out',
      { example: 30 },
      (minutes) => milliseconds(minutes, 60_000),
    ),
    pinned: flag('once loaded, the model does not make room for others', { default: false, example: true }),
    memory_bytes_max: integer(
      1,
      1e15,
      'an idle engine process that uses more memory is replaced; when left out, twice the file plus the cache plus 1 GiB',
      { example: 4_294_967_296 },
    ),
  },
  ({ queue: queueMax, ...others }) => ({
    ...others,
    sha256: others.sha256.toLowerCase(),
    queueMax,
    /** What is applied to it, for the models that are adapters. */
    adapter: undefined as AdapterFile | undefined,
  }),
);

/** Always a list in use: fields that a server accepts beyond those of its flavor. */
const forwarded = ['top_k', 'min_p', 'repetition_penalty'] as const;

const openai = group(
  'a server that speaks the OpenAI API',
  {
    engine: engine('openai'),
    ...common,
    flavor: required(choice(flavorNames, 'what kind of server it is', { example: 'vllm' })),
    url: serverUrl(
      'base URL of the server, with its version path; where `discover` finds the servers, what they have in common',
      'http://10.0.0.5:8000/v1',
    ),
    discover: optional(discovery),
    managed: optional(managed),
    load_adapters: optional(loadAdapters),
    model: text('id of the model on that server; the id of the model here when left out', {
      example: 'Qwen/Qwen3-32B',
    }),
    api_key: hidden(textLike('^[!-~]{1,4096}$', 'key for that server', { example: 'sk-...' })),
    api_key_env: textLike('^[A-Za-z_][A-Za-z0-9_]{0,127}$', 'environment variable that holds the key for that server', {
      example: 'UPSTREAM_KEY',
    }),
    max_concurrency: integer(1, 1e6, 'maximum of concurrent requests to this server; 64 when left out', {
      example: 128,
    }),
    queue,
    // Reliability §3.4.
    special_tokens: choice(
      ['pass', 'refuse', 'break'],
      'handling of client text that spells a special token such as `<|im_end|>`, which the server would read as the token: passed on, refused, or broken by a zero-width character',
      { default: 'pass', example: 'break' },
    ),
    special_token_texts: list(text('a special token', { example: '[INST]' }), {
      maxItems: 256,
      description: 'special tokens of the model other than the forms `<|…|>` and `<｜…｜>`',
      example: ['[INST]', '[/INST]'],
    }),
    check_claims: flag(
      'true: when it starts to be used it is asked with some twenty small requests whether it does what the card says; what it does not do it is not asked for until the service is restarted',
      { default: false, example: true },
    ),
    lacks: list(value<FeatureName>({ anyOf: featureNames.map(wordSchema) }), {
      maxItems: featureNames.length,
      description:
        'what this server does not do although its kind can: requests that need it go to other backends, and where all lack it the card says so; `tokenhouse doctor --claims --write` finds it',
      example: ['tools', 'logprobs'],
    }),
    system_messages: choice(
      ['anywhere', 'first'],
      "where the model's template accepts system messages: with `first`, later ones, which some agents send, become user messages",
      { default: 'anywhere', example: 'first' },
    ),
    priority_scheduling: flag(
      'true: the server was started to order its own queue by priority (vLLM `--scheduling-policy priority`, SGLang `--enable-priority-scheduling`), so each request tells it its service tier; other servers refuse the field',
      { default: false, example: true },
    ),
    forward: list(value<(typeof forwarded)[number]>({ anyOf: forwarded.map(wordSchema) }), {
      maxItems: 3,
      description: 'sampling fields beyond the OpenAI API that a server of flavor openai accepts',
      example: ['top_k', 'min_p'],
    }),
  },
  (
    {
      apiKey,
      apiKeyEnv,
      maxConcurrency: concurrencyMax,
      queue: queueMax,
      specialTokens,
      specialTokenTexts,
      url,
      ...others
    },
    at,
    reading,
  ) => ({
    ...others,
    loadAdapters: loadedAt(others, at, reading),
    priorityScheduling: priorityAt(others, at, reading),
    url:
      others.managed === undefined
        ? urlInUse(url, others.discover, at, reading)
        : refuseOthers(url, others, at, reading),
    /** The name of a server that is called by its address, for TLS and as `Host`. */
    serverName: undefined as string | undefined,
    /** Which adapter its server applies, for the models that have some. */
    adapter: undefined as AdapterInUse | undefined,
    apiKey: apiKeyInUse(apiKey, apiKeyEnv, at, reading),
    concurrencyMax,
    queueMax,
    specialTokens: { mode: specialTokens, texts: specialTokenTexts },
  }),
);

/** A file that the embedded engine applies to a model. */
export interface AdapterFile {
  readonly sources: readonly ModelFileSource[];
  readonly sha256: string;
  readonly bytes: number | undefined;
  readonly scale: number;
}

export interface AdapterInUse {
  /** Its name on the server; undefined: none, although the server has some. */
  readonly name: string | undefined;
  /** What each request says about it, besides the name of the model. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** The name of its base on the server, where the server is told to load it (`loadAdapters`). */
  readonly loadedBeside?: string | undefined;
}

/** The address of a server that the service starts is known when it has been started. */
function refuseOthers(
  url: string | undefined,
  {
    discover,
    flavor,
    managed,
    checkClaims,
  }: { readonly [Name in 'discover' | 'managed']?: unknown } & {
    readonly flavor: string;
    readonly checkClaims: boolean;
  },
  at: Path,
  { report }: Reading,
): string {
  const ownAddress = 'the service starts this server (managed), and knows its address; remove this line';
  if (url !== undefined) report([...at, 'url'], ownAddress);
  if (discover !== undefined) report([...at, 'discover'], ownAddress);
  if (checkClaims)
    report([...at, 'check_claims'], 'a server that is started on demand cannot be asked beforehand; remove this line');
  const { sleep } = managed as { readonly sleep: boolean };
  if (sleep && flavor !== 'vllm')
    report([...at, 'managed', 'sleep'], 'only vLLM can sleep; remove this line, and the server is stopped instead');
  return managedUrl;
}

/** Up to the port, which each start chooses. */
export const managedUrl = 'http://127.0.0.1:1/v1';

/** Empty if the list of servers has full URLs. */
function urlInUse(
  url: string | undefined,
  discover: DiscoveryConfig | undefined,
  at: Path,
  { isWritten, report }: Reading,
): string {
  const hasOwnUrls = discover?.by === 'file' || discover?.by === 'api';
  if (hasOwnUrls && url !== undefined)
    report([...at, 'url'], `with discover by ${discover.by} each server has a URL of its own; remove this line`);
  // A wrong one has been reported already.
  if (!hasOwnUrls && url === undefined && !isWritten([...at, 'url']))
    report(at, '"url" is missing; write the base URL of the server, for example url: http://10.0.0.5:8000/v1');
  const isName = discover?.by === 'dns' || discover?.by === 'srv';
  if (isName && url !== undefined && URL.canParse(url) && isIP(new URL(url).hostname.replace(/^\[|\]$/g, '')) !== 0)
    report([...at, 'url'], 'an address cannot be looked up; write the name, or remove `discover`');
  return url ?? '';
}

function apiKeyInUse(
  key: string | undefined,
  variable: string | undefined,
  at: Path,
  { environment, report, show }: Reading,
): Secret | undefined {
  if (variable === undefined) return key === undefined ? undefined : new Secret(key);
  if (key !== undefined)
    report([...at, 'api_key'], 'the key is given twice, as api_key and as api_key_env; keep one of the two');
  const inVariable = environment.variable(variable);
  if (inVariable === undefined) {
    report(
      [...at, 'api_key_env'],
      `the environment variable ${variable} is not set, so the server would refuse every request; set it, or remove this line`,
    );
    return undefined;
  }
  show([...at, 'api_key'], '(secret)');
  return new Secret(inVariable);
}

/** `scriptSchema` describes one script; the engine owns it. */
const scripted = (scriptSchema: SchemaNode) =>
  group(
    'plays prepared answers',
    {
      engine: engine('scripted'),
      ...common,
      scripts: required(
        list(value(scriptSchema), {
          minItems: 1,
          maxItems: 10_000,
          description: 'the answers and when they are given',
        }),
      ),
    },
    (values, at, { report }) => {
      const last = values.scripts.at(-1);
      if (typeof last === 'object' && last !== null && Object.hasOwn(last, 'when'))
        report(
          [...at, 'scripts', values.scripts.length - 1, 'when'],
          'the last script is the default for all other requests, so it must not have `when`; remove `when`, or add a last script',
        );
      return values;
    },
  );

/** The entries of the file, in the order of attempts; each has its own name for logs and usage rows. */
const entries = (scriptSchema: SchemaNode) =>
  list(
    oneOf('engine', [llama, openai, scripted(scriptSchema)]),
    { minItems: 1, maxItems: 64, description: 'the backends of this model' },
    (written, at, { report, show }) => {
      const isAlone = written.length === 1 && written[0]![0] === 0;
      const named = written.map(([index, backend]) => {
        const name = backend.name ?? (isAlone ? backend.engine : `${backend.engine}-${index + 1}`);
        show([...at, index, 'name'], name);
        return [index, { ...backend, name }] as const;
      });
      reportTwins(
        named,
        ({ name }) => name,
        ([index, { name }]) =>
          report(
            [...at, index],
            `another backend of this model has the name "${name}", so logs could not distinguish them; give it another name`,
          ),
      );
      return named.map(([, backend]) => backend);
    },
  );

type Entry = ValueOf<ReturnType<typeof entries>>[number];
export type LlamaBackendConfig = Extract<Entry, { readonly engine: 'llama' }>;
export type OpenAiBackendConfig = Omit<Extract<Entry, { readonly engine: 'openai' }>, 'discover'>;
export type ScriptedBackendConfig = Extract<Entry, { readonly engine: 'scripted' }>;
export type BackendConfig = LlamaBackendConfig | OpenAiBackendConfig | ScriptedBackendConfig;
export type OpenAiFlavor = OpenAiBackendConfig['flavor'];

/** An entry in the file for a changing list of servers. */
export interface BackendSource {
  readonly name: string;
  /** How many of the listed backends are before it in the file. */
  readonly after: number;
  /** What its servers have in common; `url` is empty if each has its own. */
  readonly template: OpenAiBackendConfig;
  readonly discover: DiscoveryConfig;
  /** Its index in the file. */
  readonly place: number;
}

/** An entry that is switched off. */
export interface DisabledBackend {
  readonly name: string;
  /** What the card is made of, as if it were in use. */
  readonly template: BackendConfig;
  /** Its index in the file. */
  readonly place: number;
}

/** What generates for a model: the backends in the file, and the sources of others. */
export interface BackendsInFile {
  readonly listed: readonly BackendConfig[];
  readonly sources: readonly BackendSource[];
  readonly disabled: readonly DisabledBackend[];
}

/** The index in the file of a listed backend: sources and disabled ones may stand between them. */
export function placeInFile(
  { sources, disabled }: Pick<BackendsInFile, 'sources' | 'disabled'>,
  index: number,
): number {
  const others = new Set([...sources, ...disabled].map(({ place }) => place));
  let place = -1;
  for (let left = index; left >= 0;) if (!others.has(++place)) left--;
  return place;
}

export function backends(scriptSchema: SchemaNode): Setting<BackendsInFile> {
  const written = entries(scriptSchema);
  return { ...written, read: (...given) => sorted(written.read(...given)) };
}

function sorted(all: readonly Entry[]): BackendsInFile {
  const listed: BackendConfig[] = [];
  const sources: BackendSource[] = [];
  const disabled: DisabledBackend[] = [];
  for (const [place, entry] of all.entries()) {
    const { name } = entry;
    const discover = entry.engine === 'openai' ? entry.discover : undefined;
    const template = withoutDiscovery(entry);
    if (entry.disabled) disabled.push({ name, template, place });
    else if (discover === undefined) listed.push(template);
    else sources.push({ name, after: listed.length, template: template as OpenAiBackendConfig, discover, place });
  }
  return { listed, sources, disabled };
}

function withoutDiscovery(entry: Entry): BackendConfig {
  if (entry.engine !== 'openai') return entry;
  const { discover: _, ...template } = entry;
  return template;
}
