import type { ModelConfig, OpenAiBackendConfig } from '../../config/config.ts';
import { lookAtBackend } from '../../app/look.ts';
import type { Finding, Patient } from './finding.ts';

/** Checks servers that are not ours: whether they answer, accept the key, have the model, and are what the file says. */
export async function lookAtBackends({ config }: Patient): Promise<readonly Finding[]> {
  const wanted = config.models.flatMap((model) =>
    model.backends.flatMap((backend) => (backend.engine === 'openai' ? [{ model, backend }] : [])),
  );
  return await Promise.all(wanted.map(({ model, backend }) => lookAt(model, backend)));
}

async function lookAt(model: ModelConfig, backend: OpenAiBackendConfig): Promise<Finding> {
  const check = 'backend';
  const found = `${model.id} · ${backend.name} · ${backend.url}`;
  const { state, problem } = await lookAtBackend(model, backend);
  if (problem === null) return { check, state: 'ok', found };
  return state === 'wrong'
    ? { check, state: 'warning', found, why: problem, repair: 'tokenhouse config show (see models[].backends[])' }
    : { check, state: 'problem', found, why: problem, repair: `curl -i ${backend.url}/models` };
}
