import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { Relay } from './relay.ts';

let relay: Relay;

const kinds = ['honor', 'ignore', 'fixed'] as const;
const flavors = ['vllm', 'sglang', 'llama-server', 'openai'] as const;
const model = (url: string, id: string, flavor: string, more = ''): string => `
  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    ${more}
    backends: [ { engine: openai, flavor: ${flavor}, url: "${url}"${flavor === 'openai' ? ', forward: [ top_k, min_p, repetition_penalty ]' : ''} } ]`;
const none = 'capabilities: { logprobs: false, logit_bias: false, chat_completions: { n: false } }';

before(async () => {
  relay = await Relay.start((url) =>
    [
      ...kinds.map((kind) => model(url, kind, 'vllm', `sampling: ${kind}`)),
      ...flavors.map((flavor) => model(url, flavor, flavor, 'sampling: ignore')),
      model(url, 'plain', 'vllm', none),
      model(url, 'plain-fixed', 'vllm', `sampling: fixed\n    ${none}`),
    ].join(''),
  );
});
after(() => relay.end());

const four = { temperature: 0.3, top_p: 0.8, presence_penalty: 0.5, frequency_penalty: -0.5 };
const rest = { top_k: 7, min_p: 0.1, repetition_penalty: 1.2, seed: 42, stop: ['END'] };
const picked = (body: Readonly<Record<string, unknown>>, fields: object): Record<string, unknown> =>
  Object.fromEntries(Object.entries(body).filter(([name]) => Object.hasOwn(fields, name)));

test('part 1: most models ignore temperature, top_p, presence_penalty and frequency_penalty', async () => {
  assert.deepEqual(picked(await relay.sent({ model: 'ignore', ...four, ...rest }), four), {});
});

test('part 1: a few models honor these four fields', async () => {
  assert.deepEqual(picked(await relay.sent({ model: 'honor', ...four, ...rest }), four), four);
});

test('part 1: one route enforces fixed sampling values and the service strips these fields, plus n, for it', async () => {
  for (const id of ['fixed', 'plain-fixed']) {
    const sent = await relay.sent({ model: id, ...four, n: 3 });
    assert.deepEqual(picked(sent, { ...four, n: 0 }), {});
  }
  assert.equal((await relay.completion({ model: 'fixed', n: 3 })).choices.length, 1);
});

test('part 1: top_k, min_p, repetition_penalty, seed and stop reach every model', async () => {
  for (const kind of kinds) {
    assert.deepEqual(picked(await relay.sent({ model: kind, ...four, ...rest }), rest), rest);
  }
});

test('part 1: …under the name that each kind of server has for them', async () => {
  for (const flavor of flavors) {
    const { repetition_penalty, ...common } = rest;
    const renamed = flavor === 'llama-server' ? { repeat_penalty: repetition_penalty } : { repetition_penalty };
    const expected = { ...common, ...renamed };
    assert.deepEqual(
      picked(await relay.sent({ model: flavor, ...rest }), { ...expected, repetition_penalty }),
      expected,
    );
  }
});

test('§4.2 stop is a string or an array', async () => {
  assert.deepEqual((await relay.sent({ model: 'honor', stop: 'END' }))['stop'], ['END']);
  assert.equal((await relay.sent({ model: 'honor', stop: [] }))['stop'], undefined);
});

test('§4.2 n needs chat_completions.n; otherwise 400 unsupported_feature with param n', async () => {
  assertEnvelope(await relay.send({ model: 'plain', n: 2 }), 'unsupported_feature', { param: 'n' });
  assert.equal((await relay.sent({ model: 'plain', n: 1 }))['n'], undefined);
});

test('§4.2 logprobs, top_logprobs and logit_bias: to models that have them, else unsupported_parameter', async () => {
  const wanted = { logprobs: true, top_logprobs: 3, logit_bias: { '50256': -100 } };
  assert.deepEqual(picked(await relay.sent({ model: 'honor', ...wanted }), wanted), wanted);
  assertEnvelope(await relay.send({ model: 'plain', logprobs: true }), 'unsupported_parameter', { param: 'logprobs' });
  assertEnvelope(await relay.send({ model: 'plain', logit_bias: { '5': 1 } }), 'unsupported_parameter', {
    param: 'logit_bias',
  });
  assert.deepEqual(picked(await relay.sent({ model: 'plain', logprobs: false, logit_bias: {} }), wanted), {});
});

const outside: readonly (readonly [string, unknown, string?])[] = [
  ['temperature', 2.1],
  ['temperature', -0.1],
  ['top_p', 1.1],
  ['top_k', 1.5],
  ['top_k', -2],
  ['min_p', -0.1],
  ['min_p', 1.1],
  ['frequency_penalty', 2.1],
  ['presence_penalty', -2.1],
  ['repetition_penalty', 0],
  ['seed', 'x'],
  ['stop', [1], 'stop[0]'],
  ['n', 0],
  ['top_logprobs', 21],
  ['logprobs', 1],
  ['logit_bias', { '5': 101 }, 'logit_bias.5'],
  ['logit_bias', { word: 1 }, 'logit_bias'],
];
for (const [field, value, param = field] of outside) {
  test(`§7.2 ${field} ${JSON.stringify(value)} is 422 with param ${param}, also on a model that ignores it`, async () => {
    for (const id of ['honor', 'ignore']) {
      assertEnvelope(await relay.send({ model: id, [field]: value }), 'schema_validation_failed', { param });
    }
  });
}

test('part 1: unrecognized request fields are not rejected, and never reach a model', async () => {
  const unknown = {
    store: true,
    metadata: { a: '1' },
    user: 'u',
    prompt_cache_key: 'k',
    service_tier: 'auto',
    verbosity: 'low',
    best_of: 9,
    prompt_logprobs: 5,
    priority: -5,
    cache_salt: 'of another account',
    ignore_eos: true,
    extra_body: { a: 1 },
    chat_template: '{{ messages }}',
    eager_input_streaming: true,
    something: [{}],
  };
  const { cache_salt: ours, ...sent } = await relay.sent({ model: 'honor', ...unknown });
  assert.deepEqual(picked(sent, unknown), {});
  assert.notEqual(ours, unknown.cache_salt);
});
