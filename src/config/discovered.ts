import type { BackendConfig, BackendSource, Config, ModelConfig, OpenAiBackendConfig } from './config.ts';

/** A server listed by a source of backends. */
export interface Discovered {
  readonly url: string;
  /** The server's name, if the URL has its address. */
  readonly serverName?: string;
  /** Replaces the file's values. */
  readonly rank?: number;
  readonly weight?: number;
}

/** The backend for a server of a source: the source's settings in the file, with the server's address and name. */
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

/** The configuration with the backends that its sources have now, each source at its place in the order of attempts. */
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
