import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { InnerService, scriptedModel } from '../support/service.ts';
import { responseKeys, textOf } from './responses-reader.ts';
import type { WireResponse } from './responses-reader.ts';
import { streamedResponse, wholeResponse } from './responses-relay.ts';

/** The compliance tests of the Open Responses specification that apply here, after their descriptions. */
const service = new InnerService({
  config: scriptedModel(
    `
- when: { last_text: "weather" }
  say: [ { tool_call: { name: get_weather, arguments: { location: "San Francisco, CA" } } } ]
- when: { last_text: "my name" }
  say: [ { text: "Your name is Alice." } ]
- when: { last_text: "image" }
  say: [ { text: "A red heart." } ]
- when: { last_text: "count" }
  say: [ { text: "1 2 3 4 5" } ]
- say: [ { text: "Hello to you all" } ]
`,
    { settings: 'capabilities: { vision: true }' },
  ),
});
before(() => service.start());
after(() => service.dispose());

const ask = (body: Readonly<Record<string, unknown>>): Promise<WireResponse> =>
  wholeResponse(service, { model: 'demo', ...body });
const message = (role: string, content: unknown, more: object = {}) => ({ type: 'message', role, content, ...more });

function assertCompleted(response: WireResponse): void {
  assert.equal(response.status, 'completed');
  assert.ok(response.output.length > 0);
  for (const key of responseKeys) assert.ok(key in response, key);
  for (const item of response.output) {
    assert.ok(item.id !== '' && item.type !== '');
    assert.notEqual(item.encrypted_content, null, 'absent, never null');
  }
}

test('basic-response', async () => {
  const response = await ask({ input: [message('user', 'Say hello in exactly 3 words.')] });
  assertCompleted(response);
  assert.equal(response.output[0]?.type, 'message');
});

test('assistant-phase: a message of the assistant may say its phase', async () => {
  for (const phase of ['commentary', 'final_answer', null]) {
    const input = [
      message('user', 'Hello.'),
      message('assistant', [{ type: 'output_text', text: 'I look.' }], { phase, id: 'msg_1', status: 'completed' }),
      message('user', 'Go on.'),
    ];
    assertCompleted(await ask({ input }));
  }
});

test('response-output-phase-schema: a phase in the output is one of the known ones', async () => {
  const response = await ask({ input: 'Hello.' });
  for (const item of response.output) {
    const { phase } = item as { phase?: unknown };
    assert.ok(phase === undefined || phase === null || phase === 'commentary' || phase === 'final_answer');
  }
});

test('streaming-response', async () => {
  const { events, response } = await streamedResponse(service, {
    model: 'demo',
    input: [message('user', 'count to 5')],
  });
  assertCompleted(response);
  assert.ok(events.filter(({ type }) => type === 'response.output_text.delta').length > 1);
  assert.equal(events.at(-1)?.type, 'response.completed');
});

test('system-prompt', async () => {
  assertCompleted(await ask({ input: [message('system', 'You are a pirate.'), message('user', 'Say hello.')] }));
});

test('tool-calling', async () => {
  const parameters = { type: 'object', properties: { location: { type: 'string' } }, required: ['location'] };
  const tools = [{ type: 'function', name: 'get_weather', description: 'Weather.', parameters }];
  const response = await ask({ input: [message('user', "What's the weather in San Francisco?")], tools });
  assertCompleted(response);
  const call = response.output.find(({ type }) => type === 'function_call');
  assert.equal(call?.name, 'get_weather');
  assert.deepEqual(JSON.parse(call.arguments ?? ''), { location: 'San Francisco, CA' });
  assert.ok(call.call_id);
});

test('image-input', async () => {
  const image_url =
    'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  const content = [
    { type: 'input_image', image_url },
    { type: 'input_text', text: 'What is in this image?' },
  ];
  assertCompleted(await ask({ input: [message('user', content)] }));
});

test('multi-turn', async () => {
  const input = [
    message('user', 'I am Alice.'),
    message('assistant', 'Hello Alice! Nice to meet you.'),
    message('user', 'What is my name?'),
  ];
  const response = await ask({ input });
  assertCompleted(response);
  assert.match(textOf(response.output[0]!), /Alice/);
});
