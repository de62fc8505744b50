import { generatesText } from '../../catalog/card-flags.ts';
import type { LimitsConfig, ModelConfig, OpenAiBackendConfig } from '../../config/config.ts';
import { smallRequest } from '../../inference/engines/small-request.ts';
import { ApiError } from '../../platform/errors.ts';
import { combineSignals } from '../../platform/combine-signals.ts';
import { openAiEngineOf } from '../backends.ts';
import { lookClosely } from '../look.ts';

/**
 * Returns why a server cannot get customers' requests yet, or undefined if it can. It has to answer, accept the key and have the
 * model; with `warmUp` it generates a token first, because a server's first request is its slowest. Never rejects.
 */
export async function joinProblem(
  model: ModelConfig,
  backend: OpenAiBackendConfig,
  limits: Pick<LimitsConfig, 'firstTokenTimeoutMs' | 'streamIdleTimeoutMs'>,
  warmUp: boolean,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { look, hasModel } = await lookClosely(model, backend, signal);
  if (look.state === 'down' || !hasModel) return look.problem ?? 'it does not answer';
  // Other problems with it are logged, as for backends in the file.
  if (!warmUp || !generatesText(model.capabilities)) return undefined;
  const engine = openAiEngineOf(model, backend, { limits });
  try {
    const limit = AbortSignal.timeout(limits.firstTokenTimeoutMs);
    const isChat = model.capabilities.chat.supported;
    await engine.generate({ ...smallRequest({ isChat }), maxTokens: 1 }, combineSignals([signal, limit]), () => true);
    return undefined;
  } catch (error) {
    // It understood the request, but rejected it.
    if (error instanceof ApiError && error.type === 'invalid_request_error') return undefined;
    return `it does not answer a short request: ${error instanceof Error ? error.message : String(error)}`;
  } finally {
    await engine.close();
  }
}
