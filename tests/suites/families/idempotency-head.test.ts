/** A stream that joins another with its `Idempotency-Key` says so in its head, also where the head goes before the first token. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestService, until } from '../../support/service.ts';
import { Upstream, chatChunk, event, usageChunk } from '../../support/upstream.ts';
import type { UpstreamExchange } from '../../support/upstream.ts';

const options = { timeout: 600_000 };

const waiting: UpstreamExchange[] = [];
const upstream = await Upstream.start((exchange) => {
  exchange.events();
  waiting.push(exchange);
});
const service = new TestService({
  limits: '  prime_timeout_seconds: 0.05',
  config: `models:
  - id: demo
    context_length: 8192
    pricing: { input_cents_per_million: 5000, output_cents_per_million: 20000 }
    backends: [ { engine: openai, flavor: openai, url: "${upstream.url}" } ]
`,
});
before(() => service.start(), options);
after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
}, options);

const ask = (key: string, id: string): Promise<Response> =>
  fetch(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.key}`,
      'content-type': 'application/json',
      'idempotency-key': key,
      'x-request-id': id,
    },
    body: JSON.stringify({ model: 'demo', stream: true, messages: [{ role: 'user', content: 'hello' }] }),
  });

for (const ending of ['answered', 'failed'] as const)
  test(
    `before the first token, then ${ending}: head and error name the request that has the receipt`,
    options,
    async () => {
      const [firstId, twinId] =
        ending === 'answered' ? ['req_00000000000a', 'req_00000000000b'] : ['req_00000000000c', 'req_00000000000d'];
      const first = await ask(ending, firstId);
      await until(() => waiting.length === 1);
      const twin = await ask(ending, twinId);
      const heads = [first, twin].map(({ headers }) => [
        headers.get('x-request-id'),
        headers.get('idempotent-replayed'),
      ]);
      assert.deepEqual(heads, [
        [firstId, null],
        [firstId, 'true'],
      ]);
      const exchange = waiting.pop()!;
      if (ending === 'failed') exchange.reset();
      else {
        exchange.chunk(chatChunk({ content: 'hi' }) + chatChunk({}, 'stop'));
        exchange.chunk(usageChunk({ prompt_tokens: 5, completion_tokens: 1 }) + event('[DONE]'));
        exchange.endChunks();
      }
      for (const { text, id } of [
        { text: await first.text(), id: firstId },
        { text: await twin.text(), id: firstId },
      ])
        if (ending === 'failed') assert.equal(/"request_id":"(\w+)"/.exec(text)?.[1], id, text);
        else assert.match(text, /\[DONE\]/);
    },
  );
