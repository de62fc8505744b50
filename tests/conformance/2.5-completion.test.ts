import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { ChatService, tools } from './chat-service.ts';

/** Specification 2.5, the whole answer of chat completions, field by field, on scripts and on the embedded engine. */
const chat = new ChatService([
  {
    id: 'scripted',
    scripts: `
- when: { last_text: "think" }
  say: [ { reasoning: "hm well" }, { text: "yes sir" } ]
- when: { last_text: "muse" }
  say: [ { reasoning: "hm well" } ]
- when: { last_text: "say and call" }
  say: [ { text: "I look." }, { tool_call: { name: get_weather, arguments: { city: Bern } } } ]
- when: { last_text: "call" }
  say: [ { tool_call: { name: get_weather, arguments: { city: Bern } } } ]
- when: { last_text: "silent" }
  say: []
- when: { last_text: "cached" }
  say: [ { text: "hello" } ]
  usage: { prompt_tokens: 100, cached_tokens: 60, completion_tokens: 1 }
- say: [ { text: "hello world" } ]
`,
  },
  { id: 'embedded', says: ['hello', ' world', ' of', ' ours'] },
]);
before(() => chat.start());
after(() => chat.dispose());

for (const [model, said, tokens] of [
  ['scripted', 'hello world', 2],
  ['embedded', 'hello world of ours', 4],
] as const) {
  describe(`on the ${model} engine`, () => {
    test('§2.5 `id` is a completion id, new for each answer', async () => {
      const [first, second] = await Promise.all([chat.whole(model, 'hi'), chat.whole(model, 'hi')]);
      assert.match(first.id, /^chatcmpl-[0-9a-f]{32}$/);
      assert.notEqual(first.id, second.id);
    });

    test('§2.5 `object` is `chat.completion`', async () => {
      assert.equal((await chat.whole(model, 'hi')).object, 'chat.completion');
    });

    test('§2.5 `created` is the Unix time', async () => {
      const { created } = await chat.whole(model, 'hi');
      assert.ok(Number.isInteger(created) && Math.abs(created - Date.now() / 1000) < 600, String(created));
    });

    test('§2.5 `model` is the id of the card, however it was written', async () => {
      assert.equal((await chat.whole(model.toUpperCase(), 'hi')).model, model);
    });

    test('§2.5 `choices` has one per requested choice, `index` counts them', async () => {
      const { choices } = await chat.whole(model, 'hi');
      assert.deepEqual(
        choices.map(({ index }) => index),
        [0],
      );
    });

    test('§2.5 `message.role` is `assistant`, `message.content` the text', async () => {
      const [choice] = (await chat.whole(model, 'hi')).choices;
      assert.deepEqual([choice?.message.role, choice?.message.content], ['assistant', said]);
    });

    test('§2.5 `message.reasoning_content` and `message.tool_calls` are null when there are none', async () => {
      const [choice] = (await chat.whole(model, 'hi')).choices;
      assert.deepEqual([choice?.message.reasoning_content, choice?.message.tool_calls], [null, null]);
    });

    test('§2.5 `finish_reason` is `stop` when the model ended, `length` when `max_tokens` was hit', async () => {
      assert.equal((await chat.whole(model, 'hi')).choices[0]?.finish_reason, 'stop');
      const cut = await chat.whole(model, 'hi', { max_tokens: 1 });
      assert.equal(cut.choices[0]?.finish_reason, 'length');
      assert.equal(cut.choices[0]?.message.content, 'hello');
    });

    test('§2.5 `usage` has integers, and the total is their sum', async () => {
      const { usage } = await chat.whole(model, 'hi');
      assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
      assert.ok(Number.isInteger(usage.prompt_tokens) && usage.prompt_tokens > 0);
      // The embedded engine counts the token that ends the answer: it was generated too.
      assert.ok(usage.completion_tokens >= tokens && usage.completion_tokens <= tokens + 1);
      assert.ok(Number.isInteger(usage.prompt_tokens_details.cached_tokens));
      assert.equal(usage.completion_tokens_details.reasoning_tokens, 0);
    });

    test('§2.5 the receipt has the figures of `usage`', async () => {
      const answer = await chat.ask(model, 'hi');
      const { usage } = (await answer.json()) as Awaited<ReturnType<ChatService['whole']>>;
      const { requests } = await chat.service.usage();
      const receipt = requests.find(({ request_id: id }) => id === answer.headers.get('x-request-id'));
      assert.deepEqual(
        [receipt?.prompt_tokens, receipt?.cached_tokens, receipt?.completion_tokens, receipt?.reasoning_tokens],
        [usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens, usage.completion_tokens, 0],
      );
    });
  });
}

test('§2.5 `choices` has one per requested choice, each with its own index and finish', async () => {
  const { choices, usage } = await chat.whole('scripted', 'hi', { n: 3 });
  assert.deepEqual(
    choices.map(({ index, message, finish_reason: reason }) => [index, message.content, reason]),
    [0, 1, 2].map((index) => [index, 'hello world', 'stop']),
  );
  assert.equal(usage.completion_tokens, 6);
});

test('§2.5 `message.reasoning_content` is the reasoning, separate from the answer', async () => {
  const { choices, usage } = await chat.whole('scripted', 'think');
  assert.deepEqual([choices[0]?.message.reasoning_content, choices[0]?.message.content], ['hm well', 'yes sir']);
  assert.equal(usage.completion_tokens_details.reasoning_tokens, 2);
  assert.equal(usage.completion_tokens, 4);
});

test('§2.5 reasoning without an answer leaves `content` empty', async () => {
  const { choices } = await chat.whole('scripted', 'muse');
  assert.deepEqual([choices[0]?.message.reasoning_content, choices[0]?.message.content], ['hm well', '']);
});

test('§2.5 `message.tool_calls` are the calls, `content` is null, `finish_reason` is `tool_calls`', async () => {
  const [choice] = (await chat.whole('scripted', 'call', { tools: tools('get_weather') })).choices;
  assert.equal(choice?.message.content, null);
  assert.equal(choice.message.tool_calls?.length, 1);
  assert.equal(choice.finish_reason, 'tool_calls');
});

test('§2.5 text beside tool calls stays in `content`', async () => {
  const [choice] = (await chat.whole('scripted', 'say and call', { tools: tools('get_weather') })).choices;
  assert.equal(choice?.message.content, 'I look.');
  assert.equal(choice.message.tool_calls?.length, 1);
});

test('§2.5 an answer without text has an empty `content`', async () => {
  const [choice] = (await chat.whole('scripted', 'silent')).choices;
  assert.deepEqual([choice?.message.content, choice?.finish_reason], ['', 'stop']);
});

test('§2.5 `usage.prompt_tokens_details.cached_tokens` is what the backend found in its cache', async () => {
  const { usage } = await chat.whole('scripted', 'cached');
  assert.deepEqual([usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens], [100, 60]);
});

test('§2.5 the same prompt again is found in the cache of the embedded engine', async () => {
  const prompt = 'the very same words as before, and enough of them to be worth keeping';
  const first = await chat.whole('embedded', prompt);
  const again = await chat.whole('embedded', prompt);
  assert.equal(again.usage.prompt_tokens, first.usage.prompt_tokens);
  assert.ok(again.usage.prompt_tokens_details.cached_tokens > 0);
  assert.ok(again.usage.prompt_tokens_details.cached_tokens < again.usage.prompt_tokens);
});
