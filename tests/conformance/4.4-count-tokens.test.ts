import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { ChatService } from './chat-service.ts';
import { MessagesClient, assistant, inputTokensOf, user, weather } from './messages-ask.ts';

/** Contracts §1.2, `count_tokens`: free of charge, near to what is charged, and never less for more. */
const chat = new ChatService([
  { id: 'demo', scripts: '- say: [ { text: "hello world" } ]' },
  { id: 'near', says: ['Hello', ' there'] },
]);
let client: MessagesClient;
before(async () => {
  await chat.start();
  client = new MessagesClient(chat.service);
});
after(() => chat.dispose());

const models = ['demo', 'near'];

const prompts: Readonly<Record<string, object>> = {
  'a word': { messages: [user('hi')] },
  'a system text and turns': {
    system: [{ type: 'text', text: 'Be brief, and say so.' }],
    messages: [user('What is it?'), assistant('It is a test.'), user('Of what?')],
  },
  tools: { messages: [user('weather?')], tools: [weather, { type: 'bash_20250124', name: 'bash' }] },
  'a round of tools': {
    tools: [weather],
    messages: [
      user('weather?'),
      assistant([{ type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Bern' } }]),
      user([{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'sunny '.repeat(50) }]),
    ],
  },
  'words to go on with': { messages: [user('Count to ten.'), assistant('One, two,')] },
};

describe('the count', () => {
  for (const model of models) {
    for (const [name, prompt] of Object.entries(prompts)) {
      test(`of ${name} is within a tenth of what is charged, ${model}`, async () => {
        const counted = await client.count({ model, ...prompt });
        const charged = inputTokensOf(await client.whole({ model, max_tokens: 4, ...prompt }));
        assert.ok(Math.abs(counted - charged) <= charged / 10, `${counted} counted, ${charged} charged`);
      });
    }

    test(`is never less for more, ${model}`, async () => {
      let before = 0;
      for (let turns = 1; turns <= 8; turns++) {
        const messages = Array.from({ length: turns }, (_, index) =>
          (index % 2 === 0 ? user : assistant)(`This is turn ${index}. ${'word '.repeat(turns)}`),
        );
        if (turns % 2 === 0) messages.push(user('And?'));
        const counted = await client.count({ model, messages });
        assert.ok(counted > before, `${counted} after ${before}`);
        before = counted;
      }
    });

    test(`of 24 requests at once comes for all of them, ${model}`, async () => {
      const burst = Array.from({ length: 24 }, (_, index) =>
        client.count({ model, messages: [user(`Part ${index}: ${'text '.repeat(200)}`)] }),
      );
      for (const counted of await Promise.all(burst)) assert.ok(counted > 100);
    });
  }

  test('is free of charge and leaves no row', async () => {
    const before = await chat.service.usage();
    for (const model of models) await client.count({ model });
    const after = await chat.service.usage();
    assert.deepEqual(
      [after.balanceMicrocents, after.requests.length],
      [before.balanceMicrocents, before.requests.length],
    );
  });

  test('needs no max_tokens, and is refused like the request itself', async () => {
    const path = '/v1/messages/count_tokens';
    for (const [fields, status, code] of [
      [{ model: 'nobody' }, 404, 'model_not_found'],
      [{ messages: [] }, 422, 'schema_validation_failed'],
      [{ messages: undefined }, 400, 'invalid_json_request'],
      [{ messages: [user([{ type: 'hologram' }])] }, 400, 'unsupported_value'],
      [{ tools: [weather, weather] }, 400, 'duplicate_tool_name'],
      [{ thread: {} }, 400, 'unsupported_parameter'],
      [{ model: 'near', messages: [user('word '.repeat(9_000))] }, 400, 'context_length_exceeded'],
    ] as const) {
      const answer = await client.send(fields, { path });
      const { type, error } = (await answer.json()) as { type: string; error: { code: string } };
      assert.deepEqual([type, answer.status, error.code], ['error', status, code]);
    }
    assert.equal((await client.send({}, { path, key: 'tkh_no' })).status, 401);
  });
});
