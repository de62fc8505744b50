import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { ChatService } from './chat-service.ts';

/** Specification 2.7, the chunk of a stream, field by field, on scripts and on the embedded engine. */
const chat = new ChatService([
  {
    id: 'scripted',
    scripts: `
- when: { last_text: "think" }
  say: [ { reasoning: ["hm", " well"] }, { text: ["yes", " sir"] } ]
- say: [ { text: ["hello", " world", " of", " ours"] } ]
`,
  },
  { id: 'embedded', says: ['hello', ' world', ' of', ' ours'] },
]);
before(() => chat.start());
after(() => chat.dispose());

for (const model of ['scripted', 'embedded']) {
  describe(`on the ${model} engine`, () => {
    test('§2.7 `id`, `created` and `model` are as in 2.5 and the same in every chunk', async () => {
      const { chunks } = await chat.streamed(model, 'hi');
      const [first] = chunks;
      assert.match(first?.id ?? '', /^chatcmpl-[0-9a-f]{32}$/);
      assert.ok(Math.abs((first?.created ?? 0) - Date.now() / 1000) < 600);
      assert.equal(first?.model, model);
      for (const { id, created, model: name } of chunks) {
        assert.deepEqual([id, created, name], [first?.id, first?.created, first?.model]);
      }
    });

    test('§2.7 `object` is `chat.completion.chunk`', async () => {
      for (const { object } of (await chat.streamed(model, 'hi')).chunks) assert.equal(object, 'chat.completion.chunk');
    });

    test('§2.7 `choices[].index` stands in every chunk but the last', async () => {
      const { chunks } = await chat.streamed(model, 'hi');
      for (const { choices } of chunks.slice(0, -1)) assert.equal(choices[0]?.index, 0);
    });

    test('§2.7 `choices[].delta.role` stands in the first chunk', async () => {
      const { chunks } = await chat.streamed(model, 'hi');
      assert.deepEqual(
        chunks.map(({ choices }) => choices[0]?.delta.role),
        ['assistant', ...chunks.slice(1).map(() => undefined)],
      );
    });

    test('§2.7 `choices[].delta.content` are text fragments', async () => {
      const { chunks } = await chat.streamed(model, 'hi');
      const fragments = chunks.flatMap(({ choices }) => choices[0]?.delta.content ?? []);
      assert.equal(fragments.join(''), 'hello world of ours');
      assert.ok(fragments.length > 2, 'more than one fragment');
    });

    test('§2.7 `choices[].finish_reason` is null until it ends the choice', async () => {
      const { chunks } = await chat.streamed(model, 'hi');
      assert.deepEqual(
        chunks.slice(0, -1).map(({ choices }) => choices[0]?.finish_reason),
        [...chunks.slice(0, -2).map(() => null), 'stop'],
      );
    });

    test('§2.7 `usage` stands only in the final chunk, which has an empty `choices` array', async () => {
      const { chunks } = await chat.streamed(model, 'hi');
      assert.deepEqual(
        chunks.map(({ usage, choices }) => [usage !== undefined, choices.length === 0]),
        chunks.map((_, index) => [index === chunks.length - 1, index === chunks.length - 1]),
      );
    });
  });
}

test('§2.7 `choices[].delta.reasoning_content` are reasoning fragments', async () => {
  const { chunks } = await chat.streamed('scripted', 'think');
  assert.deepEqual(
    chunks.flatMap(({ choices }) => choices[0]?.delta.reasoning_content ?? []),
    ['hm', ' well'],
  );
  assert.equal(chunks.at(-1)?.usage?.completion_tokens_details.reasoning_tokens, 2);
});
