import type { EngineRequest } from '../../../generation/request.ts';
import { errorCodeOf } from '../../../platform/errors.ts';
import type { Engine } from '../engine.ts';
import { smallRequest } from '../small-request.ts';

/**
 * Finds out whether a server hangs that still answers its pages: vLLM's API server does while the process with the model stands still, as it
 * does when a GPU hangs. Its answers then end by the time limits, one after the other, and nobody gets a new one.
 */
export class WritingCheck {
  readonly #patienceMs: number;
  #heardMs = -Infinity;
  #isAsking = false;

  /** `patienceMs`: for a few tokens, while nobody else gets any either. */
  constructor(patienceMs = 30_000) {
    this.#patienceMs = patienceMs;
  }

  /** A part of any answer has come. */
  heard(): void {
    this.#heardMs = performance.now();
  }

  /**
   * Returns whether the server hangs, after a request that it did not answer in time, or did not go on with: it is asked for a few tokens, and
   * in that time neither they come nor any others. A long prompt or much load alone prevents only one of the two.
   */
  async hangs(engine: Engine, { prompt, task }: EngineRequest): Promise<boolean> {
    if (this.#isAsking || task !== undefined) return false;
    this.#isAsking = true;
    const beganMs = performance.now();
    const limit = AbortSignal.timeout(this.#patienceMs);
    const isHeard = (): boolean => this.#heardMs > beganMs;
    try {
      await engine.generate({ ...smallRequest({ isChat: prompt.type === 'messages' }), maxTokens: 1 }, limit, () => {
        this.heard();
        return true;
      });
      return false;
    } catch (error) {
      return (limit.aborted || errorCodeOf(error) === 'backend_timeout') && !isHeard();
    } finally {
      this.#isAsking = false;
    }
  }
}
