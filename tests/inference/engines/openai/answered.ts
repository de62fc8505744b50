import type { EngineRequest } from '../../../../src/generation/request.ts';
import type { FlavorName } from '../../../../src/generation/flavor-names.ts';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import { Upstream, type UpstreamHandler } from '../../../support/upstream.ts';
import { all, engineRequest } from '../contract.ts';

/** The batches of an answer of such a server, by an engine of its own. */
export async function answeredBy(flavor: FlavorName, handler: UpstreamHandler, more: Partial<EngineRequest> = {}) {
  const upstream = await Upstream.start(handler);
  const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor });
  try {
    return await all(engine, engineRequest('x', more), new AbortController().signal);
  } finally {
    await engine.close();
    await upstream.close();
  }
}
