import type { EngineRequest } from '../../generation/request.ts';
import { lengthRefusal } from './length-refusal.ts';
import { withoutImages } from './request-images.ts';
import { isReady, mayTake } from './backend-pool.ts';
import type { Backend } from './backend-pool.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/**
 * Exact number of prompt tokens without the images, by the first backend that is ready. `too-long`: the backend refused without
 * counting. `undefined`: no backend can count, or did; the backend that generates then reports what is wrong with the request.
 */
export async function countPrompt(
  request: EngineRequest,
  backends: readonly Backend[],
  signal: StopSignal,
): Promise<number | 'too-long' | undefined> {
  const engine = backends.find((backend) => isReady(backend) && mayTake(backend, request))?.engine;
  try {
    return await engine?.countTokens({ ...request, prompt: withoutImages(request.prompt) }, signal);
  } catch (error) {
    const refusal = lengthRefusal(error);
    return refusal === undefined ? undefined : (refusal.promptTokens ?? 'too-long');
  }
}
