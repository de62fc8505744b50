import type { BackendConfig, Config, ModelConfig, OpenAiBackendConfig } from '../../config/config.ts';
import { identityOf } from '../../config/identity.ts';
import { featureNames, type FeatureName } from '../../generation/feature-names.ts';
import type { Log } from '../../platform/log.ts';
import { Semaphore } from '../../platform/semaphore.ts';
import { lacksAfter, lookAtClaims } from '../claims.ts';

/** Servers that are checked at the same time; each gets one request at a time. */
const looksMax = 4;

interface Look {
  /** `undefined` during the check. */
  lacks: readonly FeatureName[] | undefined;
  readonly leaving: AbortController;
}

/**
 * What backends with `check_claims` were found not to support since the service started. Each is checked once, when a configuration
 * first has it; until then it is used as the card says.
 */
export class FoundLacks {
  readonly #looks = new Map<string, Look>();
  readonly #turns = new Semaphore(looksMax);
  readonly #log: Log;
  readonly #changed: () => void;

  /** `changed` is called when more has been found. */
  constructor(log: Log, changed: () => void) {
    this.#log = log;
    this.#changed = changed;
  }

  /** Returns the configuration with what was found, and starts checking new backends. */
  applied(config: Config): Config {
    const isAsked = config.models.some(({ backends }) => backends.some(isLookedAt));
    if (!isAsked && this.#looks.size === 0) return config;
    const seen = new Set<string>();
    const models = config.models.map((model) => ({
      ...model,
      backends: model.backends.map((backend) => {
        if (!isLookedAt(backend)) return backend;
        const key = keyOf(model, backend);
        seen.add(key);
        const look = this.#looks.get(key) ?? this.#begin(key, model, backend, config);
        const lacks = featureNames.filter((name) => backend.lacks.includes(name) || look.lacks?.includes(name));
        return { ...backend, lacks };
      }),
    }));
    for (const [key, { leaving }] of this.#looks) {
      if (seen.has(key)) continue;
      this.#looks.delete(key);
      leaving.abort(new Error('the backend has left'));
    }
    return { ...config, models };
  }

  close(): void {
    for (const { leaving } of this.#looks.values()) leaving.abort(new Error('the service is being stopped'));
  }

  #begin(key: string, model: ModelConfig, backend: OpenAiBackendConfig, { server: { limits } }: Config): Look {
    const look: Look = { lacks: undefined, leaving: new AbortController() };
    this.#looks.set(key, look);
    void this.#look(look, model, backend, limits);
    return look;
  }

  async #look(
    look: Look,
    model: ModelConfig,
    backend: OpenAiBackendConfig,
    limits: Config['server']['limits'],
  ): Promise<void> {
    const { signal } = look.leaving;
    try {
      const release = await this.#turns.acquire(signal);
      try {
        const reports = await lookAtClaims(model, backend, limits, signal);
        look.lacks = lacksAfter(backend.lacks, reports);
        const broken = reports.filter(({ state }) => state === 'broken');
        this.#log.service({
          level: broken.length === 0 ? 'info' : 'warn',
          event: 'claims_checked',
          detail: {
            ...{ model: model.id, backend: backend.name },
            broken: broken.map(({ claim, found }) => `${claim}: ${found}`).join('; '),
            unknown: reports.flatMap(({ claim, state }) => (state === 'unknown' ? [claim] : [])).join(', '),
          },
        });
      } finally {
        release();
      }
    } catch {
      // The backend has left.
      return;
    }
    if ((look.lacks?.length ?? 0) > 0) this.#changed();
  }
}

const isLookedAt = (backend: BackendConfig): backend is OpenAiBackendConfig =>
  backend.engine === 'openai' && backend.checkClaims;

/** The check depends on the card and on the server, not on the server's name here. */
const keyOf = ({ id, contextLength, capabilities }: ModelConfig, backend: OpenAiBackendConfig): string => {
  const { name: _, rank: _rank, weight: _weight, ...asked } = backend;
  return identityOf([id, contextLength, capabilities, asked]);
};
