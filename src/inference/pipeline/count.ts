import type { EngineRequest } from '../../generation/request.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import { FairPlacesOf } from '../../platform/fair-places.ts';
import type { Engine } from '../engines/engine.ts';
import { lengthRefusal } from './length-refusal.ts';
import { withoutImages } from './request-images.ts';
import { isReady, mayTake } from './backend-pool.ts';
import type { Backend } from './backend-pool.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/**
 * Prompts that a backend counts at once, in total and per account, and those that wait for it. A count is short, so a thousand simultaneous
 * requests of one account get their turn within the time; their bodies have a bound of their own, and other accounts pass them.
 */
const countingMax = 4;
const countingPerAccountMax = 1;
const waitingMax = 4_096;
const waitMsMax = 10_000;

/** Has backends count prompts. Most of them count one at a time, so accounts take turns. */
export class PromptCounts {
  readonly places = new FairPlacesOf<Engine>({
    placesMax: countingMax,
    perAccountMax: countingPerAccountMax,
    waitingMax,
    waitMsMax,
    refusal: atCapacity,
  });

  /**
   * Returns the exact number of prompt tokens without the images, from the first backend that is ready. `too-long`: the backend refused
   * without counting. `undefined`: no backend can count, or none did; the backend that generates then reports what is wrong with the
   * request. Rejects with `backend_at_capacity` 429 when too many wait.
   */
  async count(
    request: EngineRequest,
    backends: readonly Backend[],
    signal: StopSignal,
  ): Promise<number | 'too-long' | undefined> {
    const engine = backends.find((backend) => isReady(backend) && mayTake(backend, request))?.engine;
    if (engine === undefined) return undefined;
    return await this.places.hold(engine, request.cacheScope, signal, async () => {
      try {
        return await engine.countTokens({ ...request, prompt: withoutImages(request.prompt) }, signal);
      } catch (error) {
        const refusal = lengthRefusal(error);
        return refusal === undefined ? undefined : (refusal.promptTokens ?? 'too-long');
      }
    });
  }
}

const atCapacity = (max: number): ApiError =>
  new ApiError(
    'backend_at_capacity',
    'Too many prompts are being counted at the moment. Try again shortly.',
    atCap(max, 1),
  );
