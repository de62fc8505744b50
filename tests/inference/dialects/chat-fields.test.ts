import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { decodeChatRequest } from '../../../src/inference/dialects/chat/request.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import type { ErrorCode } from '../../../src/platform/errors.ts';
import type { GenerationRequest } from '../../../src/generation/request.ts';

/** What is put into every documented field, as JSON text. */
const strings = ['""', '"x"', '"auto"', '"high"'];
const objects = ['{}', '{"1":1}', '{"type":"x"}', '{"function":{}}', '{"a":1}', '{"a":"x"}'];
const lists = ['[]', '[null]', '[1]', '["x"]', '[[]]', '[{}]'];
const numbers = ['0', '-1', '1', '1.5', '3', '200', '9007199254740993', '1e308', '1e999', '-1e999'];
const values = ['null', 'true', 'false', ...numbers, ...strings, ...lists, ...objects];

/** A field, the values that it takes, and where another one is reported when that is not the field itself. */
interface Field {
  readonly param: string;
  /** The body, with `¤` where the value goes. */
  readonly template: string;
  readonly accepts: readonly string[];
  /** Reported elsewhere (`param`), or with another code (`code param`). */
  readonly elsewhere?: Readonly<Record<string, string>>;
}

const top = (param: string, accepts: readonly string[], elsewhere: Field['elsewhere'] = {}): Field => ({
  param,
  template: `{"model":"m","messages":[{"role":"user","content":"x"}],"${param}":¤}`,
  accepts,
  elsewhere,
});
const nested = (
  param: string,
  template: string,
  accepts: readonly string[],
  elsewhere: Field['elsewhere'] = {},
): Field => ({ param, template: `{"model":"m",${template}}`, accepts, elsewhere });

const body = (fields: string): string => `"messages":[{"role":"user","content":"x"}],${fields}`;
const part = (fields: string): string => `"messages":[{"role":"user","content":[{${fields}}]}]`;
const call = (fields: string): string => `"messages":[{"role":"assistant","tool_calls":[{${fields}}]}]`;
const tool = (fields: string): string => body(`"tools":[{"type":"function","function":{${fields}}}]`);
const each = (keys: readonly string[], param: string): Record<string, string> =>
  Object.fromEntries(keys.map((key) => [key, param]));

const elements = ['[null]', '[1]', '["x"]', '[[]]'];

const fields: readonly Field[] = [
  {
    param: 'model',
    template: '{"model":¤,"messages":[{"role":"user","content":"x"}]}',
    accepts: ['"x"', '"auto"', '"high"'],
  },
  nested('messages', '"messages":¤', [], { ...each(elements, 'messages[0]'), '[{}]': 'messages[0].role' }),
  nested('messages[0]', '"messages":[¤]', [], each(objects, 'messages[0].role')),
  nested('messages[0].role', '"messages":[{"role":¤,"content":"x"}]', []),
  nested('messages[0].content', '"messages":[{"role":"user","content":¤}]', ['null', '[]', ...strings], {
    ...each(elements, 'messages[0].content[0]'),
    '[{}]': 'messages[0].content[0].type',
  }),
  nested(
    'messages[0].content[0]',
    '"messages":[{"role":"user","content":[¤]}]',
    [],
    each(objects, 'messages[0].content[0].type'),
  ),
  nested('messages[0].content[0].type', part('"type":¤,"text":"x"'), []),
  nested('messages[0].content[0].text', part('"type":"text","text":¤'), strings),
  nested('messages[0].content[0].refusal', part('"type":"refusal","refusal":¤'), strings),
  nested(
    'messages[0].content[0].image_url',
    part('"type":"image_url","image_url":¤'),
    strings,
    each(objects, 'messages[0].content[0].image_url.url'),
  ),
  nested('messages[0].content[0].image_url.url', part('"type":"image_url","image_url":{"url":¤}'), strings),
  nested('messages[0].content[0].file', part('"type":"file","file":¤'), objects),
  nested('messages[0].content[0].file.file_id', part('"type":"file","file":{"file_id":¤}'), ['null', ...strings]),
  nested('messages[0].content[0].file.file_data', part('"type":"file","file":{"file_data":¤}'), ['null', ...strings]),
  nested('messages[0].content[0].file.filename', part('"type":"file","file":{"filename":¤}'), ['null', ...strings]),
  nested('messages[0].name', '"messages":[{"role":"user","content":"x","name":¤}]', values),
  nested('messages[0].reasoning_content', '"messages":[{"role":"assistant","reasoning_content":¤}]', [
    'null',
    ...strings,
  ]),
  nested('messages[0].tool_call_id', '"messages":[{"role":"tool","tool_call_id":¤}]', ['null', ...strings]),
  nested('messages[0].tool_calls', '"messages":[{"role":"assistant","tool_calls":¤}]', ['null', '[]'], {
    ...each(elements, 'messages[0].tool_calls[0]'),
    '[{}]': 'messages[0].tool_calls[0].id',
  }),
  nested('messages[0].tool_calls[0].id', call('"id":¤,"function":{"name":"f","arguments":"{}"}'), [
    '"x"',
    '"auto"',
    '"high"',
  ]),
  nested(
    'messages[0].tool_calls[0].function',
    call('"id":"c","function":¤'),
    [],
    each(objects, 'messages[0].tool_calls[0].function.name'),
  ),
  nested('messages[0].tool_calls[0].function.name', call('"id":"c","function":{"name":¤,"arguments":"{}"}'), strings),
  nested(
    'messages[0].tool_calls[0].function.arguments',
    call('"id":"c","function":{"name":"f","arguments":¤}'),
    strings,
  ),
  top('max_tokens', ['null', '1', '3', '200', '9007199254740993', '1e308']),
  top('max_completion_tokens', ['null', '1', '3', '200', '9007199254740993', '1e308']),
  top('temperature', ['null', '0', '1', '1.5']),
  top('top_p', ['null', '0', '1']),
  top('top_k', ['null', '0', '-1', '1', '3', '200']),
  top('min_p', ['null', '0', '1']),
  top('frequency_penalty', ['null', '0', '-1', '1', '1.5']),
  top('presence_penalty', ['null', '0', '-1', '1', '1.5']),
  top('repetition_penalty', ['null', '1', '1.5', '3']),
  top('stop', ['null', '[]', '["x"]', ...strings], each(['[null]', '[1]', '[[]]', '[{}]'], 'stop[0]')),
  top('seed', ['null', '0', '-1', '1', '3', '200', '9007199254740993']),
  top('n', ['null', '1', '3']),
  top('logprobs', ['null', 'true', 'false']),
  top('top_logprobs', ['null', '0', '1', '3']),
  top('logit_bias', ['null', '{}', '{"1":1}'], {
    '{"type":"x"}': 'logit_bias.type',
    '{"function":{}}': 'logit_bias.function',
    '{"a":"x"}': 'logit_bias.a',
  }),
  nested('logit_bias.50256', body('"logit_bias":{"50256":¤}'), ['0', '-1', '1', '1.5', '3']),
  top('stream', ['null', 'true', 'false']),
  top('stream_options', ['null', ...objects]),
  top('tools', ['null', '[]'], { ...each(elements, 'tools[0]'), '[{}]': 'tools[0].type' }),
  nested('tools[0].type', body('"tools":[{"type":¤,"function":{"name":"f"}}]'), strings),
  nested(
    'tools[0].function',
    body('"tools":[{"type":"function","function":¤}]'),
    [],
    each(objects, 'tools[0].function.name'),
  ),
  nested('tools[0].function.name', tool('"name":¤'), ['"x"', '"auto"', '"high"']),
  nested('tools[0].function.description', tool('"name":"f","description":¤'), ['null', ...strings]),
  // Whether it is a schema is judged with the other rules of tools, with a code of its own. It has to be printed again.
  nested(
    'tools[0].function.parameters',
    tool('"name":"f","parameters":¤'),
    values.filter((value) => !value.endsWith('1e999')),
  ),
  top('tool_choice', ['null', '"auto"'], each(objects, 'tool_choice.type')),
  nested('tool_choice.type', body('"tool_choice":{"type":¤,"function":{"name":"f"}}'), []),
  nested(
    'tool_choice.function',
    body('"tool_choice":{"type":"function","function":¤}'),
    [],
    each(objects, 'tool_choice.function.name'),
  ),
  nested('tool_choice.function.name', body('"tool_choice":{"type":"function","function":{"name":¤}}'), strings),
  top('parallel_tool_calls', ['null', 'true', 'false']),
  top('response_format', ['null'], {
    ...each(objects, 'response_format.type'),
    '{"type":"x"}': 'unsupported_response_format response_format.type',
  }),
  nested(
    'response_format.type',
    body('"response_format":{"type":¤}'),
    [],
    each(strings, 'unsupported_response_format response_format.type'),
  ),
  nested(
    'response_format.json_schema',
    body('"response_format":{"type":"json_schema","json_schema":¤}'),
    [],
    each(objects, 'response_format.json_schema.schema'),
  ),
  nested(
    'response_format.json_schema.schema',
    body('"response_format":{"type":"json_schema","json_schema":{"schema":¤}}'),
    ['true', 'false', ...objects],
  ),
  nested(
    'response_format.json_schema.name',
    body('"response_format":{"type":"json_schema","json_schema":{"schema":{},"name":¤}}'),
    ['null', ...strings],
  ),
  nested(
    'response_format.json_schema.strict',
    body('"response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":¤}}'),
    ['null', 'true', 'false'],
  ),
  nested('response_format.grammar', body('"response_format":{"type":"grammar","grammar":¤}'), strings),
  top('regex', ['null', ...strings]),
  top('reasoning_effort', ['null', ...strings]),
  top('reasoning', ['null', ...objects]),
  nested('reasoning.effort', body('"reasoning":{"effort":¤}'), ['null', ...strings]),
  top('thinking', ['null', 'true', 'false'], each(objects, 'thinking.type')),
  nested('thinking.type', body('"thinking":{"type":¤}'), []),
  nested('thinking.keep', body('"thinking":{"type":"enabled","keep":¤}'), ['null', ...strings]),
  top('enable_thinking', ['null', 'true', 'false']),
  top('preserve_thinking', ['null', 'true', 'false']),
  top('chat_template_kwargs', ['null', ...objects]),
  nested('chat_template_kwargs.enable_thinking', body('"chat_template_kwargs":{"enable_thinking":¤}'), [
    'null',
    'true',
    'false',
  ]),
  // §1: fields that nobody knows, or that have no effect here, are taken with any value.
  ...['metadata', 'user', 'store', 'service_tier', 'prompt_cache_key', 'verbosity', 'no_such_field'].map((name) =>
    top(name, values),
  ),
];

for (const field of fields) {
  test(`${field.param} takes what it documents and refuses the rest by name`, () => {
    for (const value of values) {
      const reported = outcome(field.template.replace('¤', value));
      assert.equal(
        reported,
        field.accepts.includes(value) ? 'accepted' : refusal(field, value),
        `${field.param}: ${value}`,
      );
    }
  });
}

test('the table covers at least 25 values for each field', () => {
  assert.ok(new Set(values).size >= 25);
  for (const { accepts, elsewhere } of fields) {
    for (const value of [...accepts, ...Object.keys(elsewhere ?? {})]) assert.ok(values.includes(value), value);
  }
});

test('null in an optional field is the same as leaving it out', () => {
  const without = decodeChatRequest(JSON.parse('{"model":"m","messages":[{"role":"user","content":"x"}]}'));
  const optional = fields.filter(({ param, accepts }) => !/[.[]/.test(param) && accepts.includes('null'));
  assert.ok(optional.length >= 25);
  for (const { template, param } of optional) {
    assert.deepEqual(decodeChatRequest(JSON.parse(template.replace('¤', 'null'))), without, param);
  }
});

test('what is missing or is no object', () => {
  const table: readonly (readonly [string, string])[] = [
    ['{}', 'invalid_json_request 400 model'],
    ['{"messages":[]}', 'invalid_json_request 400 model'],
    ['{"model":"m"}', 'invalid_json_request 400 messages'],
    // Required fields before shapes (contracts decision 10).
    ['{"model":5}', 'invalid_json_request 400 messages'],
    ['{"model":"m","messages":[]}', 'schema_validation_failed 422 messages'],
    ['{"model":"","messages":[{"role":"user"}]}', 'schema_validation_failed 422 model'],
    [`{"model":"${'m'.repeat(513)}","messages":[{"role":"user"}]}`, 'schema_validation_failed 422 model'],
    [`{"model":"${'😀'.repeat(512)}","messages":[{"role":"user"}]}`, 'accepted'],
    ['[]', 'schema_validation_failed 422 -'],
    ['[{"model":"m","messages":[{"role":"user","content":"x"}]}]', 'schema_validation_failed 422 -'],
    ['null', 'schema_validation_failed 422 -'],
    ['5', 'schema_validation_failed 422 -'],
    ['"x"', 'schema_validation_failed 422 -'],
    [
      '{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio"}]}]}',
      'unsupported_value 400 messages[0].content[0].type',
    ],
  ];
  for (const [text, expected] of table) assert.equal(outcome(text), expected, text.slice(0, 80));
});

test('what is accepted means what it says', () => {
  const table: readonly (readonly [string, (request: GenerationRequest) => unknown, unknown])[] = [
    // §4.2: both sent, max_tokens wins; null counts as not sent.
    ['"max_tokens":5,"max_completion_tokens":9', (request) => request.maxTokens, 5],
    ['"max_tokens":null,"max_completion_tokens":9', (request) => request.maxTokens, 9],
    ['"stop":"a"', (request) => request.stop, ['a']],
    ['"stop":["a","","b"]', (request) => request.stop, ['a', 'b']],
    ['"logprobs":true', (request) => request.logprobs, 0],
    ['"logprobs":true,"top_logprobs":3', (request) => request.logprobs, 3],
    ['"logprobs":false,"top_logprobs":3', (request) => request.logprobs, undefined],
    ['"seed":9007199254740993', (request) => request.sampling.seed, 0],
    ['"seed":9223372036854775807', (request) => Number.isSafeInteger(request.sampling.seed), true],
    ['"seed":-7', (request) => request.sampling.seed, -7],
    [
      '"tool_choice":{"type":"function","function":{"name":"f"}}',
      (request) => request.toolChoice,
      { type: 'function', name: 'f' },
    ],
    ['"tool_choice":"required"', (request) => request.toolChoice, { type: 'required' }],
    ['"parallel_tool_calls":false', (request) => request.parallelToolCalls, false],
    ['"response_format":{"type":"text"}', (request) => request.constraint, undefined],
    ['"response_format":{"type":"json_object"}', (request) => request.constraint, { type: 'json-object' }],
    [
      '"response_format":{"type":"text"},"regex":"a+"',
      (request) => request.constraint,
      { type: 'regex', pattern: 'a+' },
    ],
    [
      '"response_format":{"type":"grammar","grammar":"root ::= x"}',
      (request) => request.constraint,
      { type: 'grammar', text: 'root ::= x' },
    ],
    // Contracts decision 22: the first of this order wins.
    [
      '"reasoning_effort":"low","reasoning":{"effort":"high"},"thinking":false,"enable_thinking":true',
      (request) => request.effort,
      { type: 'tier', value: 'low', at: 'reasoning_effort' },
    ],
    [
      '"reasoning":{"effort":"high"},"thinking":false',
      (request) => request.effort,
      { type: 'tier', value: 'high', at: 'reasoning.effort' },
    ],
    [
      '"thinking":{"type":"disabled"},"enable_thinking":true',
      (request) => request.effort,
      { type: 'switch', on: false, at: 'thinking.type' },
    ],
    [
      '"thinking":true,"enable_thinking":false',
      (request) => request.effort,
      { type: 'switch', on: true, at: 'thinking' },
    ],
    [
      '"enable_thinking":false,"chat_template_kwargs":{"enable_thinking":true}',
      (request) => request.effort,
      { type: 'switch', on: false, at: 'enable_thinking' },
    ],
    [
      '"chat_template_kwargs":{"enable_thinking":true}',
      (request) => request.effort,
      { type: 'switch', on: true, at: 'chat_template_kwargs.enable_thinking' },
    ],
    // §4.2.5(7).
    ['"preserve_thinking":true', (request) => request.preserveThinking, true],
    ['"thinking":{"type":"enabled","keep":"all"}', (request) => request.preserveThinking, true],
    ['"thinking":{"type":"disabled","keep":"all"}', (request) => request.preserveThinking, false],
    ['"thinking":{"type":"enabled","keep":"last"}', (request) => request.preserveThinking, false],
    [
      '"thinking":{"type":"enabled","keep":"all"},"preserve_thinking":null',
      (request) => request.preserveThinking,
      true,
    ],
  ];
  for (const [text, view, expected] of table) {
    const request = decodeChatRequest(JSON.parse(`{"model":"m","messages":[{"role":"user","content":"x"}],${text}}`));
    assert.deepEqual(view(request), expected, text);
  }
});

test('each role and form of content means the same conversation', () => {
  const messages = (text: string): unknown => {
    const { prompt } = decodeChatRequest(JSON.parse(`{"model":"m","messages":[${text}]}`));
    return prompt.type === 'messages' ? prompt.messages : prompt;
  };
  const parts = [{ type: 'text', text: 'x' }];
  assert.deepEqual(messages('{"role":"developer","content":"x"}'), [{ role: 'system', content: parts }]);
  assert.deepEqual(messages('{"role":"system","content":[{"type":"text","text":"x"}]}'), [
    { role: 'system', content: parts },
  ]);
  // A system message in mid-conversation keeps its place (contracts §0.1).
  assert.deepEqual(messages('{"role":"user","content":"x"},{"role":"system","content":"x"}'), [
    { role: 'user', content: parts },
    { role: 'system', content: parts },
  ]);
  assert.deepEqual(messages('{"role":"assistant"}'), [
    { role: 'assistant', content: [], reasoning: [], toolCalls: [] },
  ]);
  // §4.2.2(3): null is an empty result.
  assert.deepEqual(messages('{"role":"tool","tool_call_id":"c","content":null}'), [
    { role: 'tool', toolCallId: 'c', content: [] },
  ]);
  assert.deepEqual(messages('{"role":"tool","content":[{"type":"text","text":"x"}]}'), [
    { role: 'tool', toolCallId: undefined, content: parts },
  ]);
});

test('any JSON in any field is accepted or refused by name, never a failure of ours', () => {
  const templates = fields.map(({ template }) => template);
  fc.assert(
    fc.property(fc.constantFrom(...templates), fc.json({ maxDepth: 4 }), (template, value) => {
      assert.match(
        outcome(template.replace('¤', () => value)),
        /^(accepted|(schema_validation_failed 422|unsupported_value 400|unsupported_response_format 400) .+)$/,
      );
    }),
    { numRuns: 20_000 },
  );
});

function refusal(field: Field, value: string): string {
  const [first = '', second] = (field.elsewhere?.[value] ?? field.param).split(' ');
  const code: ErrorCode = second === undefined ? 'schema_validation_failed' : (first as ErrorCode);
  return `${code} ${code === 'schema_validation_failed' ? 422 : 400} ${second ?? first}`;
}

function outcome(json: string): string {
  try {
    decodeChatRequest(JSON.parse(json));
    return 'accepted';
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    assert.ok(
      error.param === undefined || error.message.includes(error.param) || error.code !== 'schema_validation_failed',
    );
    return `${error.code} ${error.status} ${error.param ?? '-'}`;
  }
}
