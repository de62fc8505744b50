import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ChatService } from './chat-service.ts';
import type { WireUsage } from './chat-wire.ts';

/** Reasoning as the embedded engine makes it, from the model's tokens to the client (the controls: 4.2.5-controls). */
const chat = new ChatService([
  {
    id: 'thinker',
    says: ['<think>', 'Two', ' and', ' two', '</think>', 'Four', '.'],
    more: '    reasoning: { efforts: [none, low, max], default: max }\n',
  },
  {
    id: 'inliner',
    says: ['<think>', 'Two', ' and', ' two', '</think>', 'Four', '.'],
    more: '    reasoning: { efforts: [none, max], default: max, inlines: true }\n',
  },
]);
before(() => chat.start());
after(() => chat.dispose());

test('§4.2.5(1) reasoning text is in message.reasoning_content, its tokens in usage', async () => {
  const { choices, usage } = await chat.whole('thinker', '2+2?');
  assert.equal(choices[0]?.message.content, 'Four.');
  assert.equal(choices[0].message.reasoning_content, 'Two and two');
  assert.equal(choices[0].finish_reason, 'stop');
  // The marks count as reasoning: 2 + 3, and 2 of answer.
  assert.equal(usage.completion_tokens, 7);
  assert.equal(usage.completion_tokens_details.reasoning_tokens, 5);
});

test('§4.2.5(1) …and in delta.reasoning_content when streaming, the same as whole', async () => {
  const { read } = await chat.streamed('thinker', '2+2?');
  const whole = await chat.whole('thinker', '2+2?');
  const { completion_tokens, completion_tokens_details } = read.usage as WireUsage;
  assert.deepEqual([completion_tokens, completion_tokens_details.reasoning_tokens], [7, 5]);
  assert.deepEqual(read.choices[0]?.content, whole.choices[0]?.message.content);
  assert.deepEqual(read.choices[0]?.reasoning, whole.choices[0]?.message.reasoning_content);
});

test('§4.2.5(1) some models instead inline reasoning in content between think tags', async () => {
  const { choices, usage } = await chat.whole('inliner', '2+2?');
  assert.equal(choices[0]?.message.content, '<think>\nTwo and two\n</think>\n\nFour.');
  assert.equal(choices[0].message.reasoning_content, null);
  assert.equal(usage.completion_tokens_details.reasoning_tokens, 0);
});

test('§4.2.5(4) none turns reasoning off: what the model begins all the same is ended at once', async () => {
  const { choices, usage } = await chat.whole('thinker', '2+2?', { reasoning_effort: 'none' });
  assert.equal(choices[0]?.message.content, 'Four.');
  assert.equal(choices[0].message.reasoning_content, null);
  assert.ok(usage.completion_tokens_details.reasoning_tokens <= 2);
});

test('§4.2.5(5) reasoning tokens count toward max_tokens; length with empty content', async () => {
  const { choices, usage } = await chat.whole('thinker', '2+2?', { max_tokens: 3 });
  assert.deepEqual([choices[0]?.message.content, choices[0]?.finish_reason], ['', 'length']);
  assert.equal(choices[0]?.message.reasoning_content, 'Two and');
  assert.equal(usage.completion_tokens, 3);
});

test('§4.2.3(1) with reasoning on, the answer behind it is the JSON that was asked for', async () => {
  const schema = { type: 'object', properties: { sum: { type: 'integer' } }, required: ['sum'] };
  const { choices } = await chat.whole('thinker', '2+2?', {
    max_tokens: 400,
    response_format: { type: 'json_schema', json_schema: { name: 'sum', schema } },
  });
  assert.equal(choices[0]?.message.reasoning_content, 'Two and two');
  if (choices[0].finish_reason === 'stop') {
    const { sum } = JSON.parse(choices[0].message.content ?? '') as { sum: unknown };
    assert.ok(Number.isInteger(sum));
  }
});
