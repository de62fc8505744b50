import type { ModelConfig, OpenAiBackendConfig } from '../../config/config.ts';
import { probeBackend } from '../../engines/openai/probe.ts';
import type { Finding, Patient } from './finding.ts';

/** Servers that are not ours: whether they answer, take the key, have the model, and are what they are said to be. */
export async function lookAtBackends({ config }: Patient): Promise<readonly Finding[]> {
  const wanted = config.models.flatMap((model) =>
    model.backends.flatMap((backend) => (backend.engine === 'openai' ? [{ model, backend }] : [])),
  );
  return await Promise.all(wanted.map(({ model, backend }) => lookAtBackend(model, backend)));
}

async function lookAtBackend(model: ModelConfig, backend: OpenAiBackendConfig): Promise<Finding> {
  const check = 'backend';
  const found = `${model.id} · ${backend.name} · ${backend.url}`;
  const { problem, isUsable } = await probeBackend({
    url: backend.url,
    apiKey: backend.apiKey?.reveal(),
    flavor: backend.flavor,
    model: backend.model ?? model.id,
    contextLength: model.contextLength,
    signal: new AbortController().signal,
  });
  if (problem === undefined) return { check, state: 'ok', found };
  return isUsable
    ? { check, state: 'warning', found, why: problem, repair: 'tokenhouse config show (see models[].backends[])' }
    : { check, state: 'problem', found, why: problem, repair: `curl -i ${backend.url}/models` };
}
