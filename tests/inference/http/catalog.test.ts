import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { InnerService, scriptedModel } from '../../support/service.ts';
import { assertEnvelope } from './envelope.ts';
import { exchange } from './raw.ts';

/** Specification part 2: the cards, complete, with and without a key; and the two health routes. */
const service = new InnerService({
  config: `${scriptedModel('- say: [ { text: "hello" } ]', { id: 'Capped-Model', maxOutputTokens: '100' })}
  - id: plain/model:1
    description: The second one.
    owned_by: somebody
    context_length: 4096
    pricing: { input_cents_per_million: 12.5, output_cents_per_million: 0, cache_read_microcents_per_million: 1499999 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "hello" } ] } ] } ]`,
});
before(() => service.start());
after(() => service.dispose());

const flags = (value: boolean, ...names: readonly string[]) => Object.fromEntries(names.map((name) => [name, value]));
const families = ['supported', 'streaming', 'tools'];
const chatFlags = [...families, 'tool_streaming', 'json_object', 'json_schema', 'json_schema_refs'];

const capabilities = {
  vision: false,
  tools: true,
  reasoning: false,
  chat_completions: flags(true, ...chatFlags, 'tools_with_response_format', 'n', 'regex', 'grammar'),
  responses: {
    ...flags(true, ...families, 'raw_json_schema_text'),
    text_format: ['text', 'json_object', 'json_schema'],
  },
  messages: { ...flags(true, ...families, 'tool_streaming'), ...flags(false, 'vision', 'reasoning') },
  embeddings: flags(false, 'supported', 'dimensions'),
  rerank: flags(false, 'supported'),
  zdr: { supported: false, same_capabilities: false },
  reasoning_effort: { efforts: ['none'], default: 'none' },
};

const cards = (created: unknown) => [
  {
    id: 'Capped-Model',
    object: 'model',
    created,
    type: 'model',
    display_name: 'Demo',
    created_at: new Date(Number(created) * 1000).toISOString(),
    owned_by: 'tokenhouse',
    max_model_len: 8192,
    zdr_supported: false,
    supports_vision: false,
    service: {
      display_name: 'Demo',
      context_length: 8192,
      max_output_tokens: 100,
      capabilities,
      pricing: {
        currency: 'usd',
        input_cents_per_million: 5,
        output_cents_per_million: 20,
        // Without a price of their own, cached tokens cost what others do.
        cache_read_cents_per_million: 5,
        cache_read_microcents_per_million: 5_000_000,
      },
    },
  },
  {
    id: 'plain/model:1',
    object: 'model',
    created,
    type: 'model',
    display_name: 'plain/model:1',
    created_at: new Date(Number(created) * 1000).toISOString(),
    owned_by: 'somebody',
    max_model_len: 4096,
    zdr_supported: false,
    supports_vision: false,
    service: {
      display_name: 'plain/model:1',
      description: 'The second one.',
      context_length: 4096,
      max_output_tokens: null,
      capabilities,
      pricing: {
        currency: 'usd',
        input_cents_per_million: 12.5,
        output_cents_per_million: 0,
        cache_read_cents_per_million: 1,
        cache_read_microcents_per_million: 1_499_999,
      },
    },
  },
];

test('the list has every field of every card, with and without a key', async () => {
  for (const headers of [[], [['Authorization', `Bearer ${service.key}`]], [['x-api-key', service.key]]] as const) {
    const asked = Math.floor(Date.now() / 1000);
    const answer = await exchange(service.url, { path: '/v1/models', headers });
    assert.equal(answer.status, 200);
    const list = answer.json() as { object: string; data: { created: number }[] };
    assert.equal(list.object, 'list');
    const created = list.data[0]?.created ?? 0;
    assert.ok(Number.isInteger(created) && created >= asked && created <= asked + 60, String(created));
    assert.deepEqual(list.data, cards(created));
  }
});

test('there is no route for one model', async () => {
  assertEnvelope(await exchange(service.url, { path: '/v1/models/Capped-Model' }), 'http_404');
  assertEnvelope(await exchange(service.url, { path: '/v1/models/' }), 'http_404');
});

test('HEAD tells the length of the list', async () => {
  const list = await exchange(service.url, { path: '/v1/models' });
  const head = await exchange(service.url, { method: 'HEAD', path: '/v1/models' });
  assert.equal(head.status, 200);
  assert.equal(head.headers['content-length'], list.headers['content-length']);
});

test('healthz and readyz', async () => {
  const health = await exchange(service.url, { path: '/healthz' });
  assert.deepEqual([health.status, health.json()], [200, { status: 'ok' }]);
  const ready = await exchange(service.url, { path: '/readyz' });
  assert.deepEqual([ready.status, ready.json()], [200, { status: 'ready' }]);
});
