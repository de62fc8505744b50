import type { EngineRequest } from '../../../generation/request.ts';
import { Freshness, type FreshnessBackend } from './freshness.ts';

/** Decides which prompts a server without salts may cache (reliability §3.5). */
export class PromptCaching {
  readonly #isSwitched: boolean;
  readonly #freshness: Freshness;
  #soleCacheScope: string | undefined;
  #hasSeveralScopes = false;

  constructor(backend: FreshnessBackend) {
    this.#isSwitched = backend.flavor.cacheIsolation === 'switch';
    this.#freshness = new Freshness(backend);
  }

  /** Resolves when it is known whether the prompt may be cached; `undefined`: already known. */
  settle(request: EngineRequest): Promise<void> | undefined {
    if (!this.#isSwitched || this.#hasSeveralScopes || !request.retain) return undefined;
    return this.#freshness.settle();
  }

  /**
   * Returns whether a prompt may be cached by a server whose cache has no salts: if its cache was empty before this engine used it, and as
   * long as it has seen only one scope. A prompt under zero data retention stays in a slot until the next one, so after it nothing may be
   * matched either. If the server restarted while this engine ran, its cache came from this engine, so the scopes still decide.
   */
  mayCache(request: EngineRequest): boolean {
    this.#soleCacheScope ??= request.cacheScope;
    if (!request.retain || this.#soleCacheScope !== request.cacheScope) this.#hasSeveralScopes = true;
    return !this.#hasSeveralScopes && this.#freshness.isKnownFresh;
  }
}
