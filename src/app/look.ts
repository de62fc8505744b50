import { combineSignals } from '../platform/combine-signals.ts';
import type { BackendLook } from '../config/backend-look.ts';
import type { Config, ModelConfig, OpenAiBackendConfig } from '../config/config.ts';
import type { ListedAdapter } from '../inference/engines/openai/listed-adapters.ts';
import { probeBackend } from '../inference/engines/openai/probe.ts';
import type { Log } from '../platform/log.ts';

/** How long a start or a reload waits for a silent server. */
const lookTimeoutMs = 3_000;
/** Concurrent checks: each takes a socket. */
const looksMax = 128;

/** Whether the server of a backend answers, accepts the key, has the model, and is what the configuration says. Never rejects. */
export const lookAtBackend = async (
  model: Pick<ModelConfig, 'id' | 'contextLength'>,
  backend: OpenAiBackendConfig,
  stopping?: AbortSignal,
): Promise<BackendLook> => (await lookClosely(model, backend, stopping)).look;

/** The same, and whether the server has the model at all, with the window and the adapters that it reports. */
export async function lookClosely(
  model: Pick<ModelConfig, 'id' | 'contextLength'>,
  backend: OpenAiBackendConfig,
  stopping?: AbortSignal,
): Promise<{
  readonly look: BackendLook;
  readonly hasModel: boolean;
  readonly windowTokens: number | undefined;
  readonly adapters: readonly ListedAdapter[];
}> {
  const look = { model: model.id, backend: backend.name, url: backend.url };
  const limit = AbortSignal.timeout(lookTimeoutMs);
  try {
    const { problem, isUsable, lacksModel, windows, adapters } = await probeBackend({
      url: backend.url,
      serverName: backend.serverName,
      apiKey: backend.apiKey?.reveal(),
      flavor: backend.flavor,
      model: listedName(model, backend),
      adapter: loadsIt(backend) ? undefined : backend.adapter,
      contextLength: model.contextLength,
      signal: stopping === undefined ? limit : combineSignals([limit, stopping]),
    });
    const hasModel = !lacksModel;
    const windowTokens = windows.get(listedName(model, backend));
    if (problem === undefined)
      return { look: { ...look, state: 'ready', problem: null }, hasModel, windowTokens, adapters };
    return { look: { ...look, state: isUsable ? 'wrong' : 'down', problem }, hasModel, windowTokens, adapters };
  } catch {
    const problem = `${new URL(backend.url).origin} does not answer within ${lookTimeoutMs / 1_000} seconds. Check the address and any firewall in between.`;
    return { look: { ...look, state: 'down', problem }, hasModel: false, windowTokens: undefined, adapters: [] };
  }
}

/** An adapter that the server is told to load need not be there yet: its base has to be. */
const listedName = ({ id }: Pick<ModelConfig, 'id'>, { adapter, model }: OpenAiBackendConfig): string =>
  adapter?.loadedBeside ?? model ?? id;

const loadsIt = ({ adapter }: OpenAiBackendConfig): boolean => adapter?.loadedBeside !== undefined;

/** Checks the servers of a configuration, and logs the state of each. Never rejects. */
export async function lookAtBackends(
  { models }: Pick<Config, 'models'>,
  log: Log,
  stopping?: AbortSignal,
): Promise<readonly BackendLook[]> {
  const wanted = models.flatMap((model) =>
    model.backends.flatMap((backend) =>
      backend.engine === 'openai' && backend.managed === undefined ? [{ model, backend }] : [],
    ),
  );
  const looks: BackendLook[] = [];
  for (let from = 0; from < wanted.length && stopping?.aborted !== true; from += looksMax) {
    const some = wanted.slice(from, from + looksMax);
    looks.push(...(await Promise.all(some.map(({ model, backend }) => lookAtBackend(model, backend, stopping)))));
  }
  for (const look of looks) reportLook(look, log);
  return looks;
}

/** Logs a permanent fault as an error, and one that may resolve itself as a warning. */
export function reportLook(look: BackendLook, log: Log): void {
  const levels = { ready: 'info', wrong: 'error', down: 'warn' } as const;
  log.service({ level: levels[look.state], event: 'backend_looked_at', detail: { ...look } });
}
