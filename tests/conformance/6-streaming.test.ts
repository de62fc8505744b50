import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import { ChatService, tools } from './chat-service.ts';

/**
 * Specification part 6, sentence by sentence, and what contracts §1.0 decides where part 7.9 is silent: on scripts, which
 * can fail anywhere, and on the embedded engine, which really generates.
 */
const chat = new ChatService(
  [
    {
      id: 'scripted',
      scripts: `
- when: { last_text: "think" }
  say: [ { reasoning: "hm well" }, { text: "yes sir" } ]
- when: { last_text: "call" }
  say: [ { tool_call: { name: get_weather, arguments: ['{"ci', 'ty":"Bern"}'] } }, { tool_call: { name: get_time, arguments: { city: Rom } } } ]
- when: { last_text: "silent" }
  say: []
- when: { last_text: "awkward" }
  say: [ { text: ["hé", "🌍", "\\n\\n", "data: [DONE]\\n\\n", "\\r", "\\u2028", "\\"\\\\"] } ]
- when: { last_text: "pauses" }
  say: [ { text: "one two" } ]
  pace_ms: 3000
- when: { last_text: "late" }
  say: [ { text: "at last" } ]
  first_token_ms: 4000
- when: { last_text: "breaks off" }
  say: []
  first_token_ms: 1500
  fault: { after_tokens: 0, type: error, code: backend_timeout }
- when: { last_text: "fails at once" }
  say: []
  fault: { after_tokens: 0, type: error, code: no_healthy_backends }
- when: { last_text: "cut" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: cut }
- when: { last_text: "fails: backend_timeout" }
  say: [ { reasoning: "hm" }, { text: "one two three" } ]
  fault: { after_tokens: 2, type: error, code: backend_timeout }
- when: { last_text: "fails: backend_overloaded" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: error, code: backend_overloaded }
- when: { last_text: "fails: backend_at_capacity" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: error, code: backend_at_capacity }
- when: { last_text: "fails: no_healthy_backends" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: error, code: no_healthy_backends }
- when: { last_text: "fails: backend_http_error" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: error, code: backend_http_error }
- when: { last_text: "fails: backend_connect_error" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: error, code: backend_connect_error }
- when: { last_text: "fails: internal_error" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 2, type: error, code: internal_error }
- say: [ { text: "hello world" } ]
`,
    },
    { id: 'embedded', says: ['hello', ' world', ' of', ' ours'] },
  ],
  '  prime_timeout_seconds: 1',
);
before(() => chat.start());
after(() => chat.dispose());

for (const model of ['scripted', 'embedded']) {
  describe(`on the ${model} engine`, () => {
    test('§6.1 each event is a line `data: <chunk JSON>` followed by a blank line', async () => {
      const { body, headers } = await chat.streamed(model, 'hi');
      // A comment comes before the first event when that takes a second, which it may on a busy machine.
      assert.match(body, /^(: keep-alive\n\n)*(data: \{[^\n\r]+\}\n\n)+data: \[DONE\]\n\n$/);
      assert.equal(headers.get('content-type'), 'text/event-stream; charset=utf-8');
      assert.equal(headers.get('cache-control'), 'no-cache');
      assert.equal(headers.get('x-accel-buffering'), 'no');
      assert.match(headers.get('x-request-id') ?? '', /^req_[0-9a-f]{12}$/);
      assert.equal(headers.get('request-id'), headers.get('x-request-id'));
    });

    test('§6.1 the stream ends with the line `data: [DONE]`', async () => {
      const { body } = await chat.streamed(model, 'hi');
      assert.ok(body.endsWith('\n\ndata: [DONE]\n\n'));
      assert.equal(body.split('[DONE]').length, 2);
    });

    test('§6.2 first chunk sets `delta.role` (content may be empty)', async () => {
      const { chunks } = await chat.streamed(model, 'hi');
      assert.deepEqual(chunks[0]?.choices[0]?.delta, { role: 'assistant', content: '' });
      assert.ok(chunks.slice(1).every(({ choices }) => choices[0]?.delta.role === undefined));
    });

    test('§6.2 then deltas, then a chunk with non-null `finish_reason` and an empty delta', async () => {
      const { chunks } = await chat.streamed(model, 'hi');
      const finishes = chunks.filter(({ choices }) => choices.some(({ finish_reason: reason }) => reason !== null));
      assert.equal(finishes.length, 1);
      assert.equal(chunks.indexOf(finishes[0]!), chunks.length - 2);
      assert.deepEqual(finishes[0]?.choices[0]?.delta, {});
    });

    test('§6.2 then a final chunk with an empty `choices` array carrying `usage`; then `[DONE]`', async () => {
      const { chunks, body } = await chat.streamed(model, 'hi');
      const last = chunks.at(-1);
      assert.deepEqual(last?.choices, []);
      assert.ok(last.usage);
      assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === undefined && chunk.choices.length === 1));
      assert.match(body, /"choices":\[\],"usage":\{[^\n]*\}\n\ndata: \[DONE\]\n\n$/);
    });

    test('§6.3 the usage chunk is sent on every successful stream without `stream_options`', async () => {
      for (const content of ['hi', 'silent', 'think']) {
        const { chunks } = await chat.streamed(model, content);
        assert.equal(chunks.filter(({ usage }) => usage !== undefined).length, 1, content);
      }
    });

    test('§4.2 `stream_options` of the client changes nothing', async () => {
      for (const options of [
        { include_usage: false },
        { include_usage: true },
        { continuous_usage_stats: true },
        {},
        null,
      ]) {
        const { chunks } = await chat.streamed(model, 'hi', { stream_options: options });
        assert.ok(chunks.at(-1)?.usage, JSON.stringify(options));
        assert.equal(chunks.filter(({ usage }) => usage !== undefined).length, 1, JSON.stringify(options));
      }
    });

    test('§6.4 text is in `delta.content`, and is that of the whole answer', async () => {
      const { read, chunks } = await chat.streamed(model, 'hi', { temperature: 0 });
      const whole = await chat.whole(model, 'hi', { temperature: 0 });
      assert.equal(read.choices[0]?.content, whole.choices[0]?.message.content);
      assert.equal(read.choices[0]?.content, model === 'scripted' ? 'hello world' : 'hello world of ours');
      const { prompt_tokens: prompt, completion_tokens: completion } = chunks.at(-1)?.usage ?? {};
      assert.deepEqual([prompt, completion], [whole.usage.prompt_tokens, whole.usage.completion_tokens]);
    });

    test('§6.5 `finish_reason` is as in 2.5: `stop` at the end, `length` at the limit', async () => {
      const ended = await chat.streamed(model, 'hi');
      assert.equal(ended.read.choices[0]?.finishReason, 'stop');
      const cut = await chat.streamed(model, 'hi', { max_tokens: 1 });
      assert.equal(cut.read.choices[0]?.finishReason, 'length');
      assert.equal(cut.chunks.at(-1)?.usage?.completion_tokens, 1);
    });

    test('§1 four clients of one stream each get the whole of their own', async () => {
      const answers = await Promise.all([1, 2, 3, 4].map(() => chat.streamed(model, 'hi')));
      assert.equal(new Set(answers.map(({ chunks }) => chunks[0]?.id)).size, 4);
      assert.equal(new Set(answers.map(({ read }) => read.choices[0]?.content)).size, 1);
    });
  });
}

test('§6.4 reasoning is in `delta.reasoning_content`, before the text', async () => {
  const { read, chunks } = await chat.streamed('scripted', 'think');
  assert.equal(read.choices[0]?.reasoning, 'hm well');
  assert.equal(read.choices[0]?.content, 'yes sir');
  const kinds = chunks.flatMap(({ choices }) => (choices[0]?.delta.role ? [] : Object.keys(choices[0]?.delta ?? {})));
  assert.ok(kinds.lastIndexOf('reasoning_content') < kinds.indexOf('content'), kinds.join());
});

test('§6.4 tool calls are in `delta.tool_calls`, and the finish says so', async () => {
  const { read } = await chat.streamed('scripted', 'call', { tools: tools('get_weather', 'get_time') });
  assert.deepEqual(
    read.choices[0]?.toolCalls.map(({ name, arguments: text }) => [name, text]),
    [
      ['get_weather', '{"city":"Bern"}'],
      ['get_time', '{"city":"Rom"}'],
    ],
  );
  assert.equal(read.choices[0]?.finishReason, 'tool_calls');
});

test('§6.2 every choice of `n` has its role and ends with its own finish chunk', async () => {
  const { read, chunks } = await chat.streamed('scripted', 'hi', { n: 3 });
  assert.deepEqual(read.choices.map(({ index }) => index).toSorted(), [0, 1, 2]);
  assert.ok(read.choices.every(({ content, finishReason }) => content === 'hello world' && finishReason === 'stop'));
  assert.equal(chunks.at(-1)?.usage?.completion_tokens, 6);
});

test('§6.1 whatever the text holds, an event stays one line', async () => {
  const { read, body } = await chat.streamed('scripted', 'awkward');
  assert.equal(read.choices[0]?.content, 'hé🌍\n\ndata: [DONE]\n\n\r\u2028"\\');
  assert.match(body, /^(data: [^\n\r]+\n\n)+$/);
});

test('§6.2 an answer without any text has its role, its finish and its usage', async () => {
  const { chunks } = await chat.streamed('scripted', 'silent');
  assert.equal(chunks.length, 3);
  assert.equal(chunks[0]?.choices[0]?.delta.role, 'assistant');
  assert.equal(chunks[1]?.choices[0]?.finish_reason, 'stop');
  assert.equal(chunks[2]?.usage?.completion_tokens, 0);
});

test('§6.1 events arrive as they are generated, each whole', async () => {
  const client = await RawClient.connect(chat.service.url);
  const body = { model: 'scripted', messages: [{ role: 'user', content: 'pauses' }], stream: true };
  client.send(chatBytes(chat.service.key, newRequestId(), body));
  await until(() => client.events.some((event) => event.includes('"content":"one"')), 60_000);
  assert.ok(!client.text.includes('two'), 'the second word comes three seconds later');
  for (const event of client.events) JSON.parse(event);
  await until(() => client.text.includes('[DONE]'), 60_000);
  client.reset();
});

describe('comments keep a silent line alive (contracts §0.17, §1.0)', () => {
  test('while the first token is late, after the head', async () => {
    const { body, read } = await chat.streamed('scripted', 'late');
    assert.match(body, /^(: keep-alive\n\n)+data: /);
    assert.equal(read.choices[0]?.content, 'at last');
  });

  test('a comment is a line that begins with a colon and an event of its own', async () => {
    const { body } = await chat.streamed('scripted', 'late');
    assert.ok(
      body
        .split('\n\n')
        .slice(0, -1)
        .every((event) => /^(data: [^\n]+|: [a-z-]+)$/.test(event)),
    );
  });
});

describe('an error', () => {
  test('§7.9 before the first token is an ordinary HTTP error, also of a stream', async () => {
    const answer = await chat.ask('scripted', 'fails at once', { stream: true });
    assert.match(answer.headers.get('content-type') ?? '', /^application\/json/);
    const { error } = (await answer.json()) as { error: Record<string, unknown> };
    assert.deepEqual([answer.status, error['code']], [503, 'no_healthy_backends']);
  });

  const matrix = [
    ['backend_timeout', 'server_error'],
    ['backend_http_error', 'server_error'],
    ['backend_connect_error', 'server_error'],
    ['no_healthy_backends', 'routing_error'],
    ['backend_overloaded', 'rate_limit_error'],
    ['backend_at_capacity', 'rate_limit_error'],
    ['internal_error', 'internal_error'],
  ] as const;
  for (const [code, type] of matrix) {
    test(`§7.9 after the first token: ${code} is a line of its own, then [DONE]; no usage, no finish, no charge`, async () => {
      const { body, chunks, read, headers } = await chat.streamed('scripted', `fails: ${code}`);
      const error = read.error as Record<string, unknown>;
      assert.deepEqual([error['code'], error['type']], [code, type]);
      assert.equal(error['request_id'], headers.get('x-request-id'));
      assert.equal(error['docs_url'], `${chat.service.accountUrl}/docs/errors/${code}`);
      assert.ok(typeof error['message'] === 'string' && error['message'] !== '');
      assert.match(body, /\n\ndata: \{"error":\{[^\n]+\}\}\n\ndata: \[DONE\]\n\n$/);
      assert.ok(chunks.every(({ usage }) => usage === undefined));
      assert.ok(chunks.every((chunk) => chunk.choices?.every(({ finish_reason: reason }) => reason === null) ?? true));
      assert.match(`${read.choices[0]?.reasoning}${read.choices[0]?.content}`, /^(one two|hmone)$/);
      const { requests } = await chat.service.usage();
      const receipt = requests.find(({ request_id: id }) => id === error['request_id']);
      assert.deepEqual([receipt?.ending, receipt?.cost_microcents], ['failed', 0]);
      assert.equal(receipt?.error, code);
    });
  }

  test('§7.9 a backend that ends without a finish is an error, not a stop', async () => {
    const { read } = await chat.streamed('scripted', 'cut');
    assert.equal((read.error as Record<string, unknown>)['code'], 'backend_http_error');
    assert.equal(read.choices[0]?.finishReason, null);
  });

  test('§7.9 after the head and before the first token is an event of the stream too', async () => {
    const { body, read } = await chat.streamed('scripted', 'breaks off');
    assert.match(body, /^(: keep-alive\n\n)+data: \{"error":/);
    assert.equal((read.error as Record<string, unknown>)['code'], 'backend_timeout');
  });

  test('§7.9 the same failure of a whole answer has its own status, and none of its text', async () => {
    const answer = await chat.ask('scripted', 'fails: backend_timeout');
    const body = await answer.text();
    assert.equal(answer.status, 504);
    assert.ok(!body.includes('one'), body);
  });
});
