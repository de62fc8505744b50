import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { printGbnf } from '../../src/inference/constraints/grammar.ts';
import { jsonObjectGrammar } from '../../src/inference/constraints/json-text.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import { grammarOfSchema, Relay } from './relay.ts';
import { sendResponses, sentForResponses, wholeResponse } from './responses-relay.ts';

/** Specification §4.5, contracts §1.3, "Request": each row of the table, by what a model is asked or the client gets. */
let relay: Relay;
before(async () => {
  const pricing = 'pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }';
  relay = await Relay.start(
    (url) => `
  - id: able
    context_length: 8192
    ${pricing}
    reasoning: { efforts: [none, low, high], default: low, preserves: true }
    capabilities: { vision: true }
    backends: [ { engine: openai, flavor: vllm, url: "${url}" } ]
  - id: plain
    context_length: 8192
    ${pricing}
    capabilities:
      tools: false
      chat_completions: { json_object: false, json_schema: false, regex: false, grammar: false, n: false }
      responses: { text_format: [text] }
    backends: [ { engine: openai, flavor: vllm, url: "${url}" } ]`,
  );
});
after(() => relay.end());

type Body = Readonly<Record<string, unknown>>;
const sent = (body: Body): Promise<Body> => sentForResponses(relay, { model: 'able', ...body });
const messagesOf = async (input: unknown, more: Body = {}): Promise<readonly Body[]> =>
  (await sent({ input, ...more }))['messages'] as readonly Body[];
const refused = async (body: Body, code: Parameters<typeof assertEnvelope>[1], param?: string): Promise<void> => {
  const answer = await sendResponses(relay.service, { model: 'able', ...body });
  assertEnvelope(answer, code, param === undefined ? {} : { param });
};

const user = (content: unknown) => ({ type: 'message', role: 'user', content });
const said = (content: unknown) => ({ type: 'message', role: 'assistant', content });
const call = (id: string, args = '{}') => ({ type: 'function_call', call_id: id, name: 'look', arguments: args });
const output = (id: string, value: unknown) => ({ type: 'function_call_output', call_id: id, output: value });
const wireCall = (id: string, args = '{}') => ({ id, type: 'function', function: { name: 'look', arguments: args } });
const look = { type: 'function', name: 'look', parameters: { type: 'object', properties: {} } };

describe('required fields and shapes', () => {
  test('model and input are required', async () => {
    await refused({ model: undefined }, 'invalid_json_request', 'model');
    await refused({ input: undefined }, 'invalid_json_request', 'input');
  });

  test('a field of a wrong type or range is named by its path', async () => {
    for (const [body, param] of [
      [{ input: 5 }, 'input'],
      [{ input: [] }, 'input'],
      [{ input: [{ type: 'item_reference' }] }, 'input[0].id'],
      [{ input: [{ type: 'web_search_call' }] }, 'input'],
      [{ input: [{ role: 'narrator', content: 'x' }] }, 'input[0].role'],
      [{ input: [{ type: 'message', content: 'x' }] }, 'input[0].role'],
      [{ input: [user([{ type: 'input_text' }])] }, 'input[0].content[0].text'],
      [{ input: [user([{ type: 'input_image' }])] }, 'input[0].content[0].image_url'],
      [{ input: [user([{ type: 'input_file' }])] }, 'input[0].content[0].file_data'],
      [{ input: [user('x'), { type: 'function_call', call_id: 'a', name: 'b' }] }, 'input[1].arguments'],
      [{ input: [user('x'), { type: 'reasoning', summary: [{}] }] }, 'input[1].summary[0].text'],
      [{ temperature: 3 }, 'temperature'],
      [{ max_output_tokens: 0 }, 'max_output_tokens'],
      [{ top_logprobs: 21 }, 'top_logprobs'],
      [{ truncation: 'middle' }, 'truncation'],
      [{ reasoning: { summary: 'long' } }, 'reasoning.summary'],
      [{ text: { format: { type: 'json_schema', name: 'a' } } }, 'text.format.schema'],
      [{ tools: [{ type: 'function' }] }, 'tools[0].name'],
      [{ tool_choice: 'maybe' }, 'tool_choice'],
      [{ tool_choice: { type: 'allowed_tools', mode: 'auto' } }, 'tool_choice.tools'],
      [{ metadata: { a: 1 } }, 'metadata.a'],
      [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, index) => [`k${index}`, 'v'])) }, 'metadata'],
      [{ metadata: { ['k'.repeat(65)]: 'v' } }, 'metadata'],
    ] as const)
      await refused(body, 'schema_validation_failed', param);
  });

  test('null counts as absent, and unknown fields change nothing', async () => {
    const answer = await wholeResponse(relay.service, {
      model: 'able',
      instructions: null,
      max_output_tokens: null,
      temperature: null,
      tools: null,
      tool_choice: null,
      text: null,
      reasoning: null,
      metadata: null,
      store: null,
      include: null,
      previous_response_id: null,
      conversation: null,
      prompt: null,
      background: null,
      moderation: { a: 1 },
      context_management: [{ type: 'compaction' }],
      client_metadata: { a: 'b' },
      prompt_cache_retention: '24h',
      service_tier: 'flex',
      stream_options: { include_obfuscation: true },
    });
    assert.equal(answer['store'], true);
    assert.equal(answer['temperature'], 1);
    assert.equal(answer['service_tier'], 'default');
  });
});

describe('input', () => {
  test('is a string or items, and items may lack their type', async () => {
    const expected = [{ role: 'user', content: 'Hi.' }];
    for (const input of ['Hi.', [{ role: 'user', content: 'Hi.' }], [user([{ type: 'input_text', text: 'Hi.' }])]])
      assert.deepEqual(await messagesOf(input), expected);
  });

  test('messages have the roles user, assistant, system and developer; developer is system, in its place', async () => {
    const input = [
      { role: 'system', content: 'a' },
      { role: 'user', content: 'b' },
      { role: 'developer', content: 'c' },
      {
        role: 'assistant',
        content: [{ type: 'output_text', text: 'd' }],
        id: 'msg_1',
        status: 'completed',
        phase: 'commentary',
      },
      { role: 'user', content: 'e' },
    ];
    assert.deepEqual(await messagesOf(input), [
      { role: 'system', content: 'a' },
      { role: 'user', content: 'b' },
      { role: 'system', content: 'c' },
      { role: 'assistant', content: 'd' },
      { role: 'user', content: 'e' },
    ]);
  });

  test('instructions stand before everything else', async () => {
    assert.deepEqual(await messagesOf([{ role: 'system', content: 'a' }, user('b')], { instructions: 'first' }), [
      { role: 'system', content: 'first' },
      { role: 'system', content: 'a' },
      { role: 'user', content: 'b' },
    ]);
  });

  test('items of the assistant in a row are one turn', async () => {
    const input = [
      user('a'),
      { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'hm' }] },
      said([{ type: 'output_text', text: 'I look twice.' }]),
      { ...call('c1', '{"a":1}'), id: 'fc_1', status: 'completed', namespace: 'n' },
      call('c2'),
      output('c1', 'one'),
      output('c2', [{ type: 'input_text', text: 'two' }]),
      said('Done.'),
      user('b'),
    ];
    assert.deepEqual(await messagesOf(input), [
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'I look twice.', tool_calls: [wireCall('c1', '{"a":1}'), wireCall('c2')] },
      { role: 'tool', tool_call_id: 'c1', content: 'one' },
      { role: 'tool', tool_call_id: 'c2', content: 'two' },
      { role: 'assistant', content: 'Done.' },
      { role: 'user', content: 'b' },
    ]);
  });

  test('calls that were answered one by one stay apart', async () => {
    const input = [user('a'), call('c1'), output('c1', 'one'), call('c2'), output('c2', 'two')];
    assert.deepEqual(
      (await messagesOf(input)).map(({ role }) => role),
      ['user', 'assistant', 'tool', 'assistant', 'tool'],
    );
  });

  test('calls of custom tools and their results keep their text', async () => {
    const input = [
      user('a'),
      { type: 'custom_tool_call', call_id: 'c1', name: 'look', input: 'say "x"' },
      { type: 'custom_tool_call_output', call_id: 'c1', output: 'done' },
    ];
    assert.deepEqual((await messagesOf(input)).slice(1), [
      { role: 'assistant', content: null, tool_calls: [wireCall('c1', '{"input":"say \\"x\\""}')] },
      { role: 'tool', tool_call_id: 'c1', content: 'done' },
    ]);
  });

  test('items of hosted tools are skipped, whatever is in them', async () => {
    const hosted = ['web_search_call', 'file_search_call', 'code_interpreter_call', 'mcp_call', 'computer_call_output'];
    const input = [...hosted.map((type) => ({ type, id: 'x', action: 5, output: { a: 1 } })), user('a')];
    assert.deepEqual(await messagesOf(input), [{ role: 'user', content: 'a' }]);
  });

  test('an unknown type of item or part is refused by name', async () => {
    await refused({ input: [user('a'), { type: 'novelty' }] }, 'unsupported_value', 'input[1].type');
    await refused({ input: [{ type: 'compaction', encrypted_content: 'x' }] }, 'unsupported_value', 'input[0].type');
    await refused({ input: [user([{ type: 'input_video' }])] }, 'unsupported_value', 'input[0].content[0].type');
    await refused({ input: [user([{ type: 'input_audio' }])] }, 'unsupported_value', 'input[0].content[0].type');
  });

  test('a result without its call is an orphan, and one without an id says so', async () => {
    await refused(
      { input: [user('a'), output('c9', 'x')], instructions: 'i' },
      'orphan_tool_message',
      'input[1].call_id',
    );
    const nameless = { type: 'function_call_output', output: 'x' };
    await refused({ input: [user('a'), call('c1'), nameless] }, 'missing_tool_call_id', 'input[2].call_id');
  });

  test('a refusal in the history is text', async () => {
    assert.deepEqual(await messagesOf([user('a'), said([{ type: 'refusal', refusal: 'No.' }]), user('b')]), [
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'No.' },
      { role: 'user', content: 'b' },
    ]);
  });

  test('images come as data URIs, in messages and in results', async () => {
    const url =
      'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
    const image = { type: 'input_image', image_url: url, detail: 'high' };
    const messages = await messagesOf([
      user([{ type: 'input_text', text: 'a' }, image]),
      call('c1'),
      output('c1', [image]),
    ]);
    assert.deepEqual(messages[0]?.['content'], [
      { type: 'text', text: 'a' },
      { type: 'image_url', image_url: { url } },
    ]);
    assert.match(JSON.stringify(messages.slice(2)), /image_url/);
    const broken = { ...image, image_url: 'data:image/png;base64,AAAA' };
    const answer = await sendResponses(relay.service, { model: 'able', input: [user([broken])] });
    assert.equal(answer.status, 400, answer.body);
    assert.match(answer.body, /"param":"input\[0\]\.content\[0\]\.image_url"/);
  });

  test('a document at a private address', async () => {
    const part = { type: 'input_file', file_url: 'https://127.0.0.1/a.pdf' };
    await refused({ input: [user([part])] }, 'unsupported_value', 'input[0].content[0].file_url');
  });
});

describe('what would change the meaning of the answer and cannot be honoured is refused', () => {
  for (const [param, value] of [
    ['previous_response_id', 'resp_1'],
    ['conversation', 'conv_1'],
    ['conversation', { id: 'conv_1' }],
    ['background', true],
    ['prompt', { id: 'pmpt_1' }],
  ] as const)
    test(`${param}: ${JSON.stringify(value)}`, () => refused({ [param]: value }, 'unsupported_parameter', param));

  test('and there are no stored Responses', async () => {
    const headers = [['Authorization', `Bearer ${relay.service.key}`]] as const;
    for (const [method, path] of [
      ['GET', '/v1/responses/resp_1'],
      ['DELETE', '/v1/responses/resp_1'],
      ['POST', '/v1/responses/resp_1/cancel'],
      ['POST', '/v1/responses/compact'],
    ] as const)
      assertEnvelope(await exchange(relay.service.url, { method, path, headers }), 'http_404');
    assertEnvelope(await exchange(relay.service.url, { method: 'GET', path: '/v1/responses', headers }), 'http_405');
  });
});

describe('tools', () => {
  test('functions are offered; whatever else is accepted, not offered, and echoed', async () => {
    const hosted = [
      { type: 'web_search', external_web_access: true },
      { type: 'namespace', name: 'agents', tools: [{ ...look, name: 'spawn' }] },
      { type: 'custom', name: 'shell', format: { type: 'text' } },
      { type: 'mcp', server_label: 'a', server_url: 'https://example.org' },
      { type: 'some_day' },
    ];
    const tools = [hosted[0], { ...look, description: 'Looks.', strict: true }, ...hosted.slice(1)];
    const body = await sent({ tools, tool_choice: 'auto' });
    assert.deepEqual(body['tools'], [
      { type: 'function', function: { name: 'look', description: 'Looks.', parameters: look.parameters } },
    ]);
    const answer = await wholeResponse(relay.service, { model: 'able', tools });
    assert.deepEqual(answer['tools'], tools);
    const bare = await wholeResponse(relay.service, { model: 'able', tools: [{ type: 'function', name: 'a' }] });
    assert.deepEqual(bare['tools'], [
      { type: 'function', name: 'a', description: null, parameters: null, strict: null },
    ]);
  });

  test('faults of a tool are named by where it stands in the body', async () => {
    const tools = [{ type: 'web_search' }, look, { ...look, parameters: { type: 'string' } }];
    await refused({ tools }, 'tool_schema_invalid', 'tools[2].parameters');
    await refused({ tools: [{ type: 'mcp' }, look, look] }, 'duplicate_tool_name', 'tools[2].name');
  });

  test('tool_choice is honoured', async () => {
    for (const choice of ['required', 'auto']) {
      const body = await sent({ tools: [look], tool_choice: choice });
      assert.equal(body['tool_choice'] ?? 'auto', choice);
      assert.ok(body['tools']);
    }
    const none = await sent({ tools: [look], tool_choice: 'none' });
    assert.ok(none['tools'] === undefined || none['tool_choice'] === 'none');
    const named = await sent({ tools: [look], tool_choice: { type: 'function', name: 'look' } });
    assert.deepEqual(named['tool_choice'], { type: 'function', function: { name: 'look' } });
    await refused(
      { tools: [look], tool_choice: { type: 'function', name: 'listen' } },
      'tool_choice_unknown_tool',
      'tool_choice.name',
    );
  });

  test('allowed_tools narrows what is offered', async () => {
    const tools = [look, { ...look, name: 'listen' }, { ...look, name: 'smell' }];
    const allowed = (names: readonly string[], mode = 'auto') => ({
      tools,
      tool_choice: { type: 'allowed_tools', mode, tools: names.map((name) => ({ type: 'function', name })) },
    });
    const body = await sent(allowed(['smell', 'look'], 'required'));
    const offered = body['tools'] as { function: { name: string } }[];
    assert.deepEqual(
      offered.map((tool) => tool.function.name),
      ['look', 'smell'],
    );
    assert.equal(body['tool_choice'], 'required');
    await refused(allowed(['look', 'taste']), 'tool_choice_unknown_tool', 'tool_choice.tools[1].name');
  });

  test('a hosted tool cannot be chosen', async () => {
    for (const type of ['web_search', 'mcp', 'custom', 'file_search'])
      await refused({ tools: [{ type }], tool_choice: { type } }, 'unsupported_parameter', 'tool_choice');
    await refused({ tools: [{ type: 'web_search' }], tool_choice: 'required' }, 'unsupported_value', 'tool_choice');
  });

  test('parallel_tool_calls is honoured', async () => {
    assert.equal((await sent({ tools: [look], parallel_tool_calls: false }))['parallel_tool_calls'], false);
  });

  test('a card without tools refuses them', () =>
    refused({ model: 'plain', tools: [look] }, 'unsupported_feature', 'tools'));
});

describe('text.format', () => {
  const schema = {
    type: 'object',
    properties: { a: { type: 'integer' } },
    required: ['a'],
    additionalProperties: false,
  };
  const format = { type: 'json_schema', name: 'n', strict: true, schema };

  test('text, json_object and json_schema reach the model', async () => {
    const grammarOf = async (text: unknown): Promise<unknown> => (await sent({ text }))['guided_grammar'];
    assert.equal(await grammarOf({ format: { type: 'text' } }), undefined);
    assert.equal(await grammarOf({}), undefined);
    assert.equal(await grammarOf({ format: { type: 'json_object' } }), printGbnf(jsonObjectGrammar()));
    assert.equal(await grammarOf({ format, verbosity: 'low' }), grammarOfSchema(schema));
  });

  test('what the card does not list is refused', async () => {
    for (const text of [{ format: { type: 'json_object' } }, { format }])
      await refused({ model: 'plain', text }, 'unsupported_response_format', 'text.format.type');
    await refused({ text: { format: { type: 'yaml' } } }, 'unsupported_response_format', 'text.format.type');
  });

  test('a schema that cannot be used is named by its place', () => {
    const remote = { ...format, schema: { $ref: 'https://example.org/a' } };
    return refused({ text: { format: remote } }, 'json_schema_refs_unsupported', 'text.format.schema');
  });
});

describe('reasoning', () => {
  const effortOf = async (reasoning: unknown): Promise<unknown> => {
    const body = await sent({ reasoning });
    return body['reasoning_effort'] ?? body['chat_template_kwargs'];
  };

  test('§4.2.5(3): a tier runs at the nearest one of the card, any other value turns reasoning off, none said is the default', async () => {
    const [off, high, byDefault] = [
      await effortOf({ effort: 'none' }),
      await effortOf({ effort: 'high' }),
      await effortOf(undefined),
    ];
    assert.notDeepEqual(off, high);
    assert.notDeepEqual(off, byDefault);
    assert.deepEqual(await effortOf({ effort: 'max' }), high);
    assert.deepEqual(await effortOf({ summary: 'auto' }), byDefault);
    assert.deepEqual(await effortOf({ effort: null }), byDefault);
    for (const effort of ['minimal', 'gigantic', '']) assert.deepEqual(await effortOf({ effort }), off);
  });

  test('§4.2.5(7): earlier reasoning is kept when the client says so, and encrypted text restores it', async () => {
    relay.reply = [{ reasoning_content: 'Seven.' }, { content: 'Hello.' }];
    const include = ['reasoning.encrypted_content'];
    const answer = await wholeResponse(relay.service, { model: 'able', include, store: false });
    relay.reply = [{ content: 'Hello.' }];
    const [reasoning, message] = answer.output;
    assert.equal(reasoning?.type, 'reasoning');
    assert.ok(reasoning.encrypted_content);
    assert.ok(!reasoning.encrypted_content.includes('Seven'));
    const bare = { type: 'reasoning', id: reasoning.id, summary: [], encrypted_content: reasoning.encrypted_content };
    const input = [user('a'), bare, message, user('b')];
    const dropped = await messagesOf(input);
    assert.doesNotMatch(JSON.stringify(dropped), /Seven/);
    for (const more of [{ preserve_thinking: true }, { reasoning: { context: 'all_turns' } }]) {
      const kept = await messagesOf(input, more);
      assert.match(JSON.stringify(kept[1]), /Seven\./);
      assert.match(JSON.stringify(kept[1]), /Hello\./);
    }
    const foreign = { ...bare, encrypted_content: 'ZW5j' };
    assert.equal((await messagesOf([user('a'), foreign, user('b')])).length >= 2, true);
    await refused(
      { input: [user('a'), foreign, user('b')], preserve_thinking: true },
      'unsupported_value',
      'input[1].encrypted_content',
    );
  });
});

describe('length', () => {
  test('max_output_tokens is the bound of the answer, and without it the window is', async () => {
    relay.promptTokens = 192;
    assert.equal((await sent({ max_output_tokens: 77 }))['max_tokens'], 77);
    assert.equal((await sent({}))['max_tokens'], 8000);
    relay.promptTokens = 10;
  });

  test('§4.2.1(4): what does not fit is context_length_exceeded, without another try', async () => {
    relay.promptTokens = 8000;
    relay.asked();
    const answer = await sendResponses(relay.service, {
      model: 'able',
      max_output_tokens: 4000,
      truncation: 'auto',
      input: 'x'.repeat(20_000),
    });
    relay.promptTokens = 10;
    assert.equal(answer.status, 400);
    assert.match(answer.body, /"code":"context_length_exceeded"/);
    assert.deepEqual(relay.asked(), []);
  });
});

test('sampling fields are those of chat completions', async () => {
  const body = await sent({
    temperature: 0.5,
    top_p: 0.25,
    top_k: 7,
    min_p: 0.125,
    frequency_penalty: 0.5,
    presence_penalty: -0.5,
    seed: 5,
    stop: ['a', ''],
  });
  const { temperature, top_p, top_k, min_p, frequency_penalty, presence_penalty, seed, stop } = body;
  assert.deepEqual(
    { temperature, top_p, top_k, min_p, frequency_penalty, presence_penalty, seed, stop },
    {
      temperature: 0.5,
      top_p: 0.25,
      top_k: 7,
      min_p: 0.125,
      frequency_penalty: 0.5,
      presence_penalty: -0.5,
      seed: 5,
      stop: ['a'],
    },
  );
});

test('log probabilities are asked for only when they are included', async () => {
  assert.equal((await sent({ top_logprobs: 3 }))['logprobs'] ?? false, false);
  const body = await sent({ top_logprobs: 3, include: ['message.output_text.logprobs', 'file_search_call.results'] });
  assert.equal(body['logprobs'], true);
  assert.equal(body['top_logprobs'], 3);
});

describe('POST /v1/responses/input_tokens', () => {
  const path = '/v1/responses/input_tokens';

  test('counts the input, asks no model, and costs nothing', async () => {
    relay.asked();
    const before = (await relay.service.usage()).requests.length;
    relay.promptTokens = 321;
    const answer = await sendResponses(relay.service, { model: 'able', tools: [look] }, { path });
    relay.promptTokens = 10;
    assert.deepEqual(answer.json(), { object: 'response.input_tokens', input_tokens: 321 });
    assert.deepEqual(relay.asked(), []);
    assert.equal((await relay.service.usage()).requests.length, before);
  });

  test('has the checks of the request itself', async () => {
    const refusedCount = async (body: Body, code: Parameters<typeof assertEnvelope>[1], param: string) =>
      assertEnvelope(await sendResponses(relay.service, { model: 'able', ...body }, { path }), code, { param });
    await refusedCount({ input: undefined }, 'invalid_json_request', 'input');
    await refusedCount({ model: 'nothing' }, 'model_not_found', 'model');
    await refusedCount({ input: [{ type: 'novelty' }] }, 'unsupported_value', 'input[0].type');
    await refusedCount({ previous_response_id: 'a' }, 'unsupported_parameter', 'previous_response_id');
  });
});
