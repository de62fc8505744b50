import { ApiError } from '../errors.ts';
import type { EngineRequest } from '../generation/request.ts';
import { withoutImages } from './images.ts';
import { isReady, mayTake } from './places.ts';
import type { Backend } from './places.ts';

/** What a backend that refuses a request for its length tells of the prompt, and of its own window. */
export interface LengthRefusal {
  readonly promptTokens: number | undefined;
  readonly windowTokens: number | undefined;
}

/** `undefined` for any other failure. */
export function lengthRefusal(error: unknown): LengthRefusal | undefined {
  if (!(error instanceof ApiError) || error.code !== 'context_length_exceeded') return undefined;
  const figure = (name: string): number | undefined => {
    const value = error.extra[name];
    return typeof value === 'number' ? value : undefined;
  };
  return { promptTokens: figure('prompt_tokens'), windowTokens: figure('context_length_limit') };
}

/**
 * Exact number of prompt tokens without the images, by the first backend that is ready. `too-long`: the backend refused without counting.
 * `undefined`: nobody can count, or did not; whatever is wrong with the request is then the backend's to say.
 */
export async function countPrompt(
  request: EngineRequest,
  backends: readonly Backend[],
  signal: AbortSignal,
): Promise<number | 'too-long' | undefined> {
  const engine = backends.find((backend) => isReady(backend) && mayTake(backend, request))?.engine;
  try {
    return await engine?.countTokens({ ...request, prompt: withoutImages(request.prompt) }, signal);
  } catch (error) {
    const refusal = lengthRefusal(error);
    return refusal === undefined ? undefined : (refusal.promptTokens ?? 'too-long');
  }
}
