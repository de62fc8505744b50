import type { BackendConfig, LlamaBackendConfig, ModelConfig } from './config/config.ts';
import type { Environment } from './config/environment.ts';
import type { LimitsConfig } from './config/config.ts';
import type { Engine } from './engines/engine.ts';
import { createLlamaEngine } from './engines/llama/engine.ts';
import { createOpenAiEngine } from './engines/openai/openai-engine.ts';
import { scriptRule } from './engines/scripted/script-schema.ts';
import type { ScriptSettings } from './engines/scripted/script-schema.ts';
import { createScriptedEngine } from './engines/scripted/scripted-engine.ts';
import type { Log } from './log.ts';
import { fetchModelFile } from './model-files/fetch-model-file.ts';
import type { FetchProgress } from './model-files/meter.ts';
import type { Backend } from './pipeline/dispatch.ts';

/** A backend with what its start-up tells. */
export interface OpenBackend extends Backend {
  readonly modelId: string;
  /** Address of a server that is not ours and is first spoken to when a request comes; undefined for our own engines. */
  readonly address: string | undefined;
  /** Resolves when it can take work for the first time; rejects, in words for an operator, when it never will. */
  readonly ready: Promise<void>;
}

export interface BackendServices {
  readonly environment: Environment;
  readonly limits: LimitsConfig;
  readonly log: Log;
  readonly onDownload: (modelId: string, progress: FetchProgress) => void;
  /** Aborted when the service stops, so that a download does not outlive it. */
  readonly stopping: AbortSignal;
}

/** Starts the engines of a model: the one place where kinds of engines are named. */
export function openBackends(model: ModelConfig, services: BackendServices): OpenBackend[] {
  return model.backends.map((config) => {
    const { engine, ready } = openEngine(model, config, services);
    return {
      modelId: model.id,
      address: config.engine === 'openai' ? new URL(config.url).origin : undefined,
      label: config.name,
      engine,
      ready,
      concurrencyMax: config.engine === 'openai' ? (config.concurrencyMax ?? Infinity) : Infinity,
      zdr: config.engine === 'openai' && config.zdr,
      running: 0,
    };
  });
}

function openEngine(
  model: ModelConfig,
  config: BackendConfig,
  services: BackendServices,
): { readonly engine: Engine; readonly ready: Promise<void> } {
  const { limits } = services;
  switch (config.engine) {
    case 'llama': {
      const engine = createLlamaEngine({
        name: model.id,
        modelFile: modelFile(model, config, services),
        contextLength: model.contextLength,
        defaultSystem: model.template.defaultSystem,
        queueLimit: config.queueMax,
        firstTokenTimeoutMs: limits.firstTokenTimeoutMs,
        idleTimeoutMs: limits.streamIdleTimeoutMs,
        log: (event) =>
          services.log.service({ level: 'info', event: `llama_${event.event}`, detail: plainFields(event) }),
        ...(config.slots === undefined ? {} : { slots: config.slots }),
        ...(config.threads === undefined ? {} : { prefillThreads: config.threads }),
      });
      return { engine, ready: engine.ready };
    }
    case 'openai': {
      const engine = createOpenAiEngine({
        name: model.id,
        url: config.url,
        flavor: config.flavor,
        firstTokenTimeoutMs: limits.firstTokenTimeoutMs,
        idleTimeoutMs: limits.streamIdleTimeoutMs,
        ...(config.model === undefined ? {} : { model: config.model }),
        ...(config.apiKey === undefined ? {} : { apiKey: config.apiKey.reveal() }),
        ...(config.concurrencyMax === undefined ? {} : { maxConcurrency: config.concurrencyMax }),
      });
      return { engine, ready: Promise.resolve() };
    }
    case 'scripted': {
      const scripts = (config.scripts as readonly ScriptSettings[]).map(scriptRule);
      return {
        engine: createScriptedEngine({ name: model.id, contextLength: model.contextLength, scripts }),
        ready: Promise.resolve(),
      };
    }
  }
}

async function modelFile(model: ModelConfig, config: LlamaBackendConfig, services: BackendServices): Promise<string> {
  const fetched = await fetchModelFile({
    sources: config.sources,
    sha256: config.sha256,
    bytes: config.bytes,
    directory: services.environment.modelDirectory,
    environment: services.environment,
    onProgress: (progress) => services.onDownload(model.id, progress),
    signal: services.stopping,
  });
  return fetched.path;
}

/** Figures and words of an engine's own events; what else it holds is left out. */
function plainFields(event: object): Record<string, string | number | boolean | null> {
  const kept = Object.entries(event).filter((entry): entry is [string, string | number | boolean | null] => {
    const [name, value] = entry;
    return name !== 'event' && (value === null || ['string', 'number', 'boolean'].includes(typeof value));
  });
  return Object.fromEntries(kept);
}
