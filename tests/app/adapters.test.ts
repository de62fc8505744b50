import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { TestService } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';

/** Fine-tuned adapters: models of their own, at the servers of their base. */
let service: TestService;
let upstream: Upstream;

before(async () => {
  upstream = await Upstream.start((exchange) => {
    exchange.events();
    const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 };
    const text = { id: 'c', object: 'text_completion', created: 1, model: 'm' };
    if (exchange.path.endsWith('/chat/completions')) {
      exchange.chunk(chatChunk({ role: 'assistant', content: 'hello' }));
      exchange.chunk(chatChunk({}, 'stop') + usageChunk(usage));
    } else
      exchange.chunk(
        event({ ...text, choices: [{ index: 0, text: 'hello', finish_reason: 'stop' }] }) +
          event({ ...text, choices: [], usage }),
      );
    exchange.chunk('data: [DONE]\n\n');
    exchange.endChunks();
  });
  const base = `context_length: 8192
    pricing: { input_cents_per_million: 10000, output_cents_per_million: 40000 }`;
  const at = (flavor: string, more = ''): string =>
    `backends: [ { engine: openai, flavor: ${flavor}, url: "${upstream.url}"${more} } ]`;
  service = await new TestService({
    config: `models:
  - id: v
    description: The base.
    ${base}
    adapters:
      - { id: V/Legal, adapter: legal, price_multiple: 1.5, owned_by: acme }
      - { id: v-cheap, pricing: { input_cents_per_million: 1, output_cents_per_million: 2 }, description: Own. }
      - { id: v-theirs, dedicated_to: [ acct_1C9VER1i2IGG ] }
    ${at('vllm', ', model: org/v')}
  - id: s
    ${base}
    adapters: [ { id: s-sql, adapter: sql } ]
    ${at('sglang')}
  - id: l
    ${base}
    adapters: [ { id: l-a, lora_id: 0 }, { id: l-b, lora_id: 2, scale: 0.5 }, { id: l-c, lora_id: 2 } ]
    ${at('llama-server')}`,
  }).start();
});

after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
});

const families = {
  '/v1/chat/completions': { messages: [{ role: 'user', content: 'hi' }] },
  '/v1/completions': { prompt: 'hi' },
  '/v1/messages': { messages: [{ role: 'user', content: 'hi' }], max_tokens: 100 },
  '/v1/responses': { input: 'hi' },
};

const ask = async (path: string, body: object): Promise<Response> =>
  await fetch(service.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });

const loras = (first: number, second: number) => [
  { id: 0, scale: first },
  { id: 2, scale: second },
];

test('a request for an adapter names it as its server knows it, and one for the base switches all of them off', async () => {
  for (const [model, said] of [
    ['v', { model: 'org/v' }],
    ['V/Legal', { model: 'legal' }],
    ['v-cheap', { model: 'v-cheap' }],
    ['s', { model: 's' }],
    ['s-sql', { model: 's', lora_path: 'sql' }],
    // An empty list would leave all of them on.
    ['l', { model: 'l', lora: loras(0, 0) }],
    ['l-a', { model: 'l', lora: loras(1, 0) }],
    ['l-b', { model: 'l', lora: loras(0, 0.5) }],
    ['l-c', { model: 'l', lora: loras(0, 1) }],
  ] as const)
    for (const [path, body] of Object.entries(families))
      for (const stream of [false, true]) {
        // SGLang and others lack some of the families' forms.
        const answer = await ask(path, { ...body, model: model.toLowerCase(), stream });
        const text = await answer.text();
        assert.equal(answer.status, 200, text);
        assert.match(text, new RegExp(`"model":"${model}"`), `${path} ${model}`);
        const sent = JSON.parse(upstream.exchanges.at(-1)!.body) as Record<string, unknown>;
        const { model: named, lora, lora_path: loraPath } = sent;
        const named3 = { model: named, ...(lora ? { lora } : {}), ...(loraPath ? { lora_path: loraPath } : {}) };
        assert.deepEqual(named3, said, `${path} ${model}`);
      }
});

test('it is charged at its own price, under its own id', async () => {
  const ledger = new TestLedger(service);
  for (const [model, cost] of [
    ['v', 1_400_000n],
    ['V/Legal', 2_100_000n],
    ['v-cheap', 120n],
  ] as const) {
    const answer = await ask('/v1/chat/completions', { ...families['/v1/chat/completions'], model });
    await answer.text();
    const row = await ledger.row(answer.headers.get('x-request-id')!);
    assert.deepEqual([row.modelId, row.costMicrocents], [model, cost]);
  }
});

test('its card says what it is an adapter of, and has what it does not say from there', async () => {
  const answer = await fetch(`${service.url}/v1/models`, { headers: { authorization: `Bearer ${service.key}` } });
  const { data } = (await answer.json()) as {
    data: readonly {
      id: string;
      owned_by: string;
      max_model_len: number;
      service: {
        adapter_of?: string;
        display_name: string;
        description?: string;
        pricing: { input_cents_per_million: number };
      };
    }[];
  };
  assert.deepEqual(
    data.map(({ id, owned_by, max_model_len, service: { adapter_of, display_name, description, pricing } }) => [
      ...[id, owned_by, max_model_len, adapter_of, display_name, description, pricing.input_cents_per_million],
    ]),
    [
      ['v', 'tokenhouse', 8192, undefined, 'v', 'The base.', 10_000],
      ['V/Legal', 'acme', 8192, 'v', 'V/Legal', 'The base.', 15_000],
      ['v-cheap', 'tokenhouse', 8192, 'v', 'v-cheap', 'Own.', 1],
      ['s', 'tokenhouse', 8192, undefined, 's', undefined, 10_000],
      ['s-sql', 'tokenhouse', 8192, 's', 's-sql', undefined, 10_000],
      ['l', 'tokenhouse', 8192, undefined, 'l', undefined, 10_000],
      ['l-a', 'tokenhouse', 8192, 'l', 'l-a', undefined, 10_000],
      ['l-b', 'tokenhouse', 8192, 'l', 'l-b', undefined, 10_000],
      ['l-c', 'tokenhouse', 8192, 'l', 'l-c', undefined, 10_000],
    ],
    "an adapter of other accounts isn't there",
  );
  const listed = JSON.parse((await service.command('models', 'list', '--json')).stdout) as {
    id: string;
    adapter_of: string | null;
  }[];
  assert.deepEqual(
    listed.filter(({ adapter_of: of }) => of === 'v').map(({ id }) => id),
    ['V/Legal', 'v-cheap', 'v-theirs'],
  );
});

test('an adapter of other accounts is refused as a model that does not exist', async () => {
  const answer = await ask('/v1/chat/completions', { ...families['/v1/chat/completions'], model: 'v-theirs' });
  assert.equal(answer.status, 404, await answer.text());
});
