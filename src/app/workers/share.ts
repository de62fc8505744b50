import type { BackendConfig, Config } from '../../config/config.ts';
import { defaultMaxConcurrency } from '../../inference/engines/openai/openai-engine.ts';

/**
 * The part of a configuration for one of `count` workers: a share of each backend's capacity, and of how many may wait for it. The
 * shares add up to the whole; reading the configuration has ensured that none is 0.
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
