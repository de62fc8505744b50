import type { TestService } from '../support/service.ts';
import { InnerService } from '../support/service.ts';
import { Upstream, chatChunk, usageChunk } from '../support/upstream.ts';

/** A service with a model that sees images, on a backend of ours that answers `Seen.` to every chat: for files in messages. */
export async function startSeeingService(): Promise<{ readonly service: TestService; readonly upstream: Upstream }> {
  const upstream = await Upstream.start((request) => {
    if (!request.path.endsWith('/chat/completions')) return request.json(404, {});
    request.events({});
    request.chunk(chatChunk({ role: 'assistant', content: 'Seen.' }, null));
    request.chunk(chatChunk({}, 'stop'));
    request.chunk(usageChunk({ prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 }));
    request.chunk('data: [DONE]\n\n');
    request.endChunks();
  });
  const service = new InnerService({
    config: `models:
  - id: seeing
    context_length: 8192
    capabilities: { vision: true }
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}" } ]`,
  });
  return { service: await service.start(), upstream };
}
