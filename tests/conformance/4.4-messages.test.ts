import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService } from '../support/service.ts';
import { MessagesClient, assistant, inputTokensOf, textOf, user, weather } from './messages-ask.ts';

import type { WireMessage } from './messages-shape.ts';

/** Specification §4.4 with contracts §1.2: answers, whole and streamed, and errors; one test for each sentence. */
const service = new InnerService({
  firstCreditCents: '5000',
  config: `models:
  - id: demo
    context_length: 4096
    pricing: { input_cents_per_million: 5000, output_cents_per_million: 20000 }
    reasoning: { efforts: [none, low, high], default: none }
    backends:
      - engine: scripted
        scripts:
          - when: { last_text: one call }
            say: [ { tool_call: { name: get_weather, arguments: ['{"ci', 'ty":"Bern"}'] } } ]
          - when: { last_text: call without arguments }
            say: [ { text: "Let me look." }, { tool_call: { name: now, arguments: '' } } ]
          - when: { last_text: broken arguments }
            say: [ { tool_call: { name: get_weather, arguments: '{"city":' } } ]
          - when: { last_text: two calls }
            say:
              - reasoning: "Both."
              - tool_call: { name: get_weather, arguments: { city: Bern } }
              - reasoning: "And."
              - tool_call: { name: get_weather, arguments: { city: Rom } }
          - when: { last_text: think }
            say: [ { reasoning: "hm well" }, { text: "yes sir" } ]
          - when: { last_text: nothing }
            say: []
          - when: { last_text: cached }
            say: [ { text: "seen" } ]
            usage: { prompt_tokens: 50, cached_tokens: 30, completion_tokens: 1, reasoning_tokens: 0 }
          - when: { last_text: endless }
            say: [ { text: [ "word " ] } ]
            repeat: 10000
          - when: { last_text: as JSON }
            say: [ { text: ['{"n":', '1}'] } ]
          - when: { last_text: times out }
            say: [ { text: "one two three" } ]
            fault: { after_tokens: 2, type: error, code: backend_timeout }
          - when: { last_text: overloaded later }
            say: [ { text: "one two three" } ]
            fault: { after_tokens: 2, type: error, code: backend_at_capacity }
          - when: { last_text: nobody later }
            say: [ { text: "one two three" } ]
            fault: { after_tokens: 2, type: error, code: no_healthy_backends }
          - when: { last_text: breaks later }
            say: [ { text: "one two three" } ]
            fault: { after_tokens: 2, type: cut }
          - when: { last_text: overloaded at once }
            say: []
            fault: { after_tokens: 0, type: error, code: backend_overloaded }
          - when: { last_role: assistant }
            say: [ { text: ["- continued"] } ]
          - say: [ { text: "hello world" } ]
  - id: always
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    reasoning: { efforts: [low, high], default: low }
    backends: [ { engine: scripted, scripts: [ { say: [ { reasoning: "hm" }, { text: "so" } ] } ] } ]
  - id: silent
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    reasoning: { efforts: [low, high], default: low }
    capabilities: { messages: { reasoning: false, tools: false } }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "so" } ] } ] } ]
  - id: without
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: { messages: { supported: false } }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "so" } ] } ] } ]`,
});
let client: MessagesClient;
before(async () => {
  await service.start();
  client = new MessagesClient(service);
});
after(async () => {
  await service.verify();
  await service.dispose();
});

/** Each request has ids of its own. */
const withoutIds = ({ id: _, content, ...rest }: WireMessage) => ({
  ...rest,
  content: content.map((block) => (block.type === 'tool_use' ? { ...block, id: '' } : block)),
});

const ask = (text: string, more: object = {}) => ({ messages: [user(text)], ...more });

describe('an answer', () => {
  test('is a message with text, stop reason and usage', async () => {
    const message = await client.whole(ask('hi'));
    assert.deepEqual(message.content, [{ type: 'text', text: 'hello world' }]);
    assert.deepEqual([message.model, message.stop_reason, message.stop_sequence], ['demo', 'end_turn', null]);
    assert.deepEqual([message.usage.output_tokens, message.usage.input_tokens > 0], [2, true]);
  });

  test('is the same streamed and whole, in both generations of the wire', async () => {
    for (const version of ['2023-06-01', '2026-10-21'] as const) {
      for (const text of ['hi', 'one call', 'call without arguments', 'broken arguments', 'nothing', 'cached']) {
        const whole = await client.whole(ask(text, { tools: [weather] }), { version });
        const { message } = await client.streamed(ask(text, { tools: [weather] }), { version });
        assert.ok(message);
        assert.deepEqual(withoutIds(message), withoutIds(whole), text);
      }
    }
  });

  test('of a version that is no date, or of none, is that of the older generation', async () => {
    for (const version of ['latest', '', '2026-10-20', '9', '2026-10-2']) {
      const answer = await client.send({ max_tokens: 9 }, { headers: { 'anthropic-version': version } });
      assert.ok(!Object.hasOwn((await answer.json()) as object, 'container'), version);
    }
    const later = await client.send({ max_tokens: 9 }, { headers: { 'anthropic-version': '2027-01-01' } });
    assert.ok(Object.hasOwn((await later.json()) as object, 'container'));
  });

  test('without output has no content', async () => {
    assert.deepEqual((await client.whole(ask('nothing'))).content, []);
    assert.deepEqual((await client.streamed(ask('nothing'))).types, [
      'message_start',
      'ping',
      'message_delta',
      'message_stop',
    ]);
  });

  test('with a call stops for it, and a call without arguments has an empty object', async () => {
    const one = await client.whole(ask('one call', { tools: [weather] }));
    const [block] = one.content;
    assert.ok(block?.type === 'tool_use');
    assert.deepEqual([block.name, block.input, one.stop_reason], ['get_weather', { city: 'Bern' }, 'tool_use']);
    const bare = await client.streamed(ask('call without arguments', { tools: [weather] }));
    assert.deepEqual(
      bare.message?.content.map((each) => (each.type === 'tool_use' ? each.input : each.type)),
      ['text', {}],
    );
    assert.match(bare.text, /"partial_json":"\{\}"/);
  });

  test('with arguments that are no JSON shows them all the same', async () => {
    const [block] = (await client.whole(ask('broken arguments', { tools: [weather] }))).content;
    assert.ok(block?.type === 'tool_use');
    assert.deepEqual(block.input, { INVALID_JSON: '{"city":' });
  });

  test('has thinking and calls in the order in which they came', async () => {
    const { message } = await client.streamed(
      ask('two calls', { tools: [weather], thinking: { type: 'enabled', budget_tokens: 1024 } }),
    );
    assert.deepEqual(
      message?.content.map(({ type }) => type),
      ['thinking', 'tool_use', 'thinking', 'tool_use'],
    );
    const ids = message?.content.flatMap((block) => (block.type === 'tool_use' ? [block.id] : [])) ?? [];
    assert.equal(new Set(ids).size, 2);
  });

  test('tells what of the input came from a cache apart from the rest', async () => {
    const { usage } = await client.whole(ask('cached'));
    assert.deepEqual(
      [usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens, usage.output_tokens],
      [20, 0, 30, 1],
    );
  });

  test('begins its stream with the length of the prompt and one token', async () => {
    const { text, message } = await client.streamed(ask('hi'));
    const [, first = ''] = /^event: message_start\ndata: (.*)$/m.exec(text) ?? [];
    const { message: begun } = JSON.parse(first) as { message: { usage: { input_tokens: number } } };
    assert.equal(begun.usage.input_tokens, message?.usage.input_tokens);
  });

  test('carries both names of the request id, and is not kept by caches', async () => {
    const answer = await client.send({ max_tokens: 9 });
    assert.match(answer.headers.get('request-id') ?? '', /^req_[0-9a-f]{12}$/);
    assert.equal(answer.headers.get('request-id'), answer.headers.get('x-request-id'));
    assert.equal(answer.headers.get('cache-control'), 'no-cache');
    await answer.text();
  });
});

describe('stop reasons', () => {
  test('max_tokens when the limit of the request is reached', async () => {
    const message = await client.whole(ask('endless', { max_tokens: 3 }));
    assert.deepEqual([message.stop_reason, message.usage.output_tokens], ['max_tokens', 3]);
  });

  test('stop_sequence with the sequence that was met, which is not in the text', async () => {
    for (const message of [
      await client.whole(ask('hi', { stop_sequences: ['zzz', 'wor'] })),
      (await client.streamed(ask('hi', { stop_sequences: ['zzz', 'wor'] }))).message,
    ]) {
      assert.deepEqual([message?.stop_reason, message?.stop_sequence], ['stop_sequence', 'wor']);
      assert.equal(textOf(message), 'hello ');
    }
  });

  test('model_context_window_exceeded when the window is full', async () => {
    // §4.2.1(3): beyond the window it is as if it were not there.
    const message = await client.whole(ask('endless', { max_tokens: 5000 }));
    assert.equal(message.stop_reason, 'model_context_window_exceeded');
    assert.equal(inputTokensOf(message) + message.usage.output_tokens, 4096);
  });
});

describe('thinking', () => {
  const thinking = (options: object) => ask('think', { thinking: options });

  test('enabled, adaptive and between_tools are on, disabled is off', async () => {
    for (const type of ['enabled', 'adaptive', 'between_tools']) {
      const message = await client.whole(thinking({ type, ...(type === 'enabled' ? { budget_tokens: 1024 } : {}) }));
      assert.deepEqual(
        message.content.map((block) => block.type),
        ['thinking', 'text'],
        type,
      );
      assert.equal(message.usage.output_tokens_details.thinking_tokens, 2);
    }
  });

  test('is signed with a text that cannot be guessed', async () => {
    const [first, second] = [
      await client.whole(thinking({ type: 'adaptive' })),
      await client.whole(thinking({ type: 'adaptive' })),
    ].map(({ content: [block] }) => (block?.type === 'thinking' ? block.signature : ''));
    assert.ok(first !== undefined && first.length > 40);
    assert.equal(first, second, 'the same text has the same signature');
  });

  test('with display omitted is reported without its text', async () => {
    for (const message of [
      await client.whole(thinking({ type: 'adaptive', display: 'omitted' })),
      (await client.streamed(thinking({ type: 'adaptive', display: 'omitted' }))).message,
    ]) {
      const [block, text] = message?.content ?? [];
      assert.ok(block?.type === 'thinking' && text?.type === 'text');
      assert.equal(block.thinking, '');
      assert.ok(block.signature.length > 40);
      assert.equal(message?.usage.output_tokens_details.thinking_tokens, 2);
    }
  });

  test('may have a budget above max_tokens, but none below 1024', async () => {
    await client.whole(ask('think', { max_tokens: 100, thinking: { type: 'enabled', budget_tokens: 2000 } }));
    const refused = await client.refused(thinking({ type: 'enabled', budget_tokens: 1023 }));
    assert.deepEqual([refused.status, refused.error.param], [422, 'thinking.budget_tokens']);
  });

  test('an effort that is none of the tiers is refused by name', async () => {
    const refused = await client.refused(ask('think', { output_config: { effort: 'minimal' } }));
    assert.deepEqual([refused.error.code, refused.error.param], ['unsupported_value', 'output_config.effort']);
  });

  test('is not asked of a model whose card has no reasoning on this endpoint', async () => {
    const message = await client.whole({ model: 'silent', thinking: { type: 'adaptive' } });
    assert.deepEqual(message.content, [{ type: 'text', text: 'so' }]);
  });
});

describe('refusals', () => {
  const table: readonly (readonly [string, object, number, string, string | undefined])[] = [
    ['max_tokens missing', { max_tokens: undefined }, 400, 'invalid_json_request', 'max_tokens'],
    ['max_tokens 0', { max_tokens: 0 }, 422, 'schema_validation_failed', 'max_tokens'],
    ['max_tokens null', { max_tokens: null }, 422, 'schema_validation_failed', 'max_tokens'],
    ['no model', { model: undefined }, 400, 'invalid_json_request', 'model'],
    ['no messages', { messages: undefined }, 400, 'invalid_json_request', 'messages'],
    ['empty messages', { messages: [] }, 422, 'schema_validation_failed', 'messages'],
    ...[
      { role: 'system', content: '' },
      { role: 'system', content: [] },
      { role: 'assistant', content: '' },
    ].map(
      (message) =>
        [
          `nothing but ${JSON.stringify(message)}`,
          { messages: [message] },
          422,
          'schema_validation_failed',
          'messages',
        ] as const,
    ),
    [
      'unknown role',
      { messages: [{ role: 'tool', content: '' }] },
      422,
      'schema_validation_failed',
      'messages[0].role',
    ],
    ['unknown model', { model: 'nobody' }, 404, 'model_not_found', 'model'],
    ['a model that is not on this endpoint', { model: 'without' }, 400, 'unsupported_feature', 'model'],
    ['tools that its card has not here', { model: 'silent', tools: [weather] }, 400, 'unsupported_feature', 'tools'],
    [
      'an unknown block',
      { messages: [user([{ type: 'text', text: 'a' }, { type: 'hologram' }])] },
      400,
      'unsupported_value',
      'messages[0].content[1].type',
    ],
    [
      'an unknown block in a result',
      {
        messages: [
          user('a'),
          assistant([{ type: 'tool_use', id: 't', name: 'get_weather', input: {} }]),
          user([{ type: 'tool_result', tool_use_id: 't', content: [{ type: 'hologram' }] }]),
        ],
      },
      400,
      'unsupported_value',
      'messages[2].content[0].content[0].type',
    ],
    [
      'a result of no call',
      { messages: [user([{ type: 'tool_result', tool_use_id: 'x', content: 'a' }])] },
      400,
      'orphan_tool_message',
      'messages[0].content[0].tool_use_id',
    ],
    [
      'a result without an id',
      {
        messages: [
          user([
            { type: 'text', text: 'a' },
            { type: 'tool_result', content: 'a' },
          ]),
        ],
      },
      400,
      'missing_tool_call_id',
      'messages[0].content[1].tool_use_id',
    ],
    [
      'a document at a private address',
      { messages: [user([{ type: 'document', source: { type: 'url', url: 'https://127.0.0.1/a.pdf' } }])] },
      400,
      'unsupported_value',
      'messages[0].content[0].source.url',
    ],
    [
      'a choice of an unknown tool',
      { tools: [weather], tool_choice: { type: 'tool', name: 'nobody' } },
      400,
      'tool_choice_unknown_tool',
      'tool_choice.name',
    ],
    ['two tools of one name', { tools: [weather, weather] }, 400, 'duplicate_tool_name', 'tools[1].name'],
    [
      'a tool whose schema is of no object, behind one of the server',
      {
        tools: [
          { type: 'bash_20250124', name: 'bash' },
          { name: 'a', input_schema: { type: 'string' } },
        ],
      },
      400,
      'tool_schema_invalid',
      'tools[1].input_schema',
    ],
    [
      'a forced choice on a model that always reasons',
      { model: 'always', tools: [weather], tool_choice: { type: 'any' } },
      400,
      'unsupported_feature',
      'tool_choice',
    ],
    [
      'a message to go on with on a model that always reasons',
      { model: 'always', messages: [user('a'), assistant('b')] },
      400,
      'unsupported_feature',
      'messages',
    ],
    [
      'an unknown form of the answer',
      { output_config: { format: { type: 'grammar' } } },
      400,
      'unsupported_response_format',
      'output_config.format.type',
    ],
    [
      'a schema with a reference to nothing',
      { output_format: { type: 'json_schema', schema: { $ref: '#/$defs/a' } } },
      400,
      'json_schema_refs_unsupported',
      undefined,
    ],
    ['previous messages of a thread', { thread: { type: 'create' } }, 400, 'unsupported_parameter', 'thread'],
  ];
  for (const [name, fields, status, code, param] of table) {
    test(`${name}: ${status} ${code}`, async () => {
      const { status: got, error } = await client.refused(fields as Record<string, unknown>);
      assert.deepEqual([got, error.code], [status, code], JSON.stringify(error));
      if (param !== undefined) assert.equal(error.param, param);
      if (code !== 'unsupported_parameter') assert.deepEqual(error.details, { error_code: code });
    });
  }

  test('of a thread is refused in the words that make the client send the whole history', async () => {
    const { error } = await client.refused({ thread: { type: 'continue', previous_message_id: 'msg_1' } });
    assert.deepEqual(error.details, { error_code: 'thread_unsupported_request', unsupported: ['thread'] });
  });

  test('before the stream keep the bucket of the specification and their status', async () => {
    for (const stream of [false, true]) {
      const { status, error } = await client.refused(ask('overloaded at once', { stream }));
      assert.deepEqual([status, error.type, error.code], [429, 'rate_limit_error', 'backend_overloaded']);
    }
    const { status, error } = await client.refused({}, { key: 'tkh_wrong' });
    assert.deepEqual([status, error.type], [401, 'authentication_error']);
  });

  test('an input that is too long is refused in words that clients read', async () => {
    // §0.10: 4 tokens and one for every 4 bytes.
    const long = 'x'.repeat(4 * 3000);
    const tooMuch = await client.refused(ask(long, { max_tokens: 2000 }));
    assert.deepEqual([tooMuch.status, tooMuch.error.code], [400, 'context_length_exceeded']);
    const read = /input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)/.exec(
      tooMuch.error.message,
    );
    assert.deepEqual(read?.slice(1).map(Number), [3004, 2000, 4096]);
    assert.equal(read?.index, 0);
    // What a client makes of it goes through.
    await client.whole(ask(long, { max_tokens: 4096 - 3004 - 50 }));

    const tooLong = await client.refused(ask('x'.repeat(4 * 5000), { max_tokens: 10 }));
    assert.match(tooLong.error.message, /^prompt is too long: 5004 tokens > 4096 maximum\. /);
    assert.match(tooLong.error.message, /Lower max_tokens, trim the prompt/);
    assert.deepEqual(tooLong.error['context_length_limit'], 4096);
  });
});

describe('a failure in the middle of a stream', () => {
  for (const [text, type, code] of [
    ['times out', 'timeout_error', 'backend_timeout'],
    ['overloaded later', 'overloaded_error', 'backend_at_capacity'],
    ['nobody later', 'overloaded_error', 'no_healthy_backends'],
    ['breaks later', 'api_error', 'backend_http_error'],
  ] as const) {
    test(`${code} is an error event of type ${type}, and costs nothing`, async () => {
      const { balanceMicrocents } = await service.usage();
      const { error, types } = await client.streamed(ask(text));
      assert.deepEqual(
        [(error as { type: string }).type, (error as { code: string }).code, types.at(-1)],
        [type, code, 'error'],
      );
      assert.equal((await service.usage()).balanceMicrocents, balanceMicrocents);
    });
  }
});

describe('words to go on with', () => {
  test('are continued, not answered', async () => {
    const message = await client.whole({ messages: [user('list'), assistant('1. one\n2.')] });
    assert.equal(textOf(message), '- continued');
    assert.deepEqual(
      (await client.streamed({ messages: [user('list'), assistant('2.')] })).message?.stop_reason,
      'end_turn',
    );
  });

  test('that say nothing are none', async () => {
    assert.equal(textOf(await client.whole({ messages: [user('hi'), assistant('')] })), 'hello world');
  });

  test('do not go with a form, or with a forced call', async () => {
    const messages = [user('list'), assistant('{')];
    const form = await client.refused({
      messages,
      output_config: { format: { type: 'json_schema', schema: { type: 'object' } } },
    });
    assert.deepEqual([form.error.code, form.error.param], ['unsupported_feature', 'output_config.format']);
    const forced = await client.refused({ messages, tools: [weather], tool_choice: { type: 'any' } });
    assert.deepEqual([forced.error.code, forced.error.param], ['unsupported_feature', 'tool_choice']);
  });
});

describe('money', () => {
  test('is the same as for the same generation on chat completions', async () => {
    for (const stream of [false, true]) {
      await (await client.send(ask('think', { max_tokens: 50, stream, thinking: { type: 'adaptive' } }))).text();
      await (
        await service.chat({
          model: 'demo',
          max_tokens: 50,
          stream,
          reasoning_effort: 'low',
          messages: [user('think')],
        })
      ).text();
      const [chat, messages] = (await service.usage(2)).requests;
      assert.ok(chat && messages && messages.cost_microcents > 0);
      assert.deepEqual(
        [messages.cost_microcents, messages.prompt_tokens, messages.completion_tokens, messages.reasoning_tokens],
        [chat.cost_microcents, chat.prompt_tokens, chat.completion_tokens, chat.reasoning_tokens],
      );
    }
  });

  test('what is shown is what is charged', async () => {
    const message = await client.whole(ask('two calls', { tools: [weather] }));
    const [row] = (await service.usage(1)).requests;
    assert.equal(row?.cost_microcents, inputTokensOf(message) * 5000 + message.usage.output_tokens * 20_000);
  });
});
