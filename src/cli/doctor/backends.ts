import type { LimitsConfig, ModelConfig, OpenAiBackendConfig, ServerConfig } from '../../config/config.ts';
import { openAiEngineOf } from '../../app/backends.ts';
import { lookAtBackend } from '../../app/look.ts';
import type { Finding, Patient } from './finding.ts';

/** Checks external servers: whether they answer, accept the key, have the model, and are what the file says. */
export async function lookAtBackends({ config }: Patient): Promise<readonly Finding[]> {
  const wanted = config.models.flatMap((model) =>
    model.backends.flatMap((backend) => (backend.engine === 'openai' ? [{ model, backend }] : [])),
  );
  return await Promise.all(wanted.map(({ model, backend }) => lookAt(model, backend, config.server)));
}

async function lookAt(
  model: ModelConfig,
  backend: OpenAiBackendConfig,
  { limits }: Pick<ServerConfig, 'limits'>,
): Promise<Finding> {
  const check = 'backend';
  const found = `${model.id} · ${backend.name} · ${backend.url}`;
  const { state, problem } = await lookAtBackend(model, backend);
  if (problem === null) {
    const said = await saidBy(model, backend, limits);
    return { check, state: 'ok', found, ...(said === undefined ? {} : { more: said }) };
  }
  return state === 'wrong'
    ? { check, state: 'warning', found, why: problem, repair: 'tokenhouse config show (see models[].backends[])' }
    : { check, state: 'problem', found, why: problem, repair: `curl -i ${backend.url}/models` };
}

/** What the server reports about itself, in words; undefined if nothing. */
async function saidBy(
  model: ModelConfig,
  backend: OpenAiBackendConfig,
  limits: LimitsConfig,
): Promise<string | undefined> {
  const engine = openAiEngineOf(model, backend, { limits });
  try {
    const report = await engine.report?.();
    if (report === undefined) return undefined;
    const { running, waiting, cacheTokens } = report;
    const cache = cacheTokens === undefined ? '' : `, its cache holds ${cacheTokens} tokens`;
    return `says ${running} running, ${waiting} waiting${cache}`;
  } finally {
    await engine.close();
  }
}
