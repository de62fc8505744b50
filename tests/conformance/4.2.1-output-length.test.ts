import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { Relay } from './relay.ts';

let relay: Relay;

/** Windows in tokens; a backend each, so that a model is known by what it was asked. */
const model = (url: string, id: string, window: number, more = ''): string => `
  - id: ${id}
    context_length: ${window}
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    ${more}
    backends: [ { engine: openai, flavor: vllm, url: "${url}" } ]`;
const reasoning = 'reasoning: { efforts: [none, low, high], default: low, room_tokens: 24576 }';

before(async () => {
  relay = await Relay.start((url) =>
    [
      model(url, 'capped', 8192, 'max_output_tokens: 2048'),
      model(url, 'open', 8192),
      model(url, 'wide', 200_000),
      model(url, 'wider', 400_000),
      model(url, 'roomy', 131_072, reasoning),
      model(url, 'roomy-capped', 131_072, `max_output_tokens: 8192\n    ${reasoning}`),
      model(url, 'roomy-small', 8192, reasoning),
    ].join(''),
  );
});
after(() => relay.end());

/** As many bytes as tokens at least: what has fewer bytes than the window has room is not worth a question. */
const long = [{ role: 'user', content: 'x'.repeat(9000) }];

const limit = async (id: string, fields: Record<string, unknown> = {}): Promise<unknown> =>
  (await relay.sent({ model: id, ...fields }))['max_tokens'];

test("§4.2.1(1) when max_tokens is omitted the default is the model's max_output_tokens if it has one", async () => {
  assert.equal(await limit('capped'), 2048);
});

test('§4.2.1(1) otherwise the smaller of 65,536 tokens and half the context window', async () => {
  assert.equal(await limit('open'), 4096);
  assert.equal(await limit('wide'), 65_536);
});

test("§4.2.1(2) a max_tokens above the model's max_output_tokens is lowered to that cap", async () => {
  assert.equal(await limit('capped', { max_tokens: 2049 }), 2048);
  assert.equal(await limit('capped', { max_tokens: 2048 }), 2048);
  assert.equal(await limit('capped', { max_tokens: 7 }), 7);
});

test('§4.2.1(3) a max_tokens larger than the whole context window is ignored', async () => {
  assert.equal(await limit('capped', { max_tokens: 8193 }), 2048);
  assert.equal(await limit('open', { max_tokens: 1e300 }), 4096);
});

test('§4.2.1(4) when prompt plus max_tokens does not fit the context window, chat completions retry once without max_tokens', async () => {
  relay.promptTokens = 1000;
  // Contracts decision 14: as long as the window leaves room, within the cap.
  assert.equal(await limit('open', { max_tokens: 8000, messages: long }), 7192);
  relay.promptTokens = 7000;
  assert.equal(await limit('capped', { max_tokens: 2048, messages: long }), 1192);
  relay.promptTokens = 10;
});

test('§4.2.1(4) a window that the prompt alone fills is refused with what to do about it (§7.2)', async () => {
  relay.promptTokens = 8192;
  const answer = await relay.send({ model: 'open', max_tokens: 8000, messages: long });
  relay.promptTokens = 10;
  const error = assertEnvelope(answer, 'context_length_exceeded', {
    param: 'messages',
    extra: ['model', 'context_length_limit', 'prompt_tokens', 'max_tokens', 'suggested_models'],
  });
  assert.equal(error['model'], 'open');
  assert.equal(error['context_length_limit'], 8192);
  // Nearest larger window first; equals are as they stand in the catalog.
  assert.deepEqual(error['suggested_models'], [
    { id: 'roomy', context_length: 131_072 },
    { id: 'roomy-capped', context_length: 131_072 },
    { id: 'wide', context_length: 200_000 },
    { id: 'wider', context_length: 400_000 },
  ]);
  assert.match(String(error['message']), /lower max_tokens, trim the prompt, or choose a model with a larger context/i);
});

test('§4.2.1(5) with reasoning on, up to 24,576 extra tokens of room are added for reasoning', async () => {
  assert.equal(await limit('roomy', { max_tokens: 100 }), 24_676);
  assert.equal(await limit('roomy', { max_tokens: 100, reasoning_effort: 'high' }), 24_676);
  assert.equal(await limit('roomy', { max_tokens: 100, reasoning_effort: 'none' }), 100);
  assert.equal(await limit('roomy', { max_tokens: 100, thinking: { type: 'disabled' } }), 100);
});

test('§4.2.1(5) the room ends at the window and at the cap of the card', async () => {
  relay.promptTokens = 1000;
  assert.equal(await limit('roomy-small', { max_tokens: 4000, messages: long }), 7192);
  relay.promptTokens = 10;
  assert.equal(await limit('roomy-capped', { max_tokens: 100 }), 8192);
  assert.equal(await limit('roomy-capped'), 8192);
});

test('§4.2.1(5) so completion_tokens can exceed max_tokens, and all of them are paid for', async () => {
  relay.reply = [...Array.from({ length: 30 }, () => ({ reasoning_content: 'hm ' })), { content: 'Yes.' }];
  const { choices, usage } = await relay.completion({ model: 'roomy', max_tokens: 5 });
  relay.reply = [{ content: 'Hello.' }];
  assert.equal(choices[0]?.message.content, 'Yes.');
  assert.equal(usage.completion_tokens, 31);
  assert.equal(usage.completion_tokens_details.reasoning_tokens, 30);
  const { requests } = await relay.service.usage(1);
  assert.deepEqual(
    [requests[0]?.completion_tokens, requests[0]?.reasoning_tokens, requests[0]?.uncharged_microcents],
    [31, 30, 0],
  );
});

test('§4.2 max_completion_tokens is an accepted alias; when both are sent max_tokens wins', async () => {
  assert.equal(await limit('open', { max_completion_tokens: 7 }), 7);
  assert.equal(await limit('open', { max_tokens: 5, max_completion_tokens: 7 }), 5);
  assert.equal(await limit('open', { max_tokens: null, max_completion_tokens: 7 }), 7);
});

test('§4.2 max_tokens is positive when given', async () => {
  for (const max_tokens of [0, -1, 1.5, '5']) {
    assertEnvelope(await relay.send({ model: 'open', max_tokens }), 'schema_validation_failed', {
      param: 'max_tokens',
    });
  }
});
