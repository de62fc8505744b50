import type { BackendConfig, BackendSource, Config, ModelConfig, OpenAiBackendConfig } from './config.ts';

/** A server that a source of backends names. */
export interface Discovered {
  readonly url: string;
  /** The name that it is known by, where the URL has its address. */
  readonly serverName?: string;
  /** In place of those of the file. */
  readonly rank?: number;
  readonly weight?: number;
}

/** The backend that a server of a source is: what the file says of the source, with its own address and name. */
export function backendOf({ name, template }: BackendSource, server: Discovered): OpenAiBackendConfig {
  const { host, pathname } = new URL(server.url);
  const path = pathname === '/v1' || pathname === '/' ? '' : pathname;
  return {
    ...template,
    name: `${name} ${host}${path}`,
    url: server.url,
    serverName: server.serverName,
    rank: server.rank ?? template.rank,
    weight: server.weight ?? template.weight,
  };
}

/** The configuration with the backends that its sources have now, each source in its place in the order of tries. */
export function withDiscovered(
  config: Config,
  serversOf: (model: ModelConfig, source: BackendSource) => readonly Discovered[],
): Config {
  if (config.models.every(({ sources }) => sources.length === 0)) return config;
  return { ...config, models: config.models.map((model) => ({ ...model, backends: backendsOf(model, serversOf) })) };
}

function backendsOf(
  model: ModelConfig,
  serversOf: (model: ModelConfig, source: BackendSource) => readonly Discovered[],
): readonly BackendConfig[] {
  const found = (after: number): readonly BackendConfig[] =>
    model.sources
      .filter((source) => source.after === after)
      .flatMap((source) => serversOf(model, source).map((server) => backendOf(source, server)));
  return [...model.backends.flatMap((backend, index) => [...found(index), backend]), ...found(model.backends.length)];
}
