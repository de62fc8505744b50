import { backendIdentity, openBackend } from './backends.ts';
import type { BackendServices, OpenBackend } from './backends.ts';
import { changesBetween } from './config/changes.ts';
import type { Config } from './config/config.ts';
import { identityOf } from './config/identity.ts';
import { ConfigError } from './config/problem.ts';
import type { Problem } from './config/problem.ts';
import type { ReloadOutcome } from './config/reload-outcome.ts';
import type { Log } from './log.ts';

export interface ReloadServices {
  /** Reads the file with the checks of the start. Throws `ConfigError`. */
  read(running: Config): Config;
  readonly backendServices: Omit<BackendServices, 'limits'>;
  readonly log: Log;
  /** Makes the configuration the one in force, at once. Backends that are in neither list any more are its to close. */
  apply(config: Config, backends: readonly OpenBackend[]): void;
}

/** How long new engines may take to load before the file is refused. Files of models are better fetched before: `models pull`. */
const readyTimeoutMs = 900_000;

/** Reads the configuration again while the service runs, all or nothing (reliability S8). */
export class Reloader {
  readonly #services: ReloadServices;
  #config: Config;
  #identity: string;
  #backends: readonly OpenBackend[];
  #version = 1;
  #failures = 0;
  #lastSuccess = true;
  #underWay:
    | { readonly identity: string; readonly abort: AbortController; readonly outcome: Promise<ReloadOutcome> }
    | undefined;

  constructor(config: Config, backends: readonly OpenBackend[], services: ReloadServices) {
    this.#services = services;
    this.#config = config;
    this.#identity = identityOf(withoutFile(config));
    this.#backends = backends;
  }

  /** Of the configuration in force. */
  get config(): Config {
    return this.#config;
  }

  get backends(): readonly OpenBackend[] {
    return this.#backends;
  }

  /** 1 at the start, one more with each configuration that came into force. */
  get version(): number {
    return this.#version;
  }

  get failures(): number {
    return this.#failures;
  }

  /** Whether what was read last is in force. */
  get lastSuccess(): boolean {
    return this.#lastSuccess;
  }

  /** Never rejects: what is wrong with the file is an outcome, and a line of the log. */
  async reload(): Promise<ReloadOutcome> {
    let next: Config;
    try {
      next = this.#services.read(this.#config);
    } catch (error) {
      return this.#refuse(problemsOf(error, this.#config));
    }
    const identity = identityOf(withoutFile(next));
    if (this.#underWay?.identity === identity) return this.#underWay.outcome;
    // A newer file takes the place of one whose engines are still being loaded.
    this.#underWay?.abort.abort(new Error('another configuration was read while its engines were being started'));
    await this.#underWay?.outcome;
    if (identity === this.#identity) {
      this.#lastSuccess = true;
      return { kind: 'unchanged', version: this.#version };
    }
    const abort = new AbortController();
    const outcome = this.#take(next, identity, abort.signal);
    const underWay = { identity, abort, outcome };
    this.#underWay = underWay;
    try {
      return await outcome;
    } finally {
      if (this.#underWay === underWay) this.#underWay = undefined;
    }
  }

  /** Ends what waits for engines; the service is being stopped. */
  async stop(): Promise<void> {
    this.#underWay?.abort.abort(new Error('the service is being stopped'));
    await this.#underWay?.outcome;
  }

  async #take(next: Config, identity: string, signal: AbortSignal): Promise<ReloadOutcome> {
    const opened: OpenBackend[] = [];
    try {
      const backends = this.#open(next, opened);
      await this.#successorsReady(backends, signal);
      const changes = changesBetween(this.#config, next);
      this.#services.apply(next, backends);
      this.#config = next;
      this.#identity = identity;
      this.#backends = backends;
      this.#version++;
      this.#lastSuccess = true;
      this.#services.log.service({
        level: 'info',
        event: 'config_reloaded',
        detail: { version: this.#version, changes: changes.join('; ') },
      });
      for (const backend of opened) this.#tellWhenUnavailable(backend);
      return { kind: 'reloaded', version: this.#version, changes };
    } catch (error) {
      await Promise.all(opened.map((backend) => backend.engine.close()));
      return this.#refuse(problemsOf(error, next));
    }
  }

  /** A backend of which nothing has changed goes on with its process, its connections and its requests. */
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

  #tellWhenUnavailable(backend: OpenBackend): void {
    const { modelId, label } = backend;
    backend.ready.catch((error: unknown) => {
      if (!this.#backends.includes(backend)) return;
      const reason = error instanceof Error ? error.message : String(error);
      this.#services.log.service({
        level: 'error',
        event: 'model_unavailable',
        detail: { model: modelId, backend: label, reason },
      });
    });
  }

  #refuse(problems: readonly Problem[]): ReloadOutcome {
    this.#failures++;
    this.#lastSuccess = false;
    const [first] = problems;
    this.#services.log.service({
      level: 'error',
      event: 'config_refused',
      detail: {
        where: first?.where ?? '',
        what: first?.what ?? '',
        problems: problems.length,
        version: this.#version,
      },
    });
    return { kind: 'refused', version: this.#version, problems };
  }
}

/** Where the file lies does not matter once it is read: a file that says the defaults is the defaults. */
const withoutFile = ({ server, storage, accounts, plans, images, items, models }: Config) => ({
  server,
  storage,
  accounts,
  plans,
  images,
  items,
  models,
});

function problemsOf(error: unknown, { file }: Config): readonly Problem[] {
  if (error instanceof ConfigError) return error.problems;
  return [{ where: file ?? 'tokenhouse.yaml', what: error instanceof Error ? error.message : String(error) }];
}

async function firstReady(modelId: string, backends: readonly OpenBackend[]): Promise<void> {
  try {
    await Promise.any(backends.map((backend) => backend.ready));
  } catch (error) {
    const [reason] = (error as AggregateError).errors as readonly unknown[];
    const told = reason instanceof Error ? reason.message : String(reason);
    throw new Error(`model ${modelId}: its new backend cannot be started, so the old one goes on: ${told}`, {
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
