import type { AccountServices, ProbedServer } from '../account-api/services.ts';
import { OperationError } from '../accounts/operation.ts';
import type { Environment } from '../config/environment.ts';
import { flavorNames, type FlavorName } from '../generation/flavor-names.ts';
import { askServer, serverAt, ServerRefused, type ServerFindings } from './server-probe.ts';

const modelsShownMax = 200;

/** Asks servers for the console, as `backends add` does. */
export const serverProbe =
  (environment: Environment): NonNullable<AccountServices['probeServer']> =>
  async ({ url: input, apiKey: given, apiKeyEnv, flavor: wanted, model }) => {
    const apiKey = apiKeyEnv === undefined ? given : environment.variable(apiKeyEnv);
    if (apiKeyEnv !== undefined && apiKey === undefined)
      throw new OperationError(`The environment variable ${apiKeyEnv} is not set where the service runs.`, {
        param: 'api_key_env',
      });
    const known = flavorNames.find((name) => name === wanted);
    if (wanted !== undefined && known === undefined)
      throw new OperationError(`There is no flavor ${wanted}; there are: ${flavorNames.join(', ')}.`, {
        param: 'flavor',
      });
    try {
      const { url, result } = await serverAt(input, apiKey);
      const flavor: FlavorName = known ?? result.looksLike ?? 'openai';
      const found = model === undefined ? undefined : await askServer({ id: model, url, flavor, model, apiKey });
      return {
        ...{ url, flavor },
        models: result.models
          .slice(0, modelsShownMax)
          .map((id) => ({ id, contextLength: result.windows.get(id) ?? null })),
        answer: found === undefined ? null : answerOf(found),
      };
    } catch (error) {
      if (!(error instanceof ServerRefused)) throw error;
      throw new OperationError(error.repair === undefined ? error.message : `${error.message} See: ${error.repair}`, {
        param: 'url',
        cause: error,
      });
    }
  };

const answerOf = (found: ServerFindings): ProbedServer['answer'] => ({
  kind: found.kind,
  tools: found.kind === 'chat' && found.tools,
  reasoning: found.kind === 'chat' && found.reasons,
  text: found.kind === 'chat' ? found.text.slice(0, 1000) : null,
  dimensions: found.kind === 'embeddings' ? found.dimensions : null,
  tokens_per_second: Math.round(found.tokensPerSecond * 10) / 10,
});
