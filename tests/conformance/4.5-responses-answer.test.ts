import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService, scriptedModel, until } from '../support/service.ts';
import { readResponseStream, responseKeys, textOf } from './responses-reader.ts';
import { sendResponses, streamedResponse, wholeResponse } from './responses-relay.ts';

/** Specification §4.5, contracts §1.3, "Response object" and "Stream", as a running service answers. */
const service = new InnerService({
  config: scriptedModel(
    `
- when: { last_text: "think" }
  say: [ { reasoning: "hm well" }, { text: "yes sir" } ]
- when: { last_text: "weather" }
  say: [ { tool_call: { name: look, arguments: ['{"ci', 'ty":', '"Bern"}'] } }, { tool_call: { name: look, arguments: { city: Rom } } } ]
- when: { last_text: "long" }
  say: [ { text: "and so on " } ]
  repeat: 50
- when: { last_text: "nothing" }
  say: []
- when: { last_text: "fail in the middle" }
  say: [ { text: "one two three" } ]
  pace_ms: 2
  fault: { after_tokens: 2, type: error, code: backend_timeout }
- when: { last_text: "overloaded in the middle" }
  say: [ { text: "one two three" } ]
  pace_ms: 2
  fault: { after_tokens: 2, type: error, code: backend_overloaded }
- when: { last_text: "late failure" }
  say: []
  first_token_ms: 1500
  fault: { after_tokens: 0, type: error, code: backend_timeout }
- when: { last_text: "city as JSON" }
  say: [ { text: '{"name":"Bern"}' } ]
- say: [ { text: "hello world" } ]
`,
  ),
  limits: '  prime_timeout_seconds: 0.5',
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const look = {
  type: 'function',
  name: 'look',
  parameters: { type: 'object', properties: { city: { type: 'string' } } },
};

test('every key of the Response object is there, and repeats what was asked', async () => {
  const asked = {
    model: 'DEMO',
    input: 'hi',
    instructions: 'Be brief.',
    max_output_tokens: 50,
    max_tool_calls: 3,
    temperature: 0.5,
    top_p: 0.75,
    presence_penalty: 0.25,
    frequency_penalty: -0.25,
    metadata: { a: 'b' },
    tools: [look],
    tool_choice: 'none',
    parallel_tool_calls: false,
    prompt_cache_key: 'k',
    safety_identifier: 's',
    user: 'u',
    store: false,
    truncation: 'auto',
    reasoning: { effort: 'low', summary: 'auto' },
    text: { format: { type: 'text' }, verbosity: 'low' },
    service_tier: 'auto',
  };
  const before = Math.floor(Date.now() / 1000);
  const { response } = await streamedResponse(service, asked);
  const whole = await wholeResponse(service, asked);
  for (const answer of [response, whole]) {
    assert.deepEqual(Object.keys(answer).toSorted(), [...responseKeys, 'user'].toSorted());
    const { model, tools, service_tier: tier, input: _, ...echoed } = asked;
    for (const [name, value] of Object.entries(echoed)) assert.deepEqual(answer[name], value, name);
    assert.equal(model, 'DEMO');
    assert.equal(answer['model'], 'demo');
    assert.equal(tier, 'auto');
    assert.equal(answer['service_tier'], 'default');
    assert.deepEqual(answer['tools'], [{ ...tools[0], description: null, strict: null }]);
    assert.match(answer.id, /^resp_[0-9a-f]{32}$/);
    assert.equal(answer['object'], 'response');
    assert.equal(answer['background'], false);
    assert.equal(answer['previous_response_id'], null);
    assert.ok((answer['created_at'] as number) >= before);
    assert.ok((answer['completed_at'] as number) >= (answer['created_at'] as number));
  }
});

test('without a word about them, numbers are numbers and the rest is null', async () => {
  const answer = await wholeResponse(service, { model: 'demo', input: 'hi' });
  const { temperature, top_p, presence_penalty, frequency_penalty, top_logprobs } = answer;
  assert.deepEqual([temperature, top_p, presence_penalty, frequency_penalty, top_logprobs], [1, 1, 0, 0, 0]);
  for (const name of [
    'error',
    'incomplete_details',
    'instructions',
    'max_output_tokens',
    'max_tool_calls',
    'prompt_cache_key',
  ])
    assert.equal(answer[name], null, name);
  assert.deepEqual(answer['reasoning'], { effort: null, summary: null });
  assert.deepEqual(answer['text'], { format: { type: 'text' } });
  assert.deepEqual([answer['tools'], answer['tool_choice'], answer['metadata']], [[], 'auto', {}]);
  assert.deepEqual([answer['store'], answer['truncation'], answer['parallel_tool_calls']], [true, 'disabled', true]);
  assert.equal('user' in answer, false);
});

test('§4.2.5(3): an effort that is no tier is shown as what it did', async () => {
  const answer = await wholeResponse(service, { model: 'demo', input: 'hi', reasoning: { effort: 'minimal' } });
  assert.deepEqual(answer['reasoning'], { effort: 'none', summary: null });
});

describe('output', () => {
  test('a text is a message with one part', async () => {
    const { output, status, usage } = await wholeResponse(service, { model: 'demo', input: 'hi' });
    assert.equal(status, 'completed');
    const [message, ...others] = output;
    assert.deepEqual(others, []);
    const { id, ...rest } = message!;
    assert.match(id, /^msg_[0-9a-f]{32}_0$/);
    assert.deepEqual(rest, {
      type: 'message',
      status: 'completed',
      role: 'assistant',
      content: [{ type: 'output_text', text: 'hello world', annotations: [], logprobs: [] }],
    });
    assert.equal(usage?.output_tokens, 2);
    assert.equal(usage.total_tokens, usage.input_tokens + 2);
  });

  test('reasoning goes out as a summary with its full text, before the message, and encrypted when that is included', async () => {
    const asked = { model: 'demo', input: 'think' };
    const bare = await wholeResponse(service, asked);
    assert.deepEqual(
      bare.output.map(({ type }) => type),
      ['reasoning', 'message'],
    );
    const { id, ...reasoning } = bare.output[0]!;
    assert.match(id, /^rs_/);
    assert.deepEqual(reasoning, { type: 'reasoning', summary: [{ type: 'summary_text', text: 'hm well' }] });
    for (const answer of [
      await wholeResponse(service, { ...asked, include: ['reasoning.encrypted_content'] }),
      (await streamedResponse(service, { ...asked, include: ['reasoning.encrypted_content'] })).response,
    ])
      assert.match(answer.output[0]?.encrypted_content ?? '', /^[\w-]{20,}$/);
    assert.equal(bare.usage?.output_tokens_details.reasoning_tokens, 2);
  });

  test('calls are items of their own with the id that results name', async () => {
    const { response, events } = await streamedResponse(service, { model: 'demo', input: 'weather', tools: [look] });
    assert.deepEqual(
      response.output.map(({ type, name, arguments: text }) => [type, name, text]),
      [
        ['function_call', 'look', '{"city":"Bern"}'],
        ['function_call', 'look', '{"city":"Rom"}'],
      ],
    );
    const ids = response.output.map((item) => item.call_id ?? '');
    assert.equal(new Set(ids).size, 2);
    assert.ok(events.filter(({ type }) => type === 'response.function_call_arguments.delta').length >= 3);
    const answer = await wholeResponse(service, {
      model: 'demo',
      tools: [look],
      input: [
        { role: 'user', content: 'weather' },
        ...response.output,
        ...ids.map((call_id) => ({ type: 'function_call_output', call_id, output: 'sunny' })),
        { role: 'user', content: 'Well?' },
      ],
    });
    assert.equal(textOf(answer.output[0]!), 'hello world');
  });

  test('nothing at all is a message without text', async () => {
    for (const answer of [
      await wholeResponse(service, { model: 'demo', input: 'nothing' }),
      (await streamedResponse(service, { model: 'demo', input: 'nothing' })).response,
    ]) {
      assert.equal(answer.status, 'completed');
      assert.deepEqual(answer.output.map(textOf), ['']);
    }
  });

  test('JSON to a schema is raw text, without fences', async () => {
    const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    const text = { format: { type: 'json_schema', name: 'city', schema, strict: true } };
    const answer = await wholeResponse(service, { model: 'demo', input: 'city as JSON', text });
    assert.deepEqual(JSON.parse(textOf(answer.output[0]!)), { name: 'Bern' });
    assert.deepEqual(answer['text'], text);
  });

  test('the output cap makes it incomplete, with the reason, also in the stream', async () => {
    const asked = { model: 'demo', input: 'long', max_output_tokens: 7 };
    const { response, events } = await streamedResponse(service, asked);
    assert.equal(events.at(-1)?.type, 'response.incomplete');
    for (const answer of [response, await wholeResponse(service, asked)]) {
      assert.equal(answer.status, 'incomplete');
      assert.deepEqual(answer.incomplete_details, { reason: 'max_output_tokens' });
      assert.equal(answer.output.at(-1)?.status, 'incomplete');
      assert.equal(answer.usage?.output_tokens, 7);
      assert.equal(answer['completed_at'], null);
    }
  });
});

describe('failures', () => {
  test('in mid-stream: an error event with both forms, then response.failed, and nothing is charged', async () => {
    const { error, response } = await streamedResponse(service, { model: 'demo', input: 'fail in the middle' });
    assert.equal(error?.['code'], 'backend_timeout');
    assert.equal(error['param'], null);
    assert.equal(error.error?.['type'], 'server_error');
    assert.equal(error.error['code'], 'backend_timeout');
    assert.equal(error.error['message'], error['message']);
    assert.deepEqual(response.error, { code: 'server_error', message: error['message'] });
    assert.equal(textOf(response.output[0]!), 'one two');
    const [receipt] = (await service.usage()).requests;
    assert.deepEqual([receipt?.ending, receipt?.cost_microcents], ['failed', 0]);
  });

  test('for load: rate_limit_exceeded with words that Codex reads', async () => {
    const { error, response } = await streamedResponse(service, { model: 'demo', input: 'overloaded in the middle' });
    assert.equal(error?.['code'], 'backend_overloaded');
    assert.equal(response.error?.code, 'rate_limit_exceeded');
    assert.match(response.error.message, /try again in 1s/);
  });

  test('after the head, before the first token: the stream is whole nevertheless', async () => {
    const answer = await sendResponses(service, { model: 'demo', input: 'late failure', stream: true });
    assert.equal(answer.status, 200);
    assert.match(answer.body, /^(: keep-alive\n\n)+event: response\.created\n/);
    const { response, error } = readResponseStream(answer.body);
    assert.equal(error?.['code'], 'backend_timeout');
    assert.deepEqual(response.output, []);
  });

  test('before the stream: the envelope with its status', async () => {
    const answer = await sendResponses(service, { model: 'nothing', stream: true });
    assert.equal(answer.status, 404);
    assert.match(answer.body, /^{"error":{"type":"invalid_request_error","code":"model_not_found"/);
  });
});

test('the same generation costs the same as on chat completions', async () => {
  for (const [input, more] of [
    ['hi', {}],
    ['think', {}],
    ['long', { max: 9 }],
    ['weather', { tools: true }],
  ] as const) {
    const tokens = 'max' in more ? more.max : 100;
    const tools = 'tools' in more;
    const { name, parameters } = look;
    await wholeResponse(service, {
      model: 'demo',
      input,
      max_output_tokens: tokens,
      ...(tools ? { tools: [look] } : {}),
    });
    const chat = await service.chat({
      model: 'demo',
      messages: [{ role: 'user', content: input }],
      max_tokens: tokens,
      ...(tools ? { tools: [{ type: 'function', function: { name, parameters } }] } : {}),
    });
    assert.equal(chat.status, 200);
    await chat.text();
    await until(async () => (await service.usage()).requests.length >= 2);
    const [byChat, byResponses] = (await service.usage()).requests;
    assert.equal(byChat?.cost_microcents, byResponses?.cost_microcents, input);
    assert.ok((byChat?.cost_microcents ?? 0) > 0);
  }
});
