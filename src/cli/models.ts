import { statSync } from 'node:fs';

import { OperationError } from '../accounts/operation.ts';
import { defaultsInFile } from '../app/backends.ts';
import { defaultsOnCard, modelDefaults } from '../catalog/model-defaults.ts';
import type { BackendConfig } from '../config/config.ts';
import { decimalText } from '../config/decimal.ts';
import { findModelFile } from '../inference/model-files/fetch-model-file.ts';
import { fetchModel, folderOf, type ModelFiles } from '../inference/model-files/fetch-model.ts';
import { progressDisplay } from '../inference/model-files/progress.ts';
import { pinHubFile } from '../inference/model-files/pin.ts';
import { parseSource } from '../config/model-source.ts';
import { askForStatus } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import type { ServiceStatus } from '../app/control/status.ts';
import { bytesInWords } from './amount.ts';
import { configuredModels } from './configured-model.ts';
import type { Context } from './context.ts';
import { table } from './output.ts';

/** Lists the models with the sizes of their files, whether these are here, and their state in a running service. */
export async function listModels(context: Context): Promise<number> {
  const { models, storage } = context.config;
  const status = await askForStatus(controlSocketPath(storage.directory));
  const running = status === undefined || status === 'other' ? [] : status.backends;
  const rows = await Promise.all(
    models.map(async (model) => {
      const backends = await Promise.all(
        model.backends.map(async (backend) => {
          const { engine, name } = backend;
          const file = await localFile(context, backend);
          const served = running.find(({ modelId, label }) => modelId === model.id && label === name);
          const { state: memory, memoryBytes, tokensPerSecond } = served?.residence ?? {};
          return {
            ...{ engine, name, bytes: bytesOf(backend, file), file: file ?? null, state: served?.state ?? null },
            memory: memory === undefined ? null : { state: memory, bytes: memoryBytes ?? null },
            tokens_per_second: tokensPerSecond === undefined ? null : Math.round(tokensPerSecond * 10) / 10,
          };
        }),
      );
      return { model, backends };
    }),
  );
  context.print.result(
    rows.map(({ model, backends }) => ({
      id: model.id,
      display_name: model.displayName,
      adapter_of: model.adapterOf ?? null,
      context_length: model.contextLength,
      max_output_tokens: model.maxOutputTokens,
      backends,
    })),
    table(
      ['id', 'context', 'output', 'size', 'state', 'memory', 'tokens/s', 'backends'],
      rows.map(({ model, backends }) => [
        model.adapterOf === undefined ? model.id : `${model.id} (adapter of ${model.adapterOf})`,
        model.contextLength,
        model.maxOutputTokens ?? 'window',
        sizeInWords(backends.map(({ bytes }) => bytes)),
        [...new Set(backends.map(stateInWords))].join(', '),
        sizeInWords(backends.map(({ memory }) => memory?.bytes ?? null)),
        backends.flatMap(({ tokens_per_second: speed }) => (speed === null ? [] : [speed])).join(', ') || '–',
        backends.map((backend) => backend.name).join(', '),
      ]),
    ),
  );
  return 0;
}

type ServedBackend = ServiceStatus['backends'][number];

interface ListedBackend {
  readonly engine: BackendConfig['engine'];
  readonly file: string | null;
  readonly state: ServedBackend['state'] | null;
  readonly memory: { readonly state: NonNullable<ServedBackend['residence']>['state'] } | null;
}

/** For a model that can take work, the state of its memory: `waiting` means until others make room. */
const stateInWords = ({ engine, file, state, memory }: ListedBackend): string =>
  (state === 'ready' && memory !== null ? memory.state : state) ??
  (engine !== 'llama' ? 'not running' : file === null ? 'to be fetched' : 'file is here');

/** The size of an embedded model: its file and further parts. */
function bytesOf(backend: BackendConfig, file: string | undefined): number | null {
  if (backend.engine !== 'llama') return null;
  const first = backend.bytes ?? (file === undefined ? undefined : statSync(file).size);
  const sizes = [first, ...backend.parts.map(({ bytes }) => bytes)];
  return sizes.some((bytes) => bytes === undefined)
    ? null
    : sizes.reduce<number>((sum, bytes) => sum + (bytes ?? 0), 0);
}

const sizeInWords = (sizes: readonly (number | null)[]): string =>
  [...new Set(sizes.flatMap((bytes) => (bytes === null ? [] : [bytesInWords(bytes)])))].join(', ') || '–';

/** Shows a model and its defaults, as on its card. */
export async function showModel(context: Context, _options: object, named = ''): Promise<number> {
  const [id] = configuredModels(context, [named]);
  const model = context.config.models.find((each) => each.id === id)!;
  const files = await Promise.all(model.backends.map((backend) => localFile(context, backend)));
  const stated = files.find((file) => file !== undefined);
  const defaults = defaultsOnCard(
    modelDefaults(
      model.defaults,
      stated === undefined ? undefined : await defaultsInFile(stated, context.environment.modelDirectory),
    ),
  );
  const prices = {
    input_dollars_per_million: dollarsOf(model.pricing.input),
    output_dollars_per_million: dollarsOf(model.pricing.output),
    cache_read_dollars_per_million: dollarsOf(model.pricing.cacheRead),
  };
  const backends = model.backends.map(({ engine, name }, index) => ({ engine, name, file: files[index] ?? null }));
  const { displayName, description, contextLength, maxOutputTokens, sampling } = model;
  context.print.result(
    {
      id,
      display_name: displayName,
      description: description ?? null,
      adapter_of: model.adapterOf ?? null,
      context_length: contextLength,
      max_output_tokens: maxOutputTokens,
      sampling,
      defaults,
      pricing: prices,
      backends,
    },
    table(
      [id!, displayName],
      [
        ...(description === undefined ? [] : [['description', description]]),
        ...(model.adapterOf === undefined ? [] : [['adapter of', model.adapterOf]]),
        ['context', contextLength],
        ['output', maxOutputTokens ?? 'window'],
        ...Object.entries(prices).map(([name, price]) => [name.replaceAll('_', ' '), price]),
        ['sampling', sampling],
        ...Object.entries(defaults).map(([name, value]) => [`default ${name}`, value]),
        ...backends.map(({ engine, name, file }) => [
          `backend ${name}`,
          engine === 'llama' ? (file ?? 'its file is not here yet') : engine,
        ]),
      ],
    ),
  );
  return 0;
}

const dollarsOf = (microcents: bigint): number => Number(decimalText(microcents, 8));

/** The file of an embedded model, if it is on this computer. */
async function localFile({ environment }: Context, backend: BackendConfig): Promise<string | undefined> {
  if (backend.engine !== 'llama') return undefined;
  const { sources, sha256, bytes } = backend;
  const found = await findModelFile({
    sources,
    sha256,
    bytes,
    directory: folderOf(backend, environment.modelDirectory),
  });
  return 'path' in found ? found.path : undefined;
}

type Wanted = ModelFiles & { readonly name: string };

/** Fetches what is missing, one file after the other. */
export async function pullModel(
  context: Context,
  options: { readonly sha256?: string },
  input?: string,
): Promise<number> {
  const wanted = await wantedFiles(context, input, options.sha256);
  const pulled: { name: string; path: string; source: string; already_there: boolean }[] = [];
  for (const file of wanted) {
    const display = progressDisplay(context.around.stderr);
    try {
      const { path, source, alreadyThere } = await fetchModel(file, {
        environment: context.environment,
        onProgress: display.show,
      });
      pulled.push({ name: file.name, path, source, already_there: alreadyThere });
    } finally {
      display.end();
    }
  }
  context.print.result(
    pulled,
    pulled.map(
      ({ name, path, source, already_there }) =>
        `${name}: ${path} (${already_there ? 'already there' : `from ${source}`})`,
    ),
  );
  return 0;
}

async function wantedFiles(
  { around, config, environment, print }: Context,
  input: string | undefined,
  sha256: string | undefined,
): Promise<readonly Wanted[]> {
  const configured = config.models.flatMap((model) =>
    model.backends.flatMap((backend) =>
      backend.engine === 'llama'
        ? [
            {
              name: model.id,
              sources: backend.sources,
              sha256: backend.sha256,
              bytes: backend.bytes,
              parts: backend.parts,
              adapter: backend.adapter,
            },
          ]
        : [],
    ),
  );
  if (input === undefined) return configured;
  const named = configured.filter((file) => file.name.toLowerCase() === input.toLowerCase());
  if (named.length > 0) return named;
  const source = parseSource(input, around.directory);
  if ('problem' in source) {
    throw new OperationError(`'${input}' is neither a configured model with a file nor a source: ${source.problem}`);
  }
  if (sha256 !== undefined) {
    if (!/^[0-9a-f]{64}$/i.test(sha256)) throw new OperationError('--sha256 must be 64 hex digits.');
    return [
      { name: input, sources: [source], sha256: sha256.toLowerCase(), bytes: undefined, parts: [], adapter: undefined },
    ];
  }
  if (source.type !== 'hub-file' && source.type !== 'hub-quantization') {
    throw new OperationError('This source publishes no hash: give --sha256 with the 64 hex digits of the file.');
  }
  const pinned = await pinHubFile(source, environment, AbortSignal.timeout(pinTimeoutMs));
  print.say(`${pinned.name} · sha256 ${pinned.sha256}, as published by the hub; put it into tokenhouse.yaml`);
  return [
    { name: input, sources: [source], sha256: pinned.sha256, bytes: pinned.bytes, parts: [], adapter: undefined },
  ];
}

const pinTimeoutMs = 60_000;
