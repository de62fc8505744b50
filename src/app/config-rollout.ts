import { backendIdentity, openBackend } from './backends.ts';
import type { BackendServices, OpenBackend } from './backends.ts';
import type { Config } from '../config/config.ts';

/** A configuration that is ready to come into force. Exactly one of the two methods is called, once. */
export interface Prepared {
  /** Puts it into force immediately. */
  commit(): void | Promise<void>;
  /** Discards it completely. */
  abandon(): Promise<void>;
}

export interface ConfigRolloutServices {
  readonly backendServices: Omit<BackendServices, 'limits'>;
  /** Puts the configuration into force immediately, and closes backends that are in neither list any more. */
  apply(config: Config, backends: readonly OpenBackend[]): void;
}

/** How long new engines may take to load before the file is refused. Model files are better fetched beforehand: `models pull`. */
const readyTimeoutMs = 900_000;

/** The backends in force, and those that replace them with a changed configuration. */
export class ConfigRollout {
  readonly #services: ConfigRolloutServices;
  #config: Config;
  #backends: readonly OpenBackend[];

  constructor(config: Config, services: ConfigRolloutServices) {
    this.#services = services;
    this.#config = config;
    const { models } = config;
    const { limits } = config.server;
    this.#backends = models.flatMap((model) =>
      model.backends.map((backend) => openBackend(model, backend, { ...services.backendServices, limits })),
    );
  }

  /** The configuration in force. */
  get config(): Config {
    return this.#config;
  }

  get backends(): readonly OpenBackend[] {
    return this.#backends;
  }

  /** Resolves when every model that answers now would keep answering; otherwise rejects and leaves nothing open. */
  async prepare(next: Config, signal: AbortSignal): Promise<Prepared> {
    const opened: OpenBackend[] = [];
    const abandon = async (): Promise<void> => {
      await Promise.all(opened.map((backend) => backend.engine.close()));
    };
    try {
      const backends = this.#open(next, opened);
      await this.#successorsReady(backends, signal);
      const commit = (): void => {
        this.#services.apply(next, backends);
        this.#config = next;
        this.#backends = backends;
        takeOverLacks(next, backends);
        for (const backend of opened) this.#reportWhenUnavailable(backend);
      };
      return { commit, abandon };
    } catch (error) {
      await abandon();
      throw error;
    }
  }

  /** An unchanged backend keeps its process, its connections and its requests. */
  #open(next: Config, opened: OpenBackend[]): readonly OpenBackend[] {
    const known = new Map(this.#backends.map((backend) => [backend.identity, backend]));
    const { limits } = next.server;
    return next.models.flatMap((model) =>
      model.backends.map((config) => {
        const kept = known.get(backendIdentity(model, config, limits));
        if (kept !== undefined) return kept;
        const backend = openBackend(model, config, { ...this.#services.backendServices, limits });
        opened.push(backend);
        return backend;
      }),
    );
  }

  /** A model that answers now still answers after the swap: it keeps its old backends until a new one can take work. */
  async #successorsReady(next: readonly OpenBackend[], signal: AbortSignal): Promise<void> {
    const isReady = ({ engine }: OpenBackend): boolean => engine.status().state === 'ready';
    const answering = new Set(this.#backends.filter(isReady).map(({ modelId }) => modelId));
    for (const modelId of answering) {
      const successors = next.filter((backend) => backend.modelId === modelId);
      if (successors.length === 0 || successors.some(isReady)) continue;
      await within(firstReady(modelId, successors), readyTimeoutMs, signal);
    }
  }

  #reportWhenUnavailable(backend: OpenBackend): void {
    const { modelId, label } = backend;
    backend.ready.catch((error: unknown) => {
      if (!this.#backends.includes(backend)) return;
      const reason = error instanceof Error ? error.message : String(error);
      this.#services.backendServices.log.service({
        level: 'error',
        event: 'model_unavailable',
        detail: { model: modelId, backend: label, reason },
      });
    });
  }
}

/** Newly found limitations change only what is sent to a backend: it keeps running. */
function takeOverLacks({ models }: Config, backends: readonly OpenBackend[]): void {
  const configured = models.flatMap((model) => model.backends);
  for (const [index, backend] of backends.entries()) {
    const config = configured[index];
    if (config?.engine === 'openai') backend.lacks = config.lacks;
  }
}

async function firstReady(modelId: string, backends: readonly OpenBackend[]): Promise<void> {
  try {
    await Promise.any(backends.map((backend) => backend.ready));
  } catch (error) {
    const [reason] = (error as AggregateError).errors as readonly unknown[];
    const reported = reason instanceof Error ? reason.message : String(reason);
    throw new Error(`model ${modelId}: its new backend cannot be started, so the old one goes on: ${reported}`, {
      cause: error,
    });
  }
}

function within(wait: Promise<void>, limitMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abandon = (): void => settle(() => reject(signal.reason as Error));
    const timer = setTimeout(
      () => settle(() => reject(new Error(`new engines were not ready within ${limitMs / 60_000} minutes`))),
      limitMs,
    );
    const settle = (how: () => void): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abandon);
      how();
    };
    signal.addEventListener('abort', abandon, { once: true });
    if (signal.aborted) abandon();
    wait.then(
      () => settle(resolve),
      (error: unknown) => settle(() => reject(error as Error)),
    );
  });
}
