import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { ChatService, tools } from './chat-service.ts';

/** Specification 2.6, a tool call, and 4.2.2(6), its deltas. */
const chat = new ChatService([
  {
    id: 'scripted',
    scripts: `
- when: { last_text: "two" }
  say: [ { tool_call: { name: get_weather, arguments: ['{"ci', 'ty"', ':"Bern"}'] } }, { tool_call: { name: get_time, arguments: ['{"city":', '"Rom"}'] } } ]
- when: { last_text: "nothing" }
  say: [ { tool_call: { name: get_time } } ]
- when: { last_text: "broken" }
  say: [ { tool_call: { name: get_time, arguments: ['{"city":', '"Ro'] } } ]
- say: [ { tool_call: { name: get_weather, arguments: { city: "B\\"ern\\n" } } } ]
`,
  },
]);
before(() => chat.start());
after(() => chat.dispose());

const offered = { tools: tools('get_weather', 'get_time') };

async function wholeCalls(content: string) {
  return (await chat.whole('scripted', content, offered)).choices[0]?.message.tool_calls ?? [];
}

async function deltas(content: string) {
  const { chunks } = await chat.streamed('scripted', content, offered);
  return chunks.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []);
}

test('§2.6 `id` is the id of the call, unlike any other', async () => {
  const calls = [...(await wholeCalls('two')), ...(await wholeCalls('two'))];
  assert.equal(calls.length, 4);
  assert.equal(new Set(calls.map(({ id }) => id)).size, 4);
  for (const { id } of calls) assert.match(id, /^[\x21-\x7e]{4,64}$/);
});

test('§2.6 `type` is `function`', async () => {
  for (const { type } of await wholeCalls('two')) assert.equal(type, 'function');
});

test('§2.6 `function.name` is the name of an offered tool', async () => {
  assert.deepEqual(
    (await wholeCalls('two')).map((call) => call.function.name),
    ['get_weather', 'get_time'],
  );
});

test('§2.6 `function.arguments` is JSON text', async () => {
  const [call] = await wholeCalls('one');
  assert.equal(typeof call?.function.arguments, 'string');
  assert.deepEqual(JSON.parse(call?.function.arguments ?? ''), { city: 'B"ern\n' });
});

test('§2.6 a call without arguments has those of an empty object', async () => {
  const [call] = await wholeCalls('nothing');
  assert.deepEqual(JSON.parse(call?.function.arguments ?? ''), {});
});

test('§2.6 in streaming deltas each tool call additionally carries an integer `index`', async () => {
  const pieces = await deltas('two');
  assert.ok(pieces.every(({ index }) => Number.isInteger(index)));
  assert.deepEqual([...new Set(pieces.map(({ index }) => index))], [0, 1]);
  for (const call of await wholeCalls('two')) assert.ok(!('index' in call));
});

test('§4.2.2(6) the first delta of a call carries `id`, `type` and `function.name`', async () => {
  const pieces = await deltas('two');
  for (const index of [0, 1]) {
    const [first] = pieces.filter((piece) => piece.index === index);
    assert.match(first?.id ?? '', /./);
    assert.equal(first?.type, 'function');
    assert.equal(first?.function?.name, ['get_weather', 'get_time'][index]);
  }
});

test('§4.2.2(6) later deltas with the same `index` carry fragments of `function.arguments` and nothing else', async () => {
  const pieces = await deltas('two');
  for (const index of [0, 1]) {
    const later = pieces.filter((piece) => piece.index === index).slice(1);
    assert.ok(later.length > 0);
    for (const piece of later) {
      assert.deepEqual(Object.keys(piece).toSorted(), ['function', 'index']);
      assert.deepEqual(Object.keys(piece.function ?? {}), ['arguments']);
    }
  }
});

test('§4.2.2(6) concatenated by index until the finish `tool_calls` they are the call of the whole answer', async () => {
  const { read } = await chat.streamed('scripted', 'two', offered);
  assert.equal(read.choices[0]?.finishReason, 'tool_calls');
  assert.deepEqual(
    read.choices[0]?.toolCalls.map(({ name, arguments: text }) => [name, text]),
    (await wholeCalls('two')).map((call) => [call.function.name, call.function.arguments]),
  );
});

test('§2.6 ids of a stream are unlike any other too', async () => {
  const ids = [...(await deltas('two')), ...(await deltas('two'))].flatMap(({ id }) => id ?? []);
  assert.equal(new Set(ids).size, 4);
});

test('§4.2.2(2) the results of calls go back by their ids', async () => {
  const calls = await wholeCalls('two');
  const answer = await chat.service.chat({
    model: 'scripted',
    ...offered,
    messages: [
      { role: 'user', content: 'two' },
      { role: 'assistant', content: null, tool_calls: calls },
      ...calls.toReversed().map(({ id }) => ({ role: 'tool', tool_call_id: id, content: 'fine' })),
    ],
  });
  assert.equal(answer.status, 200, await answer.text());
});
