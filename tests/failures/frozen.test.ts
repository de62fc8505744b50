/** A server that accepts and answers nothing at all: no client waits for it twice, and it is used again when it answers a look. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { probeUserAgent } from '../../src/inference/engines/openai/probe.ts';
import { InnerService, until } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';

const answer = (exchange: UpstreamExchange): void => {
  if (exchange.method === 'GET') return exchange.json(200, { object: 'list', data: [] });
  exchange.events();
  const usage = usageChunk({ prompt_tokens: 3, completion_tokens: 1 });
  exchange.chunk(chatChunk({ content: 'hello' }) + chatChunk({}, 'stop') + usage + event('[DONE]'));
  exchange.endChunks();
};

let isFrozen = false;
/** What a frozen server would answer when it goes on. */
const unanswered: UpstreamExchange[] = [];
let freezing: Upstream;
let sound: Upstream;
let service: InnerService;

before(async () => {
  freezing = await Upstream.start((exchange) => (isFrozen ? void unanswered.push(exchange) : answer(exchange)), {
    isLookedAt: true,
  });
  sound = await Upstream.start(answer);
  service = await new InnerService({
    limits: '  first_token_timeout_seconds: 1',
    config: `models:
  - id: m
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - { engine: openai, name: freezing, flavor: vllm, url: "${freezing.url}" }
      - { engine: openai, name: sound, flavor: vllm, url: "${sound.url}" }`,
  }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  await Promise.all([freezing.close(), sound.close()]);
});

let asked = 0;
async function ask(): Promise<void> {
  const response = await service.chat({ model: 'm', messages: [{ role: 'user', content: `hi ${++asked}` }] });
  const text = await response.text();
  assert.equal(response.status, 200, text);
}
/** Other questions, which tell who asks, are about its models and its load. */
const isLook = ({ method, headers }: UpstreamExchange): boolean =>
  method === 'GET' && headers.get('user-agent') !== probeUserAgent;
const generations = (): number => freezing.exchanges.filter(({ method }) => method === 'POST').length;
const logged = (what: string) => service.log.filter(({ event: name }) => name === what);

test('it gets no request while it is silent, and one at once when it answers, whatever its pause was', async () => {
  await until(async () => {
    await ask();
    return generations() > 0;
  });
  isFrozen = true;
  // A second look follows a first that had no answer.
  await until(async () => {
    await ask();
    return unanswered.filter(isLook).length >= 2;
  });
  const met = generations();
  // More than once, where its first pause ended before its first look did.
  const ejections = logged('backend_ejected').length;
  assert.ok(ejections >= 1);
  for (let count = 0; count < 20; count++) await ask();
  assert.equal(generations(), met, 'no request is spent on it');
  assert.equal(logged('backend_ejected').length, ejections);
  assert.equal(logged('backend_returned').length, 0);
  isFrozen = false;
  for (const exchange of unanswered.splice(0)) answer(exchange);
  await until(async () => {
    await ask();
    return generations() > met;
  });
  await until(() => logged('backend_returned').length === 1);
});
