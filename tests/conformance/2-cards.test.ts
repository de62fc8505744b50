import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { assertEnvelope } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import { InnerService } from '../support/service.ts';

/** Specification part 2: the list and its cards, through the whole service. */
const backend = (flavor: string, more = ''): string =>
  `{ engine: openai, name: ${flavor}, flavor: ${flavor}, url: "http://127.0.0.1:9/v1"${more} }`;
const service = new InnerService({
  config: `models:
  - id: Plain-Model
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hello } ] } ] } ]
  - id: full
    display_name: Full
    description: Everything.
    owned_by: somebody
    tier: premium
    deprecation_date: 2999-12-31
    context_length: 200000
    max_output_tokens: 8192
    pricing: { input_cents_per_million: 12.5, output_cents_per_million: 40.000001, cache_read_microcents_per_million: 1499999 }
    capabilities: { vision: true, reasoning: true }
    reasoning: { efforts: [none, low, high, max], default: high }
    backends: [ ${backend('vllm', ', zdr: true')} ]
  - id: partitioned
    context_length: 8192
    pricing: { input_cents_per_million: 1, output_cents_per_million: 1 }
    backends: [ ${backend('openai')}, ${backend('vllm', ', zdr: true')} ]
  - id: narrow
    context_length: 8192
    pricing: { input_cents_per_million: 0, output_cents_per_million: 0 }
    capabilities:
      tools: false
      chat_completions: { streaming: false, json_object: false, json_schema: false, n: false, regex: false, grammar: false }
    backends: [ ${backend('vllm')} ]`,
});
before(() => service.start());
after(() => service.dispose());

interface Card extends Readonly<Record<string, unknown>> {
  readonly id: string;
  readonly created: number;
  readonly service: Readonly<Record<string, unknown>> & {
    readonly capabilities: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
    readonly pricing: Readonly<Record<string, number | string>>;
  };
}

const list = async (headers: readonly (readonly [string, string])[] = []): Promise<Card[]> => {
  const answer = await exchange(service.url, { path: '/v1/models', headers });
  assert.equal(answer.status, 200, answer.body);
  return answer.json()['data'] as Card[];
};
const card = async (id: string): Promise<Card> => {
  const found = (await list()).find((candidate) => candidate.id === id);
  assert.ok(found !== undefined, id);
  return found;
};

describe('2.1 the model list', () => {
  test('§2.1 object is list, data are the cards in the order of the configuration', async () => {
    const answer = await exchange(service.url, { path: '/v1/models' });
    const body = answer.json() as { object: string; data: Card[] };
    assert.equal(body.object, 'list');
    assert.deepEqual(
      body.data.map(({ id }) => id),
      ['Plain-Model', 'full', 'partitioned', 'narrow'],
    );
  });

  test('§2.1 there is no route for one model', async () => {
    for (const path of ['/v1/models/full', '/v1/models/', '/v1/models/Plain-Model?x=1'])
      assertEnvelope(await exchange(service.url, { path }), 'http_404');
  });
});

describe('2.2 the card', () => {
  test('§2.2 created is the time of the request', async () => {
    const first = Math.floor(Date.now() / 1000);
    const { created } = await card('full');
    assert.ok(Number.isInteger(created) && created >= first && created <= Math.floor(Date.now() / 1000), `${created}`);
  });

  test('§2.2 every field, with the values of the configuration', async () => {
    const { service: of, created, ...outer } = await card('full');
    assert.deepEqual(outer, {
      id: 'full',
      object: 'model',
      owned_by: 'somebody',
      max_model_len: 200_000,
      zdr_supported: true,
      supports_vision: true,
      type: 'model',
      display_name: 'Full',
      created_at: new Date(created * 1000).toISOString(),
    });
    const { capabilities, pricing, ...rest } = of;
    assert.ok(typeof capabilities === 'object' && typeof pricing === 'object');
    assert.deepEqual(rest, {
      display_name: 'Full',
      description: 'Everything.',
      tier: 'premium',
      context_length: 200_000,
      max_output_tokens: 8192,
      deprecation_date: '2999-12-31',
    });
  });

  test('§2.2 max_output_tokens is null without a cap; what may be present is absent without a value', async () => {
    const { service: of } = await card('Plain-Model');
    assert.equal(of['max_output_tokens'], null);
    for (const field of ['description', 'tier', 'deprecation_date']) assert.ok(!(field in of), field);
  });

  test('§2.2 context_length is max_model_len, supports_vision is the flag, in every card', async () => {
    for (const found of await list()) {
      assert.equal(found.service['context_length'], found['max_model_len'], found.id);
      assert.equal(found.service.capabilities['vision'], found['supports_vision'], found.id);
      assert.equal(found.service.capabilities['zdr']?.['supported'], found['zdr_supported'], found.id);
    }
  });

  test('§2.2 the id is case-insensitive on use, and the answer has the spelling of the card', async () => {
    for (const model of ['plain-model', 'PLAIN-MODEL', 'Plain-Model']) {
      const answer = await service.chat({ model, messages: [{ role: 'user', content: 'hi' }] });
      const body = (await answer.json()) as { model: string };
      assert.deepEqual([answer.status, body.model], [200, 'Plain-Model']);
    }
  });
});

describe('2.3 capabilities', () => {
  const chatFlags = [
    'supported',
    'streaming',
    'tools',
    'tool_streaming',
    'json_object',
    'json_schema',
    'json_schema_refs',
    'tools_with_response_format',
    'n',
    'regex',
    'grammar',
  ];
  const trueFlags = (found: Card): string[] =>
    Object.entries(found.service.capabilities['chat_completions'] ?? {})
      .filter(([, value]) => value === true)
      .map(([name]) => name);

  test('§2.3 every flag of every API is there, with its type', async () => {
    for (const { id, service: of } of await list()) {
      const { chat_completions: chat, responses, messages, ...others } = of.capabilities;
      const { embeddings, rerank, zdr, reasoning_effort: effort, ...rest } = others;
      // Fields may be added (§2.1).
      assert.deepEqual(
        [Object.keys(embeddings ?? {}), Object.keys(rerank ?? {})],
        [['supported', 'dimensions'], ['supported']],
      );
      assert.deepEqual(Object.keys(rest), ['vision', 'tools', 'reasoning'], id);
      assert.deepEqual(Object.keys(chat ?? {}), chatFlags);
      for (const value of [...Object.values(rest), ...Object.values(chat ?? {})]) assert.equal(typeof value, 'boolean');
      const onResponses = ['supported', 'streaming', 'tools', 'text_format', 'raw_json_schema_text'];
      assert.deepEqual(Object.keys(responses ?? {}), onResponses);
      for (const name of onResponses)
        assert.equal(typeof responses?.[name], name === 'text_format' ? 'object' : 'boolean', name);
      const onMessages = ['supported', 'streaming', 'tools', 'tool_streaming', 'vision', 'reasoning'];
      assert.deepEqual(Object.keys(messages ?? {}), onMessages);
      for (const value of Object.values(messages ?? {})) assert.equal(typeof value, 'boolean');
      assert.deepEqual(Object.keys(zdr ?? {}), ['supported', 'same_capabilities']);
      assert.deepEqual(Object.keys(effort ?? {}), ['efforts', 'default']);
    }
  });

  test('§2.3 flags are what the backends can do, narrowed and asserted by the configuration', async () => {
    assert.deepEqual(trueFlags(await card('full')), chatFlags);
    assert.deepEqual(
      trueFlags(await card('partitioned')),
      chatFlags.filter((name) => name !== 'regex' && name !== 'grammar'),
    );
    assert.deepEqual(trueFlags(await card('narrow')), ['supported']);
    const { vision, tools, reasoning } = (await card('full')).service.capabilities;
    assert.deepEqual([vision, tools, reasoning], [true, true, true]);
  });

  test('§2.3 zdr.same_capabilities', async () => {
    const zdrOf = async (id: string): Promise<unknown> => (await card(id)).service.capabilities['zdr'];
    assert.deepEqual(await zdrOf('full'), { supported: true, same_capabilities: true });
    assert.deepEqual(await zdrOf('partitioned'), { supported: true, same_capabilities: false });
    assert.deepEqual(await zdrOf('narrow'), { supported: false, same_capabilities: false });
  });

  test('§2.3 reasoning_effort: the tiers, and the one of requests that set none', async () => {
    const effortOf = async (id: string): Promise<unknown> => (await card(id)).service.capabilities['reasoning_effort'];
    assert.deepEqual(await effortOf('full'), { efforts: ['none', 'low', 'high', 'max'], default: 'high' });
    assert.deepEqual(await effortOf('narrow'), { efforts: ['none'], default: 'none' });
  });
});

describe('2.4 pricing', () => {
  test('§2.4 cents per million tokens, the cache price rounded and exact', async () => {
    assert.deepEqual((await card('full')).service.pricing, {
      currency: 'usd',
      input_cents_per_million: 12.5,
      output_cents_per_million: 40.000001,
      cache_read_cents_per_million: 1,
      cache_read_microcents_per_million: 1_499_999,
    });
  });

  test('§2.4 without a key list prices, with a key the rates of its account', async () => {
    const key = [['Authorization', `Bearer ${service.key}`]] as const;
    const input = (cards: readonly Card[]) => cards.map((each) => each.service.pricing['input_cents_per_million']);
    assert.deepEqual(input(await list(key)), [5, 12.5, 1, 0]);
    const set = await service.command('prices', 'set', 'FULL', '--input', '3.25', '--output', '7', '--cache-read', '0');
    assert.equal(set.code, 0, set.stderr);
    assert.deepEqual(input(await list()), [5, 12.5, 1, 0]);
    const [, full] = await list(key);
    assert.deepEqual(full?.service.pricing, {
      currency: 'usd',
      input_cents_per_million: 3.25,
      output_cents_per_million: 7,
      cache_read_cents_per_million: 0,
      cache_read_microcents_per_million: 0,
    });
    const removed = await service.command('prices', 'remove', 'full');
    assert.equal(removed.code, 0, removed.stderr);
    assert.deepEqual(input(await list(key)), [5, 12.5, 1, 0]);
  });
});
