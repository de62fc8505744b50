/** The pure parts of the playground: what is read of a stream, what a request is made of, and the code that sends it. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import fc from 'fast-check';

import type { Asked, Turn } from '../../web/src/pages/playground/conversation.ts';
import { exportsOf, javaScriptOf, pythonLiteral, quoted, shortened } from '../../web/src/pages/playground/export.ts';
import { families } from '../../web/src/pages/playground/families/families.ts';
import type { Delta } from '../../web/src/pages/playground/families/family.ts';
import { answerCharactersMax, fold, nothingRead } from '../../web/src/pages/playground/fold.ts';
import { playgroundSearch } from '../../web/src/pages/playground/search.ts';
import { chosenModels, readFormat, readTools, requestOf } from '../../web/src/pages/playground/settings.ts';
import type { Model } from '../../web/src/pages/playground/settings.ts';
import { eventCharactersMax, EventReader, StreamFault } from '../../web/src/api/sse.ts';
import { searchOf } from '../../web/src/app/filters.ts';

describe('a stream of events', () => {
  const stream =
    'event: one\ndata: {"a":1}\n\n: a comment\r\n\r\ndata:no space\r\ndata: \u{1F600} second line\r\n\r\nid: 7\rretry: 3\rdata: x\r\rdata: cut off';
  const events = [
    { name: 'one', data: '{"a":1}' },
    { name: '', data: 'no space\n\u{1F600} second line' },
    { name: '', data: 'x' },
  ];

  test('is the same however it is cut, also within the end of a line and within a character', () => {
    const bytes = new TextEncoder().encode(stream);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: bytes.length }), { maxLength: 12 }), (cuts) => {
        const reader = new EventReader();
        const decoder = new TextDecoder();
        const ends = [...new Set([...cuts, bytes.length])].toSorted((a, b) => a - b);
        const pieces = ends.map((end, at) => decoder.decode(bytes.subarray(ends[at - 1] ?? 0, end), { stream: true }));
        assert.deepEqual(
          pieces.flatMap((piece) => reader.read(piece)),
          events,
        );
      }),
    );
  });

  test('may be anything, and is then no events or some', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 20 }), (pieces) => {
        const reader = new EventReader();
        const decoder = new TextDecoder();
        for (const piece of pieces)
          for (const { name, data } of reader.read(decoder.decode(piece, { stream: true })))
            assert.ok(!/[\r\n]/.test(name) && typeof data === 'string');
      }),
    );
  });

  test('has a bound for a line and for an event', () => {
    const piece = 'a'.repeat(1_000_000);
    const line = new EventReader();
    assert.throws(() => {
      for (let length = 0; length <= eventCharactersMax; length += piece.length) line.read(piece);
    }, StreamFault);
    const event = new EventReader();
    assert.throws(() => {
      for (let length = 0; length <= eventCharactersMax; length += piece.length) event.read(`data: ${piece}\n`);
    }, StreamFault);
  });
});

const turns: readonly Turn[] = [
  {
    kind: 'user',
    text: 'Weather?',
    attachments: [
      { kind: 'image', name: 'a.png', mediaType: 'image/png', base64: 'AAAA' },
      { kind: 'file', name: 'b.pdf', fileId: 'file-1' },
    ],
  },
  {
    kind: 'answer',
    blocks: [
      { kind: 'reasoning', text: 'I need it.' },
      { kind: 'text', text: 'Let me look.' },
      { kind: 'call', key: '0', id: 'call_1', name: 'get_weather', arguments: '{"city":"Paris"}' },
    ],
    results: { call_1: '{"t":7}' },
  },
  { kind: 'user', text: 'And then?', attachments: [] },
];

const asked: Asked = {
  model: 'demo',
  stream: true,
  system: 'Be brief.',
  turns,
  tools: [{ name: 'get_weather', description: 'Now.', parameters: { type: 'object' } }],
  toolChoice: 'required',
  format: { kind: 'json_schema', schema: { type: 'object' } },
  parameters: { max_tokens: 9, temperature: 0, top_p: 0.5, seed: 1, effort: 'high', stop: ['end'] },
};

describe('a request', () => {
  test('is written as each family has it', () => {
    assert.deepEqual(families.chat.body(asked), {
      model: 'demo',
      messages: [
        { role: 'system', content: 'Be brief.' },
        {
          role: 'user',
          content: [
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
            { type: 'file', file: { file_id: 'file-1' } },
            { type: 'text', text: 'Weather?' },
          ],
        },
        {
          role: 'assistant',
          content: 'Let me look.',
          tool_calls: [
            { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Paris"}' } },
          ],
        },
        { role: 'tool', tool_call_id: 'call_1', content: '{"t":7}' },
        { role: 'user', content: 'And then?' },
      ],
      stream: true,
      max_tokens: 9,
      temperature: 0,
      top_p: 0.5,
      seed: 1,
      stop: ['end'],
      reasoning_effort: 'high',
      tools: [
        {
          type: 'function',
          function: { name: 'get_weather', description: 'Now.', parameters: { type: 'object' } },
        },
      ],
      tool_choice: 'required',
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' } } },
    });
    assert.deepEqual(families.responses.body(asked), {
      model: 'demo',
      instructions: 'Be brief.',
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_image', image_url: 'data:image/png;base64,AAAA' },
            { type: 'input_file', file_id: 'file-1' },
            { type: 'input_text', text: 'Weather?' },
          ],
        },
        { role: 'assistant', content: [{ type: 'output_text', text: 'Let me look.' }] },
        { type: 'function_call', call_id: 'call_1', name: 'get_weather', arguments: '{"city":"Paris"}' },
        { type: 'function_call_output', call_id: 'call_1', output: '{"t":7}' },
        { role: 'user', content: [{ type: 'input_text', text: 'And then?' }] },
      ],
      store: false,
      stream: true,
      max_output_tokens: 9,
      temperature: 0,
      top_p: 0.5,
      seed: 1,
      stop: ['end'],
      reasoning: { effort: 'high' },
      tools: [{ type: 'function', name: 'get_weather', description: 'Now.', parameters: { type: 'object' } }],
      tool_choice: 'required',
      text: { format: { type: 'json_schema', name: 'answer', schema: { type: 'object' } } },
    });
    assert.deepEqual(families.messages.body(asked), {
      model: 'demo',
      max_tokens: 9,
      system: 'Be brief.',
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
            { type: 'document', source: { type: 'file', file_id: 'file-1' } },
            { type: 'text', text: 'Weather?' },
          ],
        },
        {
          role: 'assistant',
          content: [
            { type: 'text', text: 'Let me look.' },
            { type: 'tool_use', id: 'call_1', name: 'get_weather', input: { city: 'Paris' } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content: '{"t":7}' }] },
        { role: 'user', content: 'And then?' },
      ],
      stream: true,
      temperature: 0,
      top_p: 0.5,
      stop_sequences: ['end'],
      thinking: { type: 'adaptive' },
      output_config: { effort: 'high', format: { type: 'json_schema', schema: { type: 'object' } } },
      tools: [{ name: 'get_weather', description: 'Now.', input_schema: { type: 'object' } }],
      tool_choice: { type: 'any' },
    });
    assert.deepEqual(families.completions.body(asked), {
      model: 'demo',
      prompt: 'Weather?Let me look.And then?',
      stream: true,
      max_tokens: 9,
      temperature: 0,
      top_p: 0.5,
      seed: 1,
      stop: ['end'],
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' } } },
    });
  });

  const model = (features: readonly string[], sampling = 'honor'): Model =>
    ({
      model: 'demo',
      sampling,
      endpoints: [
        { path: '/v1/chat/completions', features },
        { path: '/v1/messages', features },
      ],
      card: {
        zdr_supported: false,
        service: { capabilities: { reasoning_effort: { efforts: ['none', 'high'], default: 'none' } } },
      },
    }) as unknown as Model;
  const written = { system: '', tools: '[{"name":"f"}]', schema: '{}' };
  const bodyOf = (search: object, of: Model) => requestOf('http://x', search, written, of, [])?.body;

  test('has only what the model can do and the link has said', () => {
    const search = searchOf(playgroundSearch)({
      temperature: '0.5',
      seed: 3,
      max_tokens: '',
      top_p: 'x',
      effort: 'low',
      stop: 'a\n\nb',
      format: 'json_schema',
      key: 'tkh_secret',
      prompt: 'hello',
    });
    assert.deepEqual(
      Object.values(search).filter((value) => value !== undefined),
      ['json_schema', 'low', 'a\n\nb', 0.5, 3],
    );
    assert.deepEqual(bodyOf(search, model([])), {
      model: 'demo',
      messages: [],
      temperature: 0.5,
      seed: 3,
      stop: ['a', 'b'],
    });
    assert.deepEqual(bodyOf({ temperature: 1, seed: 3, effort: 'high' }, model(['streaming'], 'ignore')), {
      model: 'demo',
      messages: [],
      stream: true,
      seed: 3,
      reasoning_effort: 'high',
    });
    assert.deepEqual(bodyOf({}, model(['streaming', 'tools']))?.['stream'], undefined, 'no streamed tool calls');
    assert.equal(bodyOf({ zdr: true }, model(['tools', 'tool_streaming', 'streaming']))?.['stream'], true);
    assert.equal(requestOf('http://x', {}, { ...written, tools: '[' }, model(['tools']), []), undefined);
    assert.deepEqual(
      chosenModels({ model: 'DEMO', model2: 'gone' }, [model([])]).map((one) => one.model),
      ['demo'],
    );
  });

  test('has the tools and the schema that were typed, or says where they are wrong', () => {
    const one = { name: 'f', description: 'd', parameters: { type: 'object' } };
    for (const text of [[one], one, [{ type: 'function', function: one }], [{ ...one, strict: true }]])
      assert.deepEqual(readTools(JSON.stringify(text)), { value: [one] });
    assert.deepEqual(readTools('  '), { value: [] });
    for (const text of ['{', '[1]', '[{"name":""}]', '"f"', 'null']) assert.ok('fault' in readTools(text), text);
    assert.deepEqual(readFormat('json_schema', '{"type":"object"}'), {
      value: { kind: 'json_schema', schema: { type: 'object' } },
    });
    for (const text of ['', '[]', '7']) assert.ok('fault' in readFormat('json_schema', text), text);
  });
});

describe('an answer', () => {
  test('may be anything in any family, and is read without a fault', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.string(), (json, name) => {
        for (const family of Object.values(families)) {
          const deltas = [...family.readEvent({ name, data: '' }, json), ...family.readWhole(json)];
          deltas.reduce(fold, nothingRead);
        }
      }),
    );
  });

  test('is the same, streamed or whole', () => {
    const { blocks, finish, usage } = read([
      ...families.messages.readEvent({ name: '', data: '' }, block(0, { type: 'thinking', thinking: '' })),
      ...delta(0, { type: 'thinking_delta', thinking: 'Hm.' }),
      ...families.messages.readEvent(
        { name: '', data: '' },
        block(1, { type: 'tool_use', id: 't', name: 'f', input: {} }),
      ),
      ...delta(1, { type: 'input_json_delta', partial_json: '{"a"' }),
      ...delta(1, { type: 'input_json_delta', partial_json: ':1}' }),
      ...families.messages.readEvent(
        { name: 'message_delta', data: '' },
        {
          type: 'message_delta',
          delta: { stop_reason: 'tool_use' },
          usage: { input_tokens: 2, cache_read_input_tokens: 3, output_tokens: 4 },
        },
      ),
    ]);
    const whole = read(
      families.messages.readWhole({
        content: [
          { type: 'thinking', thinking: 'Hm.' },
          { type: 'tool_use', id: 't', name: 'f', input: { a: 1 } },
        ],
        stop_reason: 'tool_use',
        usage: { input_tokens: 2, cache_read_input_tokens: 3, output_tokens: 4 },
      }),
    );
    assert.deepEqual({ blocks, finish, usage }, { blocks: whole.blocks, finish: whole.finish, usage: whole.usage });
    assert.deepEqual(usage, { prompt: 5, cached: 3, completion: 4, reasoning: 0 });
  });

  test('that does not end is given up', () => {
    const text = 'a'.repeat(1_000_000);
    assert.throws(() => {
      for (let at = 0, now = nothingRead; at <= answerCharactersMax; at += text.length)
        now = fold(now, { kind: 'text', text });
    }, StreamFault);
  });

  const read = (deltas: readonly Delta[]) => deltas.reduce(fold, nothingRead);
  const block = (index: number, content: object) => ({ type: 'content_block_start', index, content_block: content });
  const delta = (index: number, content: object): readonly Delta[] =>
    families.messages.readEvent({ name: '', data: '' }, { type: 'content_block_delta', index, delta: content });
});

describe('the code of a request', () => {
  const url = 'http://localhost:8080';
  const request = (name: keyof typeof families, more: Partial<Asked> = {}) => ({
    url,
    family: families[name],
    headers: { 'service-zdr': 'required' },
    body: families[name].body({ ...asked, ...more }),
  });

  test('in JavaScript gives the client exactly its body', async () => {
    for (const name of ['chat', 'responses', 'messages', 'completions'] as const) {
      const made: { client?: object; body?: unknown; options?: unknown } = {};
      const code = javaScriptOf(request(name, { stream: false })).replace(/^import (\w+) from '[^']+';/, '');
      const create = (body: unknown, options: unknown) => {
        Object.assign(made, { body, options });
        return Promise.resolve({ choices: [{}] });
      };
      class Client {
        constructor(options: object) {
          made.client = options;
        }
        readonly chat = { completions: { create } };
        readonly completions = { create };
        readonly responses = { create };
        readonly messages = { create };
      }
      const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor as FunctionConstructor;
      const run = new AsyncFunction('OpenAI', 'Anthropic', 'process', 'console', code) as (
        ...args: unknown[]
      ) => Promise<void>;
      await run(Client, Client, { env: { TOKENHOUSE_KEY: 'tkh_1' } }, { log: () => {}, dir: () => {} });
      assert.deepEqual(made.body, request(name, { stream: false }).body, name);
      assert.deepEqual(made.options, { headers: { 'service-zdr': 'required' } });
      assert.deepEqual(
        made.client,
        name === 'messages'
          ? { baseURL: url, authToken: 'tkh_1', apiKey: null }
          : { baseURL: `${url}/v1`, apiKey: 'tkh_1' },
      );
    }
  });

  test('in Python has every value as Python writes it', () => {
    assert.equal(
      pythonLiteral({ a: [null, true, false, 1.5, 'x\n"'], b: {} }),
      `{
    "a": [
        None,
        True,
        False,
        1.5,
        "x\\n\\"",
    ],
    "b": {},
}`,
    );
    const code = Object.fromEntries(exportsOf(request('chat', { parameters: { top_k: 5 } })))['Python']!;
    assert.match(code, /extra_body=\{\n {8}"top_k": 5,\n {4}\},/);
    assert.match(code, /extra_headers=\{\n {8}"service-zdr": "required",\n {4}\},/);
  });

  test('quotes for the shell whatever was written, and names no key', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom("'", '"', '$', '`', '\\', '\n', 'a') }), (text) => {
        const inside = quoted(text)
          .slice(1, -1)
          .split(String.raw`'\''`);
        assert.ok(inside.every((part) => !part.includes("'")));
        assert.equal(inside.join("'"), text);
      }),
    );
    for (const name of ['chat', 'responses', 'messages', 'completions'] as const)
      for (const [title, code] of exportsOf(request(name)))
        assert.ok(code.includes('TOKENHOUSE_KEY') && !code.includes('tkh_'), title);
    const agents = Object.fromEntries(exportsOf(request('responses')));
    assert.match(agents['Claude Code']!, /--append-system-prompt 'Be brief\.' \\\n {2}-p 'And then\?'$/);
    assert.match(
      agents['Codex']!,
      /codex exec -m demo [\s\S]*-c 'model_reasoning_effort="high"' \\\n {2}'And then\?'$/,
    );
  });

  test('is shown without the bytes of images', () => {
    const base64 = 'QUJD'.repeat(1000);
    assert.equal(shortened(`data:image/png;base64,${base64}"`), `data:image/png;base64,${'QUJD'.repeat(10)}…(4000)"`);
  });
});
