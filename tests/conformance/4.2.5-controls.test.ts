import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { Relay } from './relay.ts';

/** The controls of reasoning, and what of it is shown. How a model is kept to a tier is the engine's part. */
let relay: Relay;

const model = (url: string, id: string, reasoning: string): string => `
  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    ${reasoning}
    backends: [ { engine: openai, flavor: sglang, url: "${url}" } ]`;

before(async () => {
  relay = await Relay.start((url) =>
    [
      model(url, 'all', 'reasoning: { efforts: [none, low, medium, high, xhigh, max], default: medium }'),
      model(url, 'some', 'reasoning: { efforts: [none, low, high, max], default: none }'),
      model(url, 'always', 'reasoning: { efforts: [low, high], default: high }'),
      model(url, 'hiding', 'reasoning: { efforts: [none, low], default: low, hides: true }'),
      model(url, 'inlining', 'reasoning: { efforts: [none, low], default: low, inlines: true }'),
      model(url, 'preserving', 'reasoning: { efforts: [none, low], default: low, preserves: true }'),
      model(url, 'plain', ''),
    ].join(''),
  );
});
after(() => relay.end());

/** The tier that the model was asked to run at. */
async function tier(id: string, fields: Record<string, unknown> = {}): Promise<unknown> {
  const sent = await relay.sent({ model: id, ...fields });
  const kwargs = sent['chat_template_kwargs'] as { readonly enable_thinking?: boolean } | undefined;
  if (kwargs === undefined) return undefined;
  assert.equal(kwargs.enable_thinking, sent['reasoning_effort'] !== undefined);
  return sent['reasoning_effort'] ?? 'none';
}

const off = ['none', { thinking: false }, { thinking: { type: 'disabled' } }, { enable_thinking: false }] as const;
const on = [{ thinking: true }, { thinking: { type: 'enabled' } }, { enable_thinking: true }] as const;

test('§4.2.5(2) reasoning_effort, reasoning.effort and thinking are equivalent controls; enable_thinking is a further switch', async () => {
  for (const effort of ['none', 'low', 'medium', 'high', 'xhigh', 'max']) {
    assert.equal(await tier('all', { reasoning_effort: effort }), effort);
    assert.equal(await tier('all', { reasoning: { effort } }), effort);
  }
  for (const fields of off) {
    assert.equal(await tier('all', typeof fields === 'string' ? { reasoning_effort: fields } : fields), 'none');
  }
  for (const fields of on) {
    assert.equal(await tier('all', fields), 'medium');
    // A model that does not reason by itself begins with its lowest tier.
    assert.equal(await tier('some', fields), 'low');
  }
  const inTemplate = (enable_thinking: boolean) => ({ chat_template_kwargs: { enable_thinking } });
  assert.equal(await tier('all', inTemplate(false)), 'none');
  assert.equal(await tier('some', inTemplate(true)), 'low');
});

test('contracts decision 22: when controls disagree, the first of their order wins', async () => {
  const controls = {
    reasoning_effort: 'low',
    reasoning: { effort: 'high' },
    thinking: { type: 'disabled' },
    enable_thinking: true,
    chat_template_kwargs: { enable_thinking: false },
  };
  const expected = ['low', 'high', 'none', 'medium', 'none', 'medium'];
  const names = Object.keys(controls);
  for (const [dropped, effort] of expected.entries()) {
    const left = Object.fromEntries(Object.entries(controls).filter(([name]) => names.indexOf(name) >= dropped));
    assert.equal(await tier('all', left), effort, JSON.stringify(left));
  }
});

test('§4.2.5(3) a value that the model does not list runs at a nearby listed tier', async () => {
  // The example of the specification.
  assert.equal(await tier('some', { reasoning_effort: 'medium' }), 'low');
  assert.equal(await tier('some', { reasoning_effort: 'xhigh' }), 'high');
  assert.equal(await tier('always', { reasoning_effort: 'max' }), 'high');
  assert.equal(await tier('plain', { reasoning_effort: 'max' }), undefined);
});

test('§4.2.5(3) any other value, including minimal, returns 400 unsupported_value', async () => {
  for (const effort of ['minimal', 'LOW', '', 'auto']) {
    const asTier = await relay.send({ model: 'all', reasoning_effort: effort });
    assertEnvelope(asTier, 'unsupported_value', { param: 'reasoning_effort' });
    const nested = await relay.send({ model: 'plain', reasoning: { effort } });
    assertEnvelope(nested, 'unsupported_value', { param: 'reasoning.effort' });
  }
});

test("§4.2.5(4) when the request sets nothing, the model's default applies; none turns reasoning off", async () => {
  assert.equal(await tier('all'), 'medium');
  assert.equal(await tier('some'), 'none');
  assert.equal(await tier('always'), 'high');
  assert.equal(await tier('all', { reasoning_effort: null, reasoning: null, thinking: null }), 'medium');
  // Nothing that a template could refuse is said to a model that does not reason.
  assert.equal(await tier('plain'), undefined);
});

test('§4.2.5(1) reasoning text is returned apart, and its tokens are reported', async () => {
  for (const reply of [
    [{ reasoning_content: 'Hm' }, { reasoning_content: ', so.' }, { content: 'Yes.' }],
    [{ content: '<think>\nHm' }, { content: ', so.</think>\n\n' }, { content: 'Yes.' }],
  ]) {
    relay.reply = reply;
    const { choices, usage } = await relay.completion({ model: 'all' });
    assert.deepEqual([choices[0]?.message.content, choices[0]?.message.reasoning_content], ['Yes.', 'Hm, so.']);
    assert.deepEqual([usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens], [3, 2]);
  }
});

test('§4.2.5(1) some models instead inline reasoning in content between think tags', async () => {
  for (const reply of [
    [{ reasoning_content: 'Hm.' }, { content: 'Yes.' }],
    [{ content: '<think>\nHm.\n</think>\n\n' }, { content: 'Yes.' }],
  ]) {
    relay.reply = reply;
    const { choices } = await relay.completion({ model: 'inlining' });
    assert.equal(choices[0]?.message.content, '<think>\nHm.\n</think>\n\nYes.');
    assert.equal(choices[0]?.message.reasoning_content, null);
  }
});

test('§4.2.5(4) hidden reasoning is not returned nor counted in reasoning_tokens, but counts toward completion_tokens', async () => {
  relay.reply = [{ reasoning_content: 'Hm' }, { reasoning_content: '.' }, { content: 'Yes.' }];
  const hidden = await relay.completion({ model: 'hiding', reasoning_effort: 'none' });
  assert.equal(hidden.choices[0]?.message.reasoning_content, null);
  assert.deepEqual([hidden.usage.completion_tokens, hidden.usage.completion_tokens_details.reasoning_tokens], [3, 0]);
  const shown = await relay.completion({ model: 'hiding' });
  assert.equal(shown.choices[0]?.message.reasoning_content, 'Hm.');
  assert.equal(shown.usage.completion_tokens_details.reasoning_tokens, 2);
  relay.reply = [{ content: 'Hello.' }];
});

test('§4.2.5(6) a model with reasoning always on treats an attempt to disable thinking as enabled', async () => {
  for (const fields of off) {
    const asked = await tier('always', typeof fields === 'string' ? { reasoning_effort: fields } : fields);
    assert.equal(asked, 'low');
  }
});

test('§4.2.2(5) such a model rejects tool_choice required and a named function; auto and none are accepted', async () => {
  const tools = [{ type: 'function', function: { name: 'look' } }];
  const named = { type: 'function', function: { name: 'look' } };
  for (const tool_choice of ['required', named]) {
    const answer = await relay.send({ model: 'always', tools, tool_choice });
    assertEnvelope(answer, 'unsupported_feature', { param: 'tool_choice' });
    await relay.sent({ model: 'all', tools, tool_choice });
  }
  for (const tool_choice of ['auto', 'none']) await relay.sent({ model: 'always', tools, tool_choice });
});

const turns = [
  { role: 'user', content: 'One and one?' },
  { role: 'assistant', content: 'Two.', reasoning_content: 'I add. </think> Done.' },
  { role: 'user', content: 'Sure?' },
];
const replayed = async (fields: Record<string, unknown>): Promise<unknown> =>
  ((await relay.sent({ messages: turns, ...fields }))['messages'] as unknown[])[1];

test('§4.2.5(7) preserved thinking inlines reasoning_content as think-tag text; default is off', async () => {
  const plain = { role: 'assistant', content: 'Two.' };
  // A tag in the thought itself would end it early.
  const kept = { role: 'assistant', content: '<think>\nI add. <\u200b/think> Done.\n</think>\n\nTwo.' };
  assert.deepEqual(await replayed({ model: 'preserving' }), plain);
  assert.deepEqual(await replayed({ model: 'preserving', preserve_thinking: false }), plain);
  assert.deepEqual(await replayed({ model: 'preserving', preserve_thinking: true }), kept);
  assert.deepEqual(await replayed({ model: 'preserving', thinking: { type: 'enabled', keep: 'all' } }), kept);
  assert.deepEqual(await replayed({ model: 'preserving', thinking: { type: 'disabled', keep: 'all' } }), plain);
  // Only on models that support it.
  assert.deepEqual(await replayed({ model: 'all', preserve_thinking: true }), plain);
});
