/** A server that was slow and refuses connections is another when it is back: it gets its share at once, whatever was measured before. */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { after, before, test } from 'node:test';
import { mulberry32 } from '../support/random.ts';
import { words } from '../support/fleet-load.ts';
import { InnerService, until } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';

const answer = (exchange: UpstreamExchange): void => {
  if (exchange.method === 'GET') return exchange.json(200, { object: 'list', data: [] });
  exchange.events();
  const usage = usageChunk({ prompt_tokens: 200, completion_tokens: 1 });
  exchange.chunk(chatChunk({ content: 'hello' }) + chatChunk({}, 'stop') + usage + event('[DONE]'));
  exchange.endChunks();
};
const slowly = async (exchange: UpstreamExchange): Promise<void> => {
  if (exchange.method === 'POST') await delay(300);
  answer(exchange);
};

let held: UpstreamExchange[] | undefined;
/** An address of its own, so that nobody else takes the port while it is gone. */
const host = '127.0.0.9';
let restarted: Upstream;
let other: Upstream;
let service: InnerService;

before(async () => {
  restarted = await Upstream.start(slowly, { host });
  other = await Upstream.start((exchange) =>
    held !== undefined && exchange.method === 'POST' ? void held.push(exchange) : answer(exchange),
  );
  service = await new InnerService({
    config: `models:
  - id: m
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - { engine: openai, name: restarted, flavor: vllm, url: "http://${host}:${restarted.port}/v1", max_concurrency: 1 }
      - { engine: openai, name: other, flavor: vllm, url: "${other.url}", max_concurrency: 1 }`,
  }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  await Promise.all([restarted.close(), other.close()]);
});

const random = mulberry32(1);
async function ask(): Promise<void> {
  const response = await service.chat({ model: 'm', messages: [{ role: 'user', content: words(random, 800) }] });
  const text = await response.text();
  assert.equal(response.status, 200, text);
}
const generations = (): number => restarted.exchanges.filter(({ method }) => method === 'POST').length;

test('it gets the next request', async () => {
  await until(async () => {
    const before = generations();
    for (let count = 0; count < 5; count++) await ask();
    return generations() === before && before > 0;
  });
  const { port } = restarted;
  await restarted.close();
  // The other one is full, so these three are refused, and wait.
  held = [];
  const answers = Array.from({ length: 4 }, ask);
  await until(async () => /^tokenhouse_backend_ready\{.*backend="restarted".*\} 0$/m.test(await page()));
  for (const exchange of held.splice(0)) answer(exchange);
  held = undefined;
  await Promise.all(answers);
  restarted = await Upstream.start(answer, { host, port });
  await until(async () => /^tokenhouse_backend_ready\{.*backend="restarted".*\} 1$/m.test(await page()));
  assert.equal(generations(), 0);
  await ask();
  assert.equal(generations(), 1);
});

const page = async (): Promise<string> => (await fetch(`${service.accountUrl}/metrics`)).text();
