/** The service tier that a request is served in reaches a server that orders its own queue by it (docs/tiers.md). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestService } from '../../support/service.ts';
import { Upstream, chatChunk, usageChunk } from '../../support/upstream.ts';

const priorities: unknown[] = [];
const upstream = await Upstream.start((exchange) => {
  if (!exchange.path.endsWith('/chat/completions')) return exchange.json(404, {});
  priorities.push((JSON.parse(exchange.body) as { readonly priority?: unknown }).priority);
  exchange.events();
  exchange.chunk(chatChunk({ content: 'hello' }) + chatChunk({}, 'stop'));
  exchange.chunk(`${usageChunk({ prompt_tokens: 5, completion_tokens: 1 })}data: [DONE]\n\n`);
  exchange.endChunks();
});
const model = (id: string, flavor: string, more: string): string => `  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 100, output_cents_per_million: 100 }
    tiers: { priority: { price_multiple: 2 }, flex: { price_multiple: 0.5 } }
    backends: [ { engine: openai, flavor: ${flavor}, url: "${upstream.url}/v1", model: m${more} } ]
`;
const service = new TestService({
  config: `models:
${model('ordered', 'vllm', ', priority_scheduling: true')}${model('higher', 'sglang', ', priority_scheduling: true')}${model('plain', 'vllm', '')}`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
});

for (const [id, expected] of [
  ['ordered', [-1, 0, 1, 0]],
  ['higher', [3, 2, 1, 2]],
  ['plain', [undefined, undefined, undefined, undefined]],
] as const)
  test(`${id}: priority, default, flex, and none`, async () => {
    priorities.length = 0;
    for (const service_tier of ['priority', 'default', 'flex', undefined]) {
      const messages = [{ role: 'user', content: 'hi' }];
      const answer = await service.chat({ model: id, messages, priority: 99, service_tier });
      assert.equal(answer.status, 200, await answer.text());
    }
    assert.deepEqual(priorities, expected);
  });
