import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { MessagesClient, assistant, user, weather } from './messages-ask.ts';
import { grammarOfSchema, Relay } from './relay.ts';
import type { WireContent } from './messages-shape.ts';

/** Contracts §1.2 seen from the backend: what a model is asked for what clients send to messages. */
let relay: Relay;
let client: MessagesClient;
before(async () => {
  relay = await Relay.start((url) =>
    (
      [
        ['demo', 'vllm', 'reasoning: { efforts: [none, low, high], default: none, preserves: true }'],
        ['forgets', 'vllm', 'reasoning: { efforts: [none, low, high], default: none }'],
        ['plain', 'openai', ''],
        ['mixed', 'openai, vllm', ''],
      ] as const
    )
      .map(
        ([id, flavors, more]) => `
  - id: ${id}
    context_length: 16384
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: { vision: true }
    ${more}
    backends: [ ${flavors
      .split(', ')
      .map((flavor) => `{ engine: openai, flavor: ${flavor}, url: "${url}" }`)
      .join(', ')} ]`,
      )
      .join(''),
  );
  client = new MessagesClient(relay.service);
});
after(() => relay.end());

type Sent = Readonly<Record<string, unknown>> & { readonly messages: readonly Readonly<Record<string, unknown>>[] };

/** What the model was asked for a request that is taken. */
async function sent(body: Readonly<Record<string, unknown>>): Promise<Sent> {
  relay.asked();
  await client.whole(body);
  const [first, ...others] = relay.asked();
  assert.ok(first !== undefined && others.length === 0, 'one request upstream');
  return first as Sent;
}

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } };

test('a turn of an agent: system texts in place, results after their calls, images after the results', async () => {
  const { messages } = await sent({
    system: [
      { type: 'text', text: 'x-anthropic-billing-header: cc_version=2; cch=abc;' },
      { type: 'text', text: 'You are an agent.', cache_control: { type: 'ephemeral' } },
    ],
    tools: [weather],
    messages: [
      user([{ type: 'text', text: 'Read it.' }]),
      { role: 'system', content: 'You are in a folder.' },
      assistant([
        { type: 'text', text: 'I read.' },
        { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: {} },
      ]),
      user([
        { type: 'tool_result', tool_use_id: 'toolu_1', content: [{ type: 'text', text: 'seen' }, image] },
        { type: 'text', text: 'Go on.' },
      ]),
    ],
  });
  assert.deepEqual(messages, [
    { role: 'system', content: 'You are an agent.' },
    { role: 'user', content: 'Read it.' },
    { role: 'system', content: 'You are in a folder.' },
    {
      role: 'assistant',
      content: 'I read.',
      tool_calls: [{ id: 'toolu_1', type: 'function', function: { name: 'get_weather', arguments: '{}' } }],
    },
    { role: 'tool', tool_call_id: 'toolu_1', content: 'seen' },
    {
      role: 'user',
      content: [
        { type: 'image_url', image_url: { url: `data:image/png;base64,${png}` } },
        { type: 'text', text: 'Go on.' },
      ],
    },
  ]);
});

test('the head of the prompt does not change when a turn is added, whatever the system says in between', async () => {
  const turns: unknown[] = [];
  let before: Sent['messages'] = [];
  for (let turn = 0; turn < 4; turn++) {
    turns.push(user(`Question ${turn}`), { role: 'system', content: `${1000 - turn} tokens left` });
    const { messages } = await sent({
      system: [
        { type: 'text', text: `x-anthropic-billing-header: turn ${turn}` },
        { type: 'text', text: 'Be brief.' },
      ],
      messages: turns,
    });
    assert.deepEqual(messages.slice(0, before.length), before);
    assert.ok(messages.length > before.length);
    before = messages;
    turns.push(assistant(`Answer ${turn}`));
  }
});

test('the choice of tools, one call at a time', async () => {
  const offered = async (tool_choice: object) => {
    const { tool_choice: choice, parallel_tool_calls: parallel } = await sent({ tools: [weather], tool_choice });
    return [choice, parallel];
  };
  assert.deepEqual(await offered({ type: 'auto' }), ['auto', undefined]);
  assert.deepEqual(await offered({ type: 'auto', disable_parallel_tool_use: true }), ['auto', false]);
  assert.deepEqual(await offered({ type: 'any', disable_parallel_tool_use: true }), ['required', false]);
  assert.deepEqual(await offered({ type: 'tool', name: 'get_weather' }), [
    { type: 'function', function: { name: 'get_weather' } },
    undefined,
  ]);
  const none = await sent({ tools: [weather], tool_choice: { type: 'none' } });
  assert.equal(none['tools'], undefined);
});

test('tools of the vendor’s service alone are offered to nobody, and the request is answered', async () => {
  const only = await sent({
    tools: [{ type: 'web_search_20250305', name: 'web_search' }],
    tool_choice: { type: 'any' },
  });
  assert.deepEqual([only['tools'], only['tool_choice']], [undefined, undefined]);
});

test('the form of the answer, sampling and stop sequences', async () => {
  const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
  const body = await sent({
    output_config: { format: { type: 'json_schema', schema } },
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    stop_sequences: ['END'],
    max_tokens: 77,
  });
  assert.equal(body['guided_grammar'], grammarOfSchema(schema));
  assert.deepEqual(
    [body['temperature'], body['top_p'], body['top_k'], body['stop'], body['max_tokens']],
    [0.5, 0.9, 40, ['END'], 77],
  );
});

test('an effort, and words to go on with, which come without thinking', async () => {
  const high = await sent({ thinking: { type: 'adaptive' }, output_config: { effort: 'max' } });
  assert.equal((high['chat_template_kwargs'] as { reasoning_effort: string }).reasoning_effort, 'high');
  const begun = await sent({ thinking: { type: 'adaptive' }, messages: [user('Count.'), assistant('one,')] });
  assert.deepEqual(begun.messages.at(-1), { role: 'assistant', content: 'one,' });
  assert.deepEqual([begun['continue_final_message'], begun['add_generation_prompt']], [true, false]);
  assert.deepEqual(begun['chat_template_kwargs'], { enable_thinking: false, thinking: false });
  const refused = await client.refused({ model: 'plain', messages: [user('Count.'), assistant('one,')] });
  assert.deepEqual([refused.status, refused.error.code], [400, 'unsupported_feature']);
  // Where one backend of several can do it, that one gets it.
  for (let round = 0; round < 4; round++)
    assert.equal((await sent({ model: 'mixed', messages: begun.messages }))['continue_final_message'], true);
});

/** An answer with thinking, as the client has it. */
async function thought(display: string): Promise<readonly WireContent[]> {
  relay.reply = [{ reasoning_content: 'Because.' }, { content: 'Yes.' }];
  try {
    const { content } = await client.whole({ thinking: { type: 'adaptive', display } });
    assert.deepEqual(
      content.map(({ type }) => type),
      ['thinking', 'text'],
    );
    return content;
  } finally {
    relay.reply = [{ content: 'Hello.' }];
  }
}
const replayed = (content: readonly unknown[], more: object = {}) => ({
  thinking: { type: 'adaptive' },
  messages: [user('Why?'), assistant(content), user('So?')],
  ...more,
});
const said = ({ messages }: Sent): unknown => messages[1]?.['content'];

test('thinking that comes back is read by a model that takes it, shown or not', async () => {
  for (const display of ['summarized', 'omitted']) {
    const content = await thought(display);
    assert.equal(said(await sent(replayed(content))), '<think>\nBecause.\n</think>\n\nYes.', display);
    // Not by one that does not take it, nor where thinking is off.
    assert.equal(said(await sent(replayed(content, { model: 'forgets' }))), 'Yes.');
    assert.equal(said(await sent(replayed(content, { thinking: { type: 'disabled' } }))), 'Yes.');
  }
  const [block, text] = await thought('omitted');
  assert.ok(block?.type === 'thinking');
  const redacted = { type: 'redacted_thinking', data: block.signature };
  assert.equal(said(await sent(replayed([redacted, text]))), '<think>\nBecause.\n</think>\n\nYes.');
});

test('thinking that was changed, or signed elsewhere, is refused only where it would be read', async () => {
  const [block, text] = await thought('summarized');
  assert.ok(block?.type === 'thinking');
  for (const [bad, param] of [
    [{ ...block, thinking: 'Because not.' }, 'messages[1].content[0].signature'],
    [{ ...block, signature: 'c2lnbmF0dXJl' }, 'messages[1].content[0].signature'],
    [{ type: 'redacted_thinking', data: 'e1_AAAA' }, 'messages[1].content[0].data'],
  ] as const) {
    const refused = await client.refused(replayed([bad, text]));
    assert.deepEqual([refused.status, refused.error.code, refused.error.param], [400, 'unsupported_value', param]);
    assert.equal(said(await sent(replayed([bad, text], { model: 'forgets' }))), 'Yes.');
  }
});

test('a call goes from one family to the other and back, with its id', async () => {
  relay.reply = [
    {
      tool_calls: [
        { index: 0, id: 'call_abc', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Bern"}' } },
      ],
    },
  ];
  const byMessages = await client.whole({ tools: [weather] });
  const chat = (messages: readonly unknown[]) =>
    relay.send({
      model: 'demo',
      messages,
      tools: [{ type: 'function', function: { name: weather.name, parameters: weather.input_schema } }],
    });
  const byChat = (await chat([user('weather?')])).json() as unknown as {
    choices: { message: { tool_calls: { id: string; function: { name: string; arguments: string } }[] } }[];
  };
  relay.reply = [{ content: 'Hello.' }];

  // Made by messages, answered by chat.
  const [block] = byMessages.content;
  assert.ok(block?.type === 'tool_use');
  assert.equal(block.id, 'toolu_abc');
  const answered = await chat([
    user('weather?'),
    {
      role: 'assistant',
      tool_calls: [
        { id: block.id, type: 'function', function: { name: block.name, arguments: JSON.stringify(block.input) } },
      ],
    },
    { role: 'tool', tool_call_id: block.id, content: 'sunny' },
  ]);
  assert.equal(answered.status, 200, answered.body);

  // Made by chat, answered by messages.
  const call = byChat.choices[0]?.message.tool_calls[0];
  assert.ok(call);
  const { content } = await client.whole({
    tools: [weather],
    messages: [
      user('weather?'),
      assistant([
        {
          type: 'tool_use',
          id: call.id,
          name: call.function.name,
          input: JSON.parse(call.function.arguments) as unknown,
        },
      ]),
      user([{ type: 'tool_result', tool_use_id: call.id, content: 'sunny' }]),
    ],
  });
  assert.deepEqual(content, [{ type: 'text', text: 'Hello.' }]);
});
