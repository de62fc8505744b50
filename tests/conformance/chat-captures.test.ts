import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { eventsOf } from '../inference/http/chat.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { assertPlainOr, grammarOfSchema, Relay } from './relay.ts';
import { inRepository } from '../support/repository.ts';

/** Requests that unmodified clients really sent to chat completions, replayed: each gets a valid answer. */
const folder = inRepository('tests', 'fixtures', 'wire', 'chat');

let relay: Relay;
before(async () => {
  relay = await Relay.start(
    (url) => `
  - id: fake-model
    context_length: 200000
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    reasoning: { efforts: [none, low, high], default: none, preserves: true }
    backends: [ { engine: openai, flavor: vllm, url: "${url}" } ]`,
  );
});
after(() => relay.end());

interface Capture {
  readonly request: { readonly body: Readonly<Record<string, unknown>> };
  readonly real_body_bytes?: number;
}

for (const file of readdirSync(folder).sort()) {
  const name = file.slice(0, -'.json'.length);
  const { request } = JSON.parse(readFileSync(join(folder, file), 'utf8')) as Capture;

  for (const stream of [false, true]) {
    test(`${name}, ${stream ? 'streamed' : 'whole'}`, async () => {
      // As large as real ones are: the recordings are cut.
      const messages = [{ role: 'system', content: 'x'.repeat(100_000) }, ...(request.body['messages'] as unknown[])];
      const answer = await relay.send({ ...request.body, model: 'fake-model', messages, stream });
      assert.equal(answer.status, 200, answer.body);
      if (!stream) {
        const { choices } = answer.json() as { choices: { message: { content: string } }[] };
        assertPlainOr(choices[0]?.message.content, 'response_format' in request.body);
        return;
      }
      const events = eventsOf(answer.body);
      assert.equal(events.at(-1), '[DONE]');
      const chunks = events.slice(0, -1).map((event) => JSON.parse(event) as Readonly<Record<string, unknown>>);
      assert.ok(chunks.every((chunk) => chunk['object'] === 'chat.completion.chunk'));
      assert.ok(chunks.at(-1)?.['usage'], answer.body);
    });
  }
}

test('contracts §1.5: what clients send beyond the specification is accepted', async () => {
  const call = { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } };
  const sent = await relay.sent({
    model: 'FAKE-Model',
    messages: [
      { role: 'developer', content: 'Be brief.', name: 'dev' },
      { role: 'user', content: [{ type: 'text', text: 'Look.' }], name: 'ann' },
      { role: 'assistant', tool_calls: [call], reasoning_content: 'I should look.', refusal: null },
      {
        role: 'tool',
        tool_call_id: 'call_1',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
      { role: 'assistant', content: null, tool_calls: [{ ...call, id: 'call_2' }] },
      { role: 'tool', tool_call_id: 'call_2', content: null },
    ],
    max_completion_tokens: 32_000,
    store: false,
    metadata: { a: 'b' },
    user: 'u',
    prompt_cache_key: 'k',
    service_tier: 'auto',
    verbosity: 'low',
    stream_options: { include_usage: true },
    chat_template_kwargs: { enable_thinking: true, other: 1 },
    tools: [
      { type: 'function', function: { name: 'look', strict: true, parameters: { type: 'object', properties: {} } } },
    ],
  });
  const { messages } = sent as { messages: Readonly<Record<string, unknown>>[] };
  assert.deepEqual(messages, [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Look.' },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'call_1', content: 'a\nb' },
    { role: 'assistant', content: null, tool_calls: [{ ...call, id: 'call_2' }] },
    { role: 'tool', tool_call_id: 'call_2', content: '' },
  ]);
});

test('contracts §1.5: a schema without a name, with $schema and the bounds of safe integers', async () => {
  const schema = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: { n: { type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER } },
    required: ['n'],
    additionalProperties: false,
  };
  const sent = await relay.sent({
    model: 'fake-model',
    response_format: { type: 'json_schema', json_schema: { schema } },
  });
  assert.equal(sent['guided_grammar'], grammarOfSchema(schema));
});

test('contracts §1.5: audio is refused by name', async () => {
  const content = [{ type: 'input_audio', input_audio: { data: '', format: 'wav' } }];
  assertEnvelope(
    await relay.send({ model: 'fake-model', messages: [{ role: 'user', content }] }),
    'unsupported_value',
    { param: 'messages[0].content[0].type' },
  );
});
