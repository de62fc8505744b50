import type { BackendConfig, Config } from '../../config/config.ts';
import { defaultMaxConcurrency } from '../../inference/engines/openai/openai-engine.ts';

/**
 * What one of `count` workers does of a configuration: of what a backend takes, and of who may wait for it, each has a share.
 * The shares of all make the whole; whoever reads the configuration has seen to it that none is 0.
 */
export function shareOf(config: Config, index: number, count: number): Config {
  const share = (whole: number): number => Math.floor(whole / count) + (index < whole % count ? 1 : 0);
  const ofBackend = (backend: BackendConfig): BackendConfig => {
    if (backend.engine !== 'openai') return backend;
    const concurrencyMax = share(backend.concurrencyMax ?? defaultMaxConcurrency);
    return { ...backend, concurrencyMax, queueMax: share(backend.queueMax) };
  };
  return { ...config, models: config.models.map((model) => ({ ...model, backends: model.backends.map(ofBackend) })) };
}
