import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Check } from 'typebox/schema';
import { families, templateOf } from '../inference/output-parsers/templates.ts';
import { ChatService, tools } from './chat-service.ts';

/** Specification 4.2.2, tools, on embedded models that say a known text and on scripted ones. */
const hermes = templateOf(families.hermes);
const llama3 = templateOf(families.llama3);
const call = [
  '<tool_call>',
  '\n{"name": "get_w',
  'eather", "arguments": ',
  '{"ci',
  'ty": "Pa',
  'ris"}',
  '}\n',
  '</tool_call>',
];

const chat = new ChatService([
  { id: 'calls', says: ['Let me look.', '\n', ...call], chatTemplate: hermes },
  {
    id: 'calls-twice',
    says: [
      '{"name": "get_time',
      '", "parameters": ',
      '{"city": "Bern"',
      '}}; {"na',
      'me": "get_weather',
      '", "param',
      'eters": {"city": "Rom"}}',
    ],
    chatTemplate: llama3,
  },
  { id: 'talks', says: ['It is', ' sunny', '.'], chatTemplate: hermes },
  {
    id: 'always-reasons',
    scripts: '- say: [ { reasoning: "Hm." }, { text: "Yes." } ]',
    more: '    reasoning: { efforts: [low, high], default: low }\n',
  },
  {
    id: 'whole-calls',
    scripts: '- say: [ { tool_call: { name: get_weather, arguments: { city: Bern } } } ]',
    more: '    capabilities: { chat_completions: { tool_streaming: false } }\n',
  },
  {
    id: 'no-tools',
    scripts: '- say: [ { text: "Yes." } ]',
    more: '    capabilities: { tools: false }\n',
  },
]);
before(() => chat.start());
after(() => chat.dispose());

const offered = { tools: tools('get_weather', 'get_time') };
const schema = offered.tools[0]?.function.parameters as object;

async function refusal(model: string, more: object): Promise<readonly [status: number, code: unknown, param: unknown]> {
  const answer = await chat.ask(model, 'Weather?', more);
  const { error } = (await answer.json()) as { readonly error: Readonly<Record<string, unknown>> };
  return [answer.status, error['code'], error['param']];
}

async function conversation(messages: readonly object[]): Promise<Response> {
  return chat.service.chat({ model: 'talks', messages, ...offered });
}

test('§4.2.2(1) when the model calls a tool, finish_reason is tool_calls and the message carries tool_calls', async () => {
  const { choices } = await chat.whole('calls', 'Weather?', offered);
  const [choice] = choices;
  assert.equal(choice?.finish_reason, 'tool_calls');
  assert.equal(choice.message.content, 'Let me look.\n');
  assert.deepEqual(
    choice.message.tool_calls?.map(({ function: { name, arguments: args }, type }) => ({ name, args, type })),
    [{ name: 'get_weather', args: '{"city": "Paris"}', type: 'function' }],
  );
});

test('§4.2.2(1) a model that calls none ends with stop and has no tool_calls', async () => {
  const { choices } = await chat.whole('talks', 'Weather?', offered);
  assert.equal(choices[0]?.finish_reason, 'stop');
  assert.equal((choices[0]?.message.tool_calls ?? []).length, 0);
});

test('§4.2.2(1) a call that max_tokens cuts ends with length', async () => {
  const { choices } = await chat.whole('calls', 'Weather?', { ...offered, max_tokens: 7 });
  assert.equal(choices[0]?.finish_reason, 'length');
  assert.equal(choices[0]?.message.tool_calls?.[0]?.function.arguments, '{"city": "Pa');
});

test('§4.2.2(2) the assistant message and a tool message with the id of the call come back and are answered', async () => {
  const { choices } = await chat.whole('calls', 'Weather?', offered);
  const message = choices[0]?.message;
  const id = message?.tool_calls?.[0]?.id;
  assert.match(id ?? '', /^call_/);
  const answer = await conversation([
    { role: 'user', content: 'Weather?' },
    message ?? {},
    { role: 'tool', tool_call_id: id, content: '18 degrees' },
  ]);
  assert.equal(answer.status, 200);
});

test('§4.2.2(2) several calls may be returned at once; results are matched by id, in any order', async () => {
  const { choices } = await chat.whole('calls-twice', 'Weather?', offered);
  const calls = choices[0]?.message.tool_calls ?? [];
  assert.deepEqual(
    calls.map((one) => `${one.function.name} ${one.function.arguments}`),
    ['get_time {"city": "Bern"}', 'get_weather {"city": "Rom"}'],
  );
  assert.equal(new Set(calls.map(({ id }) => id)).size, 2);
  const results = calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: id })).reverse();
  const answer = await conversation([{ role: 'user', content: '?' }, choices[0]?.message ?? {}, ...results]);
  assert.equal(answer.status, 200);
});

const calledOnce = [
  { role: 'user', content: '?' },
  {
    role: 'assistant',
    content: null,
    tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Bern"}' } }],
  },
] as const;

test('§4.2.2(3) a tool message may have content null, an empty result', async () => {
  for (const content of [null, '', []]) {
    const answer = await conversation([...calledOnce, { role: 'tool', tool_call_id: 'call_1', content }]);
    assert.equal(answer.status, 200, JSON.stringify(content));
  }
});

test('§4.2.2(4) a tool message without tool_call_id returns missing_tool_call_id', async () => {
  const answer = await conversation([...calledOnce, { role: 'tool', content: 'x' }]);
  const { error } = (await answer.json()) as { readonly error: { readonly code: string } };
  assert.deepEqual([answer.status, error.code], [400, 'missing_tool_call_id']);
});

test('§4.2.2(4) one whose id was not issued by a preceding assistant message returns orphan_tool_message', async () => {
  for (const messages of [
    [...calledOnce, { role: 'tool', tool_call_id: 'call_2', content: 'x' }],
    [{ role: 'tool', tool_call_id: 'call_1', content: 'x' }, ...calledOnce],
  ]) {
    const answer = await conversation(messages);
    const { error } = (await answer.json()) as { readonly error: { readonly code: string } };
    assert.deepEqual([answer.status, error.code], [400, 'orphan_tool_message']);
  }
});

test('§4.2.2(5) a model with reasoning always on rejects required and a named function, and takes auto and none', async () => {
  const expected = [400, 'unsupported_feature', 'tool_choice'];
  const named = { type: 'function', function: { name: 'get_time' } };
  for (const tool_choice of ['required', named])
    assert.deepEqual(await refusal('always-reasons', { ...offered, tool_choice }), expected);
  for (const tool_choice of ['auto', 'none'])
    assert.equal((await chat.ask('always-reasons', '?', { ...offered, tool_choice })).status, 200);
});

test('§4.2.2(6) the first delta of a call carries id, type and name, later ones with its index fragments of the arguments', async () => {
  for (const model of ['calls', 'calls-twice']) {
    const { chunks } = await chat.streamed(model, 'Weather?', offered);
    const deltas = chunks.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []);
    const args: string[] = [];
    for (const { index, id, type, function: fn } of deltas) {
      if (args[index] === undefined) {
        assert.equal(index, args.length);
        assert.match(id ?? '', /^call_/);
        assert.equal(type, 'function');
        assert.ok(['get_weather', 'get_time'].includes(fn?.name ?? ''));
      } else {
        assert.equal(id, undefined);
        assert.equal(fn?.name, undefined);
      }
      args[index] = (args[index] ?? '') + (fn?.arguments ?? '');
    }
    for (const text of args) assert.ok(Check(schema, JSON.parse(text)), text);
    assert.equal(args.length, model === 'calls' ? 1 : 2);
    assert.equal(chunks.findLast(({ choices }) => choices[0]?.finish_reason)?.choices[0]?.finish_reason, 'tool_calls');
  }
});

test('§4.2.2(6) what streams is what a whole answer holds', async () => {
  for (const model of ['calls', 'calls-twice', 'talks']) {
    const { read } = await chat.streamed(model, 'Weather?', offered);
    const whole = await chat.whole(model, 'Weather?', offered);
    const [choice] = read.choices;
    const [other] = whole.choices;
    assert.equal(choice?.content, other?.message.content ?? '');
    assert.deepEqual(
      choice?.toolCalls.map(({ name, arguments: args }) => ({ name, arguments: args })),
      (other?.message.tool_calls ?? []).map((one) => one.function),
    );
  }
});

test('§4.2.2(6) a model without streaming tools rejects a streaming request with tools, and takes a whole one', async () => {
  const streaming = await refusal('whole-calls', { ...offered, stream: true });
  assert.deepEqual(streaming, [400, 'unsupported_feature', 'tools']);
  const { choices } = await chat.whole('whole-calls', 'Weather?', offered);
  assert.equal(choices[0]?.finish_reason, 'tool_calls');
});

test('§4.2 tools on a model without them are rejected with param tools', async () => {
  assert.deepEqual(await refusal('no-tools', offered), [400, 'unsupported_feature', 'tools']);
});

test('§4.2 tool_choice none: no call is made', async () => {
  const { choices } = await chat.whole('calls', 'Weather?', { ...offered, tool_choice: 'none' });
  assert.equal(choices[0]?.finish_reason, 'stop');
  assert.equal((choices[0]?.message.tool_calls ?? []).length, 0);
});

test('§4.2 tool_choice required: a call is made, and its arguments match the schema', async () => {
  const more = { ...offered, tool_choice: 'required', parallel_tool_calls: false, temperature: 0, max_tokens: 400 };
  const { choices } = await chat.whole('calls', 'Weather?', more);
  assert.equal(choices[0]?.finish_reason, 'tool_calls');
  const [one] = choices[0]?.message.tool_calls ?? [];
  assert.ok(Check(schema, JSON.parse(one?.function.arguments ?? '')));
});

test('§4.2 tool_choice with a function: that function is called', async () => {
  const time = { type: 'function', function: { name: 'now', parameters: { type: 'object' } } };
  const more = { tools: [...offered.tools, time], tool_choice: { type: 'function', function: { name: 'now' } } };
  const { choices } = await chat.whole('talks', 'Weather?', more);
  assert.equal(choices[0]?.finish_reason, 'tool_calls');
  assert.deepEqual(
    choices[0]?.message.tool_calls?.map((one) => one.function),
    [{ name: 'now', arguments: '{}' }],
  );
});

test('§4.2 parallel_tool_calls false: one call at most', async () => {
  const { choices } = await chat.whole('calls-twice', 'Weather?', { ...offered, parallel_tool_calls: false });
  assert.equal(choices[0]?.finish_reason, 'tool_calls');
  assert.deepEqual(
    choices[0]?.message.tool_calls?.map((one) => one.function.name),
    ['get_time'],
  );
});
