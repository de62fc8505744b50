/**
 * A conversation with tools and reasoning that moves from one API family to another, turn by turn, loses nothing: whatever
 * the order, the model is asked what it is asked when the conversation stays on one family.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestService } from '../../support/service.ts';
import { Upstream, chatChunk, event, usageChunk } from '../../support/upstream.ts';
import { chat, conversing } from './families.ts';
import type { Call, Family, Tool, Turn } from './families.ts';

const options = { timeout: 600_000 };

type Body = Readonly<Record<string, unknown>>;
interface AskedMessage {
  readonly role: string;
  readonly tool_calls?: readonly { readonly id: string }[];
  readonly tool_call_id?: string;
}

/** What the model says, by the number of its earlier turns. */
const script: readonly (readonly Body[])[] = [
  [
    { reasoning_content: 'Two cities; ' },
    { reasoning_content: 'I look at both.' },
    { content: 'Let me ' },
    { content: 'look.' },
    { tool_calls: [{ index: 0, id: 'up_1', type: 'function', function: { name: 'weather', arguments: '' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '"Bern"}' } }] },
    {
      tool_calls: [
        { index: 1, id: 'up_2', type: 'function', function: { name: 'weather', arguments: '{"city":"Zürich"}' } },
      ],
    },
  ],
  [
    { reasoning_content: 'And what time is it?' },
    { tool_calls: [{ index: 0, id: 'up_3', type: 'function', function: { name: 'time', arguments: '{}' } }] },
  ],
  [{ reasoning_content: 'Now I know "all" of it.\n' }, { content: 'Bern is warmer.' }],
  [{ reasoning_content: 'Short, then.' }, { content: 'Yes. 🙂' }],
];
/** What the client says before each of them, after what it was answered. */
const before_: readonly ((calls: readonly Call[]) => readonly Turn[])[] = [
  () => [
    { role: 'system', text: 'Be brief.' },
    { role: 'user', text: 'Is it warmer in Bern or in Zürich?' },
  ],
  (calls) => [{ role: 'tool', results: calls.map(({ id, arguments: given }) => ({ id, text: `for ${given}: 21` })) }],
  (calls) => [{ role: 'tool', results: calls.map(({ id }) => ({ id, text: 'noon' })) }],
  () => [
    { role: 'user', text: 'Sure?' },
    { role: 'system', text: 'Answer in one word.' },
    { role: 'user', text: 'Really?' },
  ],
];
const tools: readonly Tool[] = [
  {
    name: 'weather',
    description: 'The weather in a city.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
  { name: 'time', description: 'The time.', parameters: { type: 'object', properties: {} } },
];

const asked: Body[] = [];
const upstream = await Upstream.start((exchange) => {
  if (exchange.path === '/tokenize') return exchange.json(200, { count: 50, max_model_len: 8_192, tokens: [] });
  if (exchange.path !== '/v1/chat/completions') return exchange.json(200, {});
  const body = JSON.parse(exchange.body) as Body & { readonly messages: readonly AskedMessage[] };
  asked.push(body);
  const deltas = script[body.messages.filter(({ role }) => role === 'assistant').length] ?? [];
  const finish = deltas.some((delta) => 'tool_calls' in delta) ? 'tool_calls' : 'stop';
  exchange.events();
  exchange.chunk(
    [
      chatChunk({ role: 'assistant', content: '' }),
      ...deltas.map((delta) => chatChunk(delta)),
      chatChunk({}, finish),
      usageChunk({ prompt_tokens: 50, completion_tokens: 20, completion_tokens_details: { reasoning_tokens: 5 } }),
      event('[DONE]'),
    ].join(''),
  );
  exchange.endChunks();
});
const model = (id: string, preserves: boolean): string => `
  - id: ${id}
    context_length: 8192
    max_output_tokens: 1000
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    sampling: honor
    reasoning: { efforts: [none, low], default: low, preserves: ${preserves} }
    backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}" } ]`;
const service = new TestService({ config: `models:${model('preserving', true)}${model('forgetting', false)}` });
before(() => service.start(), options);
after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
});

/** Speaks the conversation, each turn on its family; returns what the model was asked, turn by turn. */
async function speak(order: readonly Family[], streams: (turn: number) => boolean, model: string) {
  asked.length = 0;
  let turns: readonly Turn[] = [];
  let calls: readonly Call[] = [];
  for (const [index, family] of order.entries()) {
    turns = [...turns, ...before_[index]!(calls)];
    const stream = streams(index);
    const answer = await fetch(`${service.url}${family.path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json', ...family.headers },
      body: JSON.stringify(family.body({ model, turns, stream, tools, keepsThoughts: true, maxTokens: 500 })),
    });
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    const { role, thought, text: said, calls: made } = stream ? family.readStream(text) : family.readWhole(text);
    turns = [...turns, { role, thought, text: said, calls: made }];
    calls = made;
  }
  assert.equal(asked.length, order.length, 'every turn asks the model once');
  return asked.map((body) => inOwnWords(body));
}

/** What a request says, without what is another one each time: calls are named by the order in which they are made. */
function inOwnWords(body: Body): unknown {
  const { messages, cache_salt: _, request_id: __, ...rest } = body as Body & { messages: readonly AskedMessage[] };
  const names = new Map<string, string>();
  const nameOf = (id: string): string => {
    if (!names.has(id)) names.set(id, `call ${names.size}`);
    return names.get(id)!;
  };
  return {
    ...rest,
    messages: messages.map(({ tool_calls, tool_call_id, ...message }) => ({
      ...message,
      ...(tool_calls === undefined ? {} : { tool_calls: tool_calls.map((call) => ({ ...call, id: nameOf(call.id) })) }),
      ...(tool_call_id === undefined ? {} : { tool_call_id: nameOf(tool_call_id) }),
    })),
  };
}

const nameOf = (order: readonly Family[]): string => order.map(({ name }) => name).join(' → ');
/** Every family in every place. */
const orders = conversing.flatMap((a) =>
  conversing.flatMap((b) => conversing.flatMap((c) => conversing.map((d): readonly Family[] => [a, b, c, d]))),
);

test(
  'on one family the model sees everything: who said what, what it thought, the calls and their results',
  options,
  async () => {
    const turns = (await speak([chat, chat, chat, chat], () => false, 'preserving')) as readonly Body[];
    const { messages, tools: offered } = turns.at(-1) as { messages: readonly Body[]; tools: readonly unknown[] };
    assert.deepEqual(
      messages.map(({ role }) => role),
      'system user assistant tool tool assistant tool assistant user system user'.split(' '),
    );
    const text = JSON.stringify(messages);
    for (const part of [
      'Two cities; I look at both.',
      'Let me look.',
      'And what time is it?',
      'Now I know \\"all\\" of it.',
      'Bern is warmer.',
      'for {\\"city\\":\\"Bern\\"}: 21',
      'noon',
      'Answer in one word.',
    ])
      assert.ok(text.includes(part), `${part} in ${text}`);
    assert.equal(offered.length, 2);
  },
);

for (const id of ['preserving', 'forgetting']) {
  test(`in every order of the families, on a ${id} model, the model is asked the same`, options, async () => {
    const expected = await speak([chat, chat, chat, chat], () => false, id);
    assert.equal(JSON.stringify(expected).includes('I look at both.'), id === 'preserving');
    for (const [index, order] of orders.entries()) {
      // Whole and streamed in turn, so that each family is read both ways in each place.
      const streams = (turn: number): boolean => (index + turn) % 2 === 1;
      assert.deepEqual(await speak(order, streams, id), expected, nameOf(order));
    }
  });
}
