import type { BackendSource, Config, ModelConfig } from '../../config/config.ts';
import { backendOf, withDiscovered, type Discovered } from '../../config/discovered.ts';
import { identityOf } from '../../config/identity.ts';
import type { RunningSource, SourceReader } from '../../inference/discovery/source.ts';
import { orAborted, withDeadline } from '../../platform/deadline.ts';
import { Semaphore } from '../../platform/semaphore.ts';
import type { Log } from '../../platform/log.ts';
import { FoundLacks } from './found-lacks.ts';
import { joinProblem } from './join.ts';
import { SourceServers, type SourceEvent, type SourceStatus } from './source-servers.ts';

export interface DiscoveryServices {
  readonly open: (model: ModelConfig, source: BackendSource, reader: SourceReader) => RunningSource;
  readonly log: Log;
  readonly now: () => number;
  /** Called when the backends of the configuration have changed. */
  readonly changed: () => void;
}

/** The sources of a configuration that is about to come into force. Exactly one of the two methods is called, once. */
export interface PreparedSources {
  /** With the backends that its sources have now. */
  readonly config: Config;
  commit(): void;
  abandon(): void;
}

/** How long a configuration waits for the first list of a new source, and for its servers. */
const settleTimeoutMs = 5_000;
/** Servers that are tried at the same time: each takes a socket and a request. */
const joinsMax = 64;

/** The sources of backends of the configuration in force, and the servers that they list. */
export class Discovery {
  readonly #services: DiscoveryServices;
  #lists: ReadonlyMap<string, SourceServers> = new Map();
  readonly #joins = new Semaphore(joinsMax);
  readonly #lacks: FoundLacks;

  constructor(services: DiscoveryServices) {
    this.#services = services;
    this.#lacks = new FoundLacks(services.log, services.changed);
  }

  get statuses(): readonly SourceStatus[] {
    return [...this.#lists.values()].map(({ status }) => status);
  }

  /** A configuration whose sources are those in force, with the backends that they have now. */
  expanded(file: Config): Config {
    const found = withDiscovered(file, (model, source) => this.#lists.get(identity(file, model, source))?.inUse ?? []);
    return this.#lacks.applied(found);
  }

  /** Opens new sources. `running`: the configuration in force, whose answering models keep answering. */
  async prepare(file: Config, signal: AbortSignal, running?: Config): Promise<PreparedSources> {
    const lists = new Map<string, SourceServers>();
    const opened: SourceServers[] = [];
    for (const model of file.models) {
      for (const source of model.sources) {
        const key = identity(file, model, source);
        const known = this.#lists.get(key);
        const list = known ?? this.#open(file, model, source);
        if (known === undefined) opened.push(list);
        lists.set(key, list);
      }
    }
    const abandon = (): void => {
      for (const list of opened) list.close();
    };
    try {
      const settled = Promise.all(opened.map((list) => list.settled()));
      if (opened.length > 0) await withDeadline(orAborted(settled, signal), settleTimeoutMs, () => {});
      const config = withDiscovered(file, (model, source) => lists.get(identity(file, model, source))!.inUse);
      if (running !== undefined) refuseEmptied(running, config, lists.values());
      return {
        config: this.#lacks.applied(config),
        abandon,
        commit: () => {
          const kept = new Set(lists.values());
          for (const list of this.#lists.values()) if (!kept.has(list)) list.close();
          this.#lists = lists;
        },
      };
    } catch (error) {
      abandon();
      throw error;
    }
  }

  close(): void {
    for (const list of this.#lists.values()) list.close();
    this.#lacks.close();
  }

  #open(file: Config, model: ModelConfig, source: BackendSource): SourceServers {
    const { open, log, now, changed } = this.#services;
    const place = placeOf(model, source);
    const before = [...this.#lists.entries()].find(([key]) => key.startsWith(`${place} `))?.[1];
    const list: SourceServers = new SourceServers(
      model,
      source,
      {
        open: (reader) => open(model, source, reader),
        join: (server, signal) => this.#join(file, model, source, server, signal),
        // It is not used before it is in force.
        changed: () => {
          if ([...this.#lists.values()].includes(list)) changed();
        },
        report: (event) => report(event, model, source, log),
        now,
      },
      before,
    );
    return list;
  }

  async #join(
    { server: { limits } }: Config,
    model: ModelConfig,
    source: BackendSource,
    server: Discovered,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    try {
      const release = await this.#joins.acquire(signal);
      try {
        return await joinProblem(model, backendOf(source, server), limits, source.discover.warmUp, signal);
      } finally {
        release();
      }
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }
}

/** Unchanged while the source and the settings for its servers are unchanged. */
const identity = ({ server: { limits } }: Config, model: ModelConfig, source: BackendSource): string => {
  const { backends: _, sources: _others, disabled: _off, pricing: _prices, ...used } = model;
  return `${placeOf(model, source)} ${identityOf([used, source, limits.firstTokenTimeoutMs])}`;
};

/** Equal for two sources that read the same place. */
const placeOf = ({ id }: ModelConfig, { name, template: { url }, discover }: BackendSource): string =>
  identityOf([id, name, url, discover]);

/** All or nothing (reliability S8): a file whose sources would leave a model without backends is refused. All may be disabled. */
function refuseEmptied(running: Config, next: Config, lists: Iterable<SourceServers>): void {
  const statuses = [...lists].map(({ status }) => status);
  for (const { id, backends, sources } of next.models) {
    const before = running.models.find((model) => model.id === id);
    if (backends.length > 0 || sources.length === 0 || before === undefined || before.backends.length === 0) continue;
    const problem = statuses.find((status) => status.model === id)?.problem ?? 'it names no server';
    throw new Error(`model ${id}: its new source has no server that could take its requests: ${problem}`);
  }
}

function report(event: SourceEvent, { id }: ModelConfig, { name }: BackendSource, log: Log): void {
  const { event: what, ...detail } = event;
  const isBad = what === 'source_failed' || what === 'source_too_long' || what === 'source_server_waits';
  log.service({ level: isBad ? 'warn' : 'info', event: what, detail: { model: id, source: name, ...detail } });
}
