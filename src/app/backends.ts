import type { KeyObject } from 'node:crypto';
import { dirname } from 'node:path';
import type { BackendConfig, Config, LlamaBackendConfig, ModelConfig, OpenAiBackendConfig } from '../config/config.ts';
import { identityOf } from '../config/identity.ts';
import type { Environment } from '../config/environment.ts';
import type { LimitsConfig } from '../config/config.ts';
import type { ComputeReport, Engine } from '../inference/engines/engine.ts';
import { createLlamaEngine } from '../inference/engines/llama/engine.ts';
import type { GpuSearch } from '../inference/engines/llama/gpu-search.ts';
import { gpuVariablesIn } from '../inference/engines/llama/gpu-variables.ts';
import { readGgufHeader } from '../inference/engines/llama/gguf-header.ts';
import { MemoryBudget } from '../inference/engines/llama/memory-budget.ts';
import type { Purpose } from '../inference/engines/llama/purpose.ts';
import type { SamplingDefaults } from '../generation/sampling-defaults.ts';
import { AdapterLoaders } from '../inference/engines/openai/adapter-loader.ts';
import { createOnDemandEngine } from '../inference/engines/openai/adapter-on-demand.ts';
import { flavors } from '../inference/engines/openai/flavors/flavors.ts';
import type { ReportedIncident } from '../inference/engines/openai/incidents.ts';
import { managedEngineOf, managedServices, type ManagedServices } from './managed.ts';
import {
  createOpenAiEngine,
  defaultMaxConcurrency,
  type OpenAiEngineOptions,
} from '../inference/engines/openai/openai-engine.ts';
import { scriptRule } from '../inference/engines/scripted/script-schema.ts';
import type { ScriptSettings } from '../inference/engines/scripted/script-schema.ts';
import { createScriptedEngine } from '../inference/engines/scripted/scripted-engine.ts';
import type { Log } from '../platform/log.ts';
import { fetchModel, type FetchedModel } from '../inference/model-files/fetch-model.ts';
import type { FetchedModelFile } from '../inference/model-files/fetch-model-file.ts';
import { generationConfigBeside } from '../inference/model-files/generation-config.ts';
import type { FetchProgress } from '../inference/model-files/meter.ts';
import type { Backend } from '../inference/pipeline/backend-pool.ts';
import { idleLoad } from '../inference/routing/backend-load.ts';

/** A backend with the results of its start. */
export interface OpenBackend extends Backend {
  readonly modelId: string;
  readonly contextLength: number;
  /** Unchanged while everything its engine was started with is unchanged: then it survives a reload. */
  readonly identity: string;
  /** The configuration it was made from, used to check an external server. */
  readonly config: BackendConfig;
  /** Resolves when it can first take work; rejects, with a message for the operator, if it never will. */
  readonly ready: Promise<void>;
  /** The verified file of an embedded model. */
  readonly modelFile: Promise<FetchedModelFile> | undefined;
  /** The same file, once it is there. */
  readonly fileInUse: () => { readonly path: string; readonly sha256: string } | undefined;
  /** What an embedded model runs on, once known. */
  readonly compute: () => ComputeReport | undefined;
  /** The file's recommended values for fields that a request omits; empty until the file is there. */
  readonly fileDefaults: () => SamplingDefaults;
}

export interface BackendServices {
  readonly environment: Environment;
  readonly limits: LimitsConfig;
  readonly log: Log;
  /** Shared by all embedded models. */
  readonly memory: MemoryBudget;
  /** The same. */
  readonly gpus: GpuSearch;
  /** Shared by the servers that the service starts. */
  readonly servers: ManagedServices;
  /** What loads adapters into running servers, for all models there. */
  readonly adapters: AdapterLoaders;
  /** Derives the salts of servers' prompt caches. */
  readonly promptCaches: KeyObject;
  readonly onDownload: (modelId: string, progress: FetchProgress) => void;
  /** Called when a model file that has arrived states defaults. */
  readonly onFileDefaults: () => void;
  /** Aborted when the service stops, so that a download does not outlive it. */
  readonly stopping: AbortSignal;
}

/** What the backends of a service share: the memory of the embedded models, the GPUs of the servers that it starts, and what is loaded into others. */
export const sharedByBackends = (
  { models, server, storage }: Pick<Config, 'models' | 'server' | 'storage'>,
  log: Log,
): Pick<BackendServices, 'memory' | 'servers' | 'adapters'> => ({
  memory: memoryBudgetOf(models, server.limits),
  servers: managedServices(storage.directory),
  adapters: new AdapterLoaders((url, { event, ...detail }) =>
    log.service({
      level: event === 'loaded' ? 'info' : 'error',
      event: event === 'loaded' ? 'adapter_loaded' : 'adapter_not_loaded',
      detail: { url, ...detail },
    }),
  ),
});

function memoryBudgetOf(models: readonly ModelConfig[], limits: LimitsConfig): MemoryBudget {
  const embedded = models.flatMap(({ backends }) => backends).filter(({ engine }) => engine === 'llama');
  const { cacheBytesMax, embeddedMemoryBytesMax: bytesMax } = limits;
  return new MemoryBudget({ bytesMax, cacheBytesMax, models: embedded.length });
}

/** Starts the engine of a backend: the only place that names kinds of engines. */
export function openBackend(model: ModelConfig, config: BackendConfig, services: BackendServices): OpenBackend {
  const { engine, ready, modelFile } = openEngine(model, config, services);
  // Callers that wait for `ready` see the failure; waiting is optional.
  ready.catch(() => {});
  let found: FoundFile | undefined;
  modelFile?.then(
    (file) => {
      found = file;
      if (Object.keys(file.defaults).length > 0) services.onFileDefaults();
    },
    () => {},
  );
  return {
    fileInUse: () =>
      found === undefined || config.engine !== 'llama' ? undefined : { path: found.path, sha256: config.sha256 },
    fileDefaults: () => found?.defaults ?? {},
    compute: () => engine.residence?.compute,
    modelId: model.id,
    contextLength: model.contextLength,
    identity: backendIdentity(model, config, services.limits),
    config,
    label: config.name,
    provider: config.engine === 'openai' ? config.flavor : config.engine === 'llama' ? 'llama.cpp' : config.engine,
    kind: backendKind(model, config, services.limits),
    engine,
    ready,
    modelFile,
    rankWritten: config.rank,
    queueMax: config.engine === 'openai' ? config.queueMax : 0,
    zdr: config.zdr,
    enforces: config.engine === 'openai' ? flavors[config.flavor].enforces : everyConstraint,
    lacks: config.engine === 'openai' ? config.lacks : [],
    ...idleLoad({
      concurrencyMax: config.engine === 'openai' ? placesAt(config) : Infinity,
      weight: config.weight,
    }),
  };
}

const placesAt = ({ concurrencyMax }: OpenAiBackendConfig): number => concurrencyMax ?? defaultMaxConcurrency;

/**
 * Equal for backends that differ only in address and name: each can take a request for another. How many may wait because of one
 * concerns the model's queue, not the backend.
 */
function backendKind(model: ModelConfig, config: BackendConfig, limits: LimitsConfig): string {
  const elsewhere: readonly string[] = [
    'name',
    'url',
    'serverName',
    'apiKey',
    'queueMax',
    'rank',
    'weight',
    'lacks',
    'checkClaims',
  ];
  const effective = config.engine === 'openai' ? { ...config, concurrencyMax: placesAt(config) } : config;
  const own = Object.entries(effective).filter(([name]) => !elsewhere.includes(name));
  return identityOf([startedWith(model, limits), own]);
}

/** Supported by our own engines. A script declares its own. */
const everyConstraint = ['json-object', 'json-schema', 'regex', 'grammar'] as const;

/** Identifies everything that an engine may have been started with. */
export const backendIdentity = (model: ModelConfig, config: BackendConfig, limits: LimitsConfig): string =>
  identityOf([startedWith(model, limits), { ...config, lacks: undefined, checkClaims: undefined }]);

/** What an engine uses of the model and the service, without fields that only the card and the pipeline read. */
function startedWith(model: ModelConfig, limits: LimitsConfig): readonly unknown[] {
  const cardOnly: readonly (keyof ModelConfig)[] = [
    'displayName',
    'description',
    'ownedBy',
    'tier',
    'deprecationDate',
    'successor',
    'leadsToSuccessor',
    'aliases',
    'dedicatedTo',
    'adapters',
    'adapterOf',
    'maxOutputTokens',
    'pricing',
    'sampling',
    'defaults',
    'capabilities',
    'zdrCapabilities',
    'backends',
    'sources',
    'disabled',
  ];
  const started = Object.entries(model).filter(([name]) => !cardOnly.includes(name as keyof ModelConfig));
  return [started, reasons(model), purposeOn(model), limits.firstTokenTimeoutMs, limits.streamIdleTimeoutMs];
}

/** What the card says the model does. A model that embeds or ranks does nothing else. */
const purposeOn = ({ capabilities: { embeddings, rerank } }: ModelConfig): Purpose =>
  embeddings.supported ? 'embed' : rerank.supported ? 'rank' : 'write';

/** Whether the model accepts a reasoning effort. */
const reasons = ({ capabilities, zdrCapabilities }: ModelConfig): boolean =>
  [...capabilities.efforts, ...zdrCapabilities.efforts].some((effort) => effort !== 'none');

function openEngine(
  model: ModelConfig,
  config: BackendConfig,
  services: BackendServices,
): {
  readonly engine: Engine;
  readonly ready: Promise<void>;
  readonly modelFile?: Promise<FoundFile>;
} {
  const { limits } = services;
  switch (config.engine) {
    case 'llama': {
      const file = fetchFile(model, config, services);
      const engine = createLlamaEngine({
        name: model.id,
        modelFile: file.then(({ path }) => path),
        adapter: file.then(({ adapterPath }) =>
          adapterPath === undefined ? undefined : { file: adapterPath, scale: config.adapter?.scale ?? 1 },
        ),
        purpose: purposeOn(model),
        contextLength: model.contextLength,
        defaultSystem: model.template.defaultSystem,
        queueLimit: config.queueMax,
        firstTokenTimeoutMs: limits.firstTokenTimeoutMs,
        idleTimeoutMs: limits.streamIdleTimeoutMs,
        log: (event) =>
          services.log.service({ level: 'info', event: `llama_${event.event}`, detail: plainFields(event) }),
        ...(config.slots === undefined ? {} : { slots: config.slots }),
        ...(config.threads === undefined ? {} : { threads: config.threads }),
        ...(config.decodeThreads === undefined ? {} : { decodeThreads: config.decodeThreads }),
        ...(config.idleUnloadMs === undefined ? {} : { idleUnloadMs: config.idleUnloadMs }),
        ...(config.memoryBytesMax === undefined ? {} : { rssBytesMax: config.memoryBytesMax }),
        memory: services.memory,
        gpu: { setting: config.gpu, search: services.gpus },
        variables: gpuVariablesIn(services.environment.childVariables),
        isPinned: config.pinned,
      });
      return { engine, ready: engine.ready, modelFile: file };
    }
    case 'openai': {
      const open = (url: string): Engine =>
        openAiEngineOf(
          model,
          { ...config, url },
          {
            limits,
            saltKey: services.promptCaches,
            adapters: services.adapters,
            onIncident: (incident) =>
              services.log.service({
                level: hasNoModel(incident) ? 'error' : 'warn',
                event: 'backend_incident',
                detail: {
                  model: model.id,
                  backend: config.name,
                  ...incident,
                  ...(hasNoModel(incident) ? { asked_for: config.model ?? model.id, url } : {}),
                },
              }),
          },
        );
      const engine =
        config.managed === undefined
          ? open(config.url)
          : managedEngineOf(model, config, config.managed, open, services);
      return { engine, ready: Promise.resolve() };
    }
    case 'scripted': {
      const scripts = (config.scripts as readonly ScriptSettings[]).map(scriptRule);
      return {
        engine: createScriptedEngine({
          name: model.id,
          contextLength: model.contextLength,
          reasons: reasons(model),
          scripts,
        }),
        ready: Promise.resolve(),
      };
    }
  }
}

/** Only a change to the configuration or the server helps. */
const hasNoModel = ({ incident }: ReportedIncident): boolean =>
  incident === 'not_found' || incident === 'other_model' || incident === 'adapter_missing';

interface OpenAiEngineServices {
  readonly limits: Pick<LimitsConfig, 'firstTokenTimeoutMs' | 'streamIdleTimeoutMs'>;
  readonly onIncident?: (incident: ReportedIncident) => void;
  /** Derives the salts of its prompt cache; random if omitted. */
  readonly saltKey?: KeyObject;
  /** Absent: nothing is loaded there. */
  readonly adapters?: AdapterLoaders;
}

/** The engine for an external server; it connects only when used. */
export function openAiEngineOf(
  model: ModelConfig,
  config: OpenAiBackendConfig,
  { limits, onIncident, saltKey, adapters }: OpenAiEngineServices,
): Engine {
  const { adapter, loadAdapters } = config;
  const options: OpenAiEngineOptions = {
    name: model.id,
    url: config.url,
    flavor: config.flavor,
    reasons: reasons(model),
    specialTokens: config.specialTokens,
    systemFirst: config.systemMessages === 'first',
    ordersByPriority: config.priorityScheduling,
    forward: config.forward,
    firstTokenTimeoutMs: limits.firstTokenTimeoutMs,
    idleTimeoutMs: limits.streamIdleTimeoutMs,
    ...(onIncident === undefined ? {} : { onIncident }),
    ...(saltKey === undefined ? {} : { saltKey }),
    ...(config.serverName === undefined ? {} : { serverName: config.serverName }),
    ...(adapter === undefined ? {} : { adapter }),
    ...(config.model === undefined ? {} : { model: config.model }),
    ...(config.apiKey === undefined ? {} : { apiKey: config.apiKey.reveal() }),
    ...(config.concurrencyMax === undefined ? {} : { maxConcurrency: config.concurrencyMax }),
  };
  return adapter?.name === undefined || loadAdapters === undefined || adapters === undefined
    ? createOpenAiEngine(options)
    : createOnDemandEngine(options, adapter.name, adapters.join(config.url, loadAdapters));
}

/** A verified model file, and its recommended values for fields that a request omits. */
type FoundFile = FetchedModel & { readonly defaults: SamplingDefaults };

async function fetchFile(
  model: ModelConfig,
  config: LlamaBackendConfig,
  services: BackendServices,
): Promise<FoundFile> {
  const file = await fetchModel(config, {
    environment: services.environment,
    onProgress: (progress) => services.onDownload(model.id, progress),
    signal: services.stopping,
  });
  return { ...file, defaults: await defaultsInFile(file.path, services.environment.modelDirectory) };
}

/**
 * The sampling defaults that a model file states, and, field by field, those of the `generation_config.json` beside it; in the
 * model folder, which has files of many models, it is ignored. An unreadable file has no defaults: the engine reports why.
 */
export async function defaultsInFile(path: string, modelDirectory: string): Promise<SamplingDefaults> {
  const beside = dirname(path) === modelDirectory ? {} : await generationConfigBeside(path);
  const header = await readGgufHeader(path).catch(() => undefined);
  return { ...beside, ...header?.samplingDefaults };
}

/** Numbers and words of an engine's own events; other fields are left out. */
function plainFields(event: object): Record<string, string | number | boolean | null> {
  const kept = Object.entries(event).filter((entry): entry is [string, string | number | boolean | null] => {
    const [name, value] = entry;
    return name !== 'event' && (value === null || ['string', 'number', 'boolean'].includes(typeof value));
  });
  return Object.fromEntries(kept);
}
