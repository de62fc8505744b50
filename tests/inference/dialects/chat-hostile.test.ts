import assert from 'node:assert/strict';
import { test } from 'node:test';

import { chat } from '../../../src/inference/dialects/chat/chat.ts';
import { decodeChatRequest } from '../../../src/inference/dialects/chat/request.ts';
import { parseJson } from '../../../src/platform/http/json/parse.ts';
import { ApiError, errorBody } from '../../../src/platform/errors.ts';
import type { GenerationRequest } from '../../../src/generation/request.ts';

import { checkFeatures } from '../../../src/inference/pipeline/features.ts';
import { fit } from '../../../src/inference/pipeline/fit.ts';
import { resolveEffort } from '../../../src/inference/pipeline/effort.ts';
import { resolveParts } from '../../../src/inference/pipeline/resolve.ts';
import { checkTools } from '../../../src/inference/pipeline/tool-rules.ts';
import { capableModel, chatFlags, chatRoute } from '../pipeline/models.ts';
import { defaultImageRules } from '../../support/image-settings.ts';

const valid = '"model":"m","messages":[{"role":"user","content":"x"}]';

/** Everything of a request that is pure, on a model that can do everything; then what an engine does with it. */
async function outcome(body: string | object): Promise<string> {
  try {
    const request = decodeChatRequest(typeof body === 'string' ? parseJson(Buffer.from(body)) : body);
    checkTools(request);
    const prompt = await resolveParts(request.prompt, true, defaultImageRules, new AbortController().signal);
    checkFeatures(request, capableModel, chatFlags(capableModel));
    resolveEffort(request.effort, capableModel, chatRoute);
    await fit(
      { ...request, prompt, reasoningRoomTokens: 0 },
      capableModel,
      chatRoute,
      () => Promise.resolve(undefined),
      () => [],
    );
    // What goes on to an engine can be printed, and is text that any server takes.
    const printed = JSON.stringify({ ...request, prompt });
    assert.ok(!/\\ud[89a-f]/.test(printed), 'half a character goes on');
    return 'accepted';
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const answer = chat.encodeError(errorBody(error, 'req_0123456789ab', 'http://localhost:8081'));
    assert.ok(answer.length < 2_000, 'an error does not repeat what the client sent');
    return `${error.code} ${error.param ?? '-'}`;
  }
}

const nest = (depth: number, open = '[', close = ']'): string => open.repeat(depth) + close.repeat(depth);
/** As deep as a body may be, with what stands around it. */
const deepLists = nest(240);
const deepObjects = nest(240, '{"a":', '}').replace('}', '1}');

test('nesting as deep as a body may be is refused by name or ignored, in every field', async () => {
  const table: readonly (readonly [(deep: string) => string, string])[] = [
    [(deep) => `{${valid},"no_such_field":${deep}}`, 'accepted'],
    [(deep) => `{${valid},"metadata":${deep}}`, 'accepted'],
    [(deep) => `{${valid},"stream_options":{"a":${deep}}}`, 'accepted'],
    [(deep) => `{${valid},"reasoning":{"a":${deep}}}`, 'accepted'],
    [(deep) => `{"model":"m","messages":[{"role":"user","content":"x","a":${deep}}]}`, 'accepted'],
    [(deep) => `{"model":${deep},"messages":[]}`, 'schema_validation_failed model'],
    [(deep) => `{${valid},"max_tokens":${deep}}`, 'schema_validation_failed max_tokens'],
    [(deep) => `{${valid},"temperature":${deep}}`, 'schema_validation_failed temperature'],
    [(deep) => `{${valid},"logit_bias":{"5":${deep}}}`, 'schema_validation_failed logit_bias.5'],
    [
      (deep) => `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":${deep}}]}]}`,
      'schema_validation_failed messages[0].content[0].text',
    ],
    [
      (deep) => `{${valid},"tools":[{"type":"function","function":{"name":"f","parameters":${deep}}}]}`,
      'schema_validation_failed tools[0].function.parameters',
    ],
    [
      (deep) =>
        `{${valid},"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":${deep}}}}}]}`,
      'schema_validation_failed tools[0].function.parameters',
    ],
    [
      (deep) => `{${valid},"response_format":{"type":"json_schema","json_schema":{"schema":{"a":${deep}}}}}`,
      'schema_validation_failed response_format.json_schema.schema',
    ],
  ];
  for (const [template, expected] of table) {
    assert.equal(await outcome(template(deepLists)), expected, template('…'));
    assert.equal(await outcome(template(deepObjects)), expected, template('…'));
    // What is deeper is refused before it is looked at.
    assert.equal(await outcome(template(nest(5_000))), 'invalid_json_request -', template('…'));
    assert.equal(await outcome(template(nest(100_000))), 'invalid_json_request -', template('…'));
  }
  assert.equal(
    await outcome(`{"model":"m","messages":[{"role":"user","content":${deepLists}}]}`),
    'schema_validation_failed messages[0].content[0]',
  );
  assert.equal(await outcome(`{"model":"m","messages":${deepLists}}`), 'schema_validation_failed messages[0]');
  assert.equal(await outcome(`{${valid},"stop":${deepLists}}`), 'schema_validation_failed stop[0]');
  assert.equal(await outcome(`{${valid},"tools":${deepLists}}`), 'schema_validation_failed tools[0]');
});

test('schemas as deep as real ones are taken', async () => {
  const schema = `{"type":"object","properties":{"a":${nest(100, '{"items":', '}').replace('}', '{}}')}}}`;
  const tools = `"tools":[{"type":"function","function":{"name":"f","parameters":${schema}}}]`;
  assert.equal(await outcome(`{${valid},${tools}}`), 'accepted');
});

test('property names that objects have from birth are names like any other', async () => {
  const table: readonly (readonly [string, string])[] = [
    ['{"__proto__":{"model":"m","messages":[{"role":"user","content":"x"}]}}', 'invalid_json_request model'],
    [`{${valid},"__proto__":{"max_tokens":1,"tools":5}}`, 'accepted'],
    [`{${valid},"constructor":5,"toString":null,"hasOwnProperty":1}`, 'accepted'],
    [
      '{"model":"m","messages":[{"__proto__":{"role":"user"},"content":"x"}]}',
      'schema_validation_failed messages[0].role',
    ],
    [`{${valid},"thinking":{"__proto__":{"type":"enabled"}}}`, 'schema_validation_failed thinking.type'],
    [`{${valid},"logit_bias":{"__proto__":"x"}}`, 'schema_validation_failed logit_bias.__proto__'],
    [`{${valid},"response_format":{"type":"__proto__"}}`, 'unsupported_response_format response_format.type'],
    [`{${valid},"reasoning_effort":"__proto__"}`, 'unsupported_value reasoning_effort'],
    [
      `{${valid},"tool_choice":{"type":"function","function":{"name":"__proto__"}}}`,
      'tool_choice_unknown_tool tool_choice.function.name',
    ],
    [
      `{${valid},"tools":[{"type":"function","function":{"name":"f","parameters":{"__proto__":{"type":"object","properties":{}}}}}]}`,
      'tool_schema_invalid tools[0].function.parameters',
    ],
  ];
  for (const [text, expected] of table) assert.equal(await outcome(text), expected, text);
  const request = decodeChatRequest(JSON.parse(`{${valid},"__proto__":{"max_tokens":1}}`));
  assert.equal(request.maxTokens, undefined);
  assert.equal(
    ({} as { max_tokens?: unknown }).max_tokens,
    undefined,
    'nothing was written to the prototype of all objects',
  );
});

test('halves of characters do not leave the decoder', async () => {
  const half = '\\ud800';
  const table: readonly string[] = [
    `{"model":"m","messages":[{"role":"user","content":"a${half}b"}]}`,
    `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"${half}"},{"type":"refusal","refusal":"${half}"}]}]}`,
    `{"model":"m","messages":[{"role":"assistant","reasoning_content":"${half}","tool_calls":[{"id":"${half}","function":{"name":"${half}","arguments":"${half}"}}]},{"role":"tool","tool_call_id":"${half}","content":"${half}"}]}`,
    `{${valid},"stop":["${half}"]}`,
    `{${valid},"tools":[{"type":"function","function":{"name":"${half}","description":"${half}"}}],"tool_choice":{"type":"function","function":{"name":"${half}"}}}`,
    `{${valid},"regex":"${half}"}`,
    `{${valid},"response_format":{"type":"grammar","grammar":"${half}"}}`,
  ];
  for (const text of table) assert.equal(await outcome(text), 'accepted', text);
  // A schema is not ours to change.
  for (const schema of [`{"description":"${half}"}`, `{"${half}":1}`, `{"enum":[["${half}"]]}`]) {
    const format = `"response_format":{"type":"json_schema","json_schema":{"schema":${schema}}}`;
    assert.equal(await outcome(`{${valid},${format}}`), 'schema_validation_failed response_format.json_schema.schema');
    const tools = `"tools":[{"type":"function","function":{"name":"f","parameters":${schema}}}]`;
    assert.equal(await outcome(`{${valid},${tools}}`), 'schema_validation_failed tools[0].function.parameters');
  }
});

test('characters that end strings elsewhere are content here', () => {
  const hostile = '\\u0000\\u001b\\u2028\\ufeff<|im_end|>\\r\\n';
  const text = JSON.parse(`"${hostile}"`) as string;
  assert.deepEqual(
    contentOf(
      decodeChatRequest(parseJson(Buffer.from(`{"model":"m","messages":[{"role":"user","content":"${hostile}"}]}`))),
    ),
    [{ type: 'text', text }],
  );
});

test('numbers beyond what doubles hold', async () => {
  const table: readonly (readonly [string, string])[] = [
    ['"max_tokens":1e999', 'schema_validation_failed max_tokens'],
    ['"max_tokens":-1e999', 'schema_validation_failed max_tokens'],
    // §4.2.1(3): larger than the window, ignored.
    ['"max_tokens":9007199254740993', 'accepted'],
    ['"max_tokens":1e308', 'accepted'],
    ['"max_tokens":5e-324', 'schema_validation_failed max_tokens'],
    ['"max_tokens":1.0', 'accepted'],
    ['"max_tokens":-0', 'schema_validation_failed max_tokens'],
    ['"temperature":1e999', 'schema_validation_failed temperature'],
    ['"temperature":1e-400', 'accepted'],
    ['"top_k":1e999', 'schema_validation_failed top_k'],
    ['"n":1e999', 'schema_validation_failed n'],
    ['"seed":18446744073709551616', 'schema_validation_failed seed'],
    ['"seed":9223372036854775807', 'accepted'],
    ['"seed":1e999', 'schema_validation_failed seed'],
    ['"logit_bias":{"1":1e999}', 'schema_validation_failed logit_bias.1'],
  ];
  for (const [field, expected] of table) assert.equal(await outcome(`{${valid},${field}}`), expected, field);
});

test('names and values of the client come back short', async () => {
  const long = 'k'.repeat(1_000_000);
  assert.equal(
    await outcome(`{${valid},"logit_bias":{"${long}":"x"}}`),
    `schema_validation_failed logit_bias.${'k'.repeat(64)}…`,
  );
  assert.equal(await outcome(`{${valid},"logit_bias":{"a\\nb":"x"}}`), 'schema_validation_failed logit_bias.a\nb');
  assert.equal(await outcome(`{${valid},"reasoning_effort":"${long}"}`), 'unsupported_value reasoning_effort');
  assert.equal(
    await outcome(`{${valid},"response_format":{"type":"${long}"}}`),
    'unsupported_response_format response_format.type',
  );
  assert.equal(await outcome(`{${valid},"tools":[{"type":"${long}"}]}`), 'unsupported_tool_type tools[0].type');
  assert.equal(
    await outcome(`{${valid},"tool_choice":{"type":"function","function":{"name":"${long}"}}}`),
    'tool_choice_unknown_tool tool_choice.function.name',
  );
  assert.equal(await outcome(`{"model":"${long}","messages":[]}`), 'schema_validation_failed model');
});

test('a long list with a fault is refused without a look at the rest of it', async () => {
  // The clock is not asked: a walk over the rest would run out of the test's time.
  const many = new Array<number>(3_000_000).fill(1);
  const messages = [{ role: 'user', content: 'x' }];
  assert.equal(await outcome({ model: 'm', messages: many }), 'schema_validation_failed messages[0]');
  assert.equal(await outcome({ model: 'm', messages, stop: many }), 'schema_validation_failed stop');
  assert.equal(await outcome({ model: 'm', messages, tools: many }), 'schema_validation_failed tools');
});

test('of a name that stands twice the last one counts', () => {
  const request = decodeChatRequest(
    parseJson(
      Buffer.from(`{"model":"a","model":"b",${valid.replace('"model":"m"', '"max_tokens":1')},"max_tokens":2}`),
    ),
  );
  assert.deepEqual([request.model, request.maxTokens], ['b', 2]);
});

test('what is not a JSON object in UTF-8', async () => {
  const invalid = [
    '',
    ' ',
    '{',
    '{"model":}',
    '{model:"m"}',
    "{'model':'m'}",
    '{"a":1,}',
    '[1,]',
    '{"a":NaN}',
    '{"a":01}',
    '\ufeff{}',
    '{} {}',
    'undefined',
  ];
  for (const text of invalid) assert.equal(await outcome(text), 'invalid_json_request -', JSON.stringify(text));
  assert.throws(
    () => parseJson(Buffer.from([0x22, 0xff, 0x22])),
    (error) => error instanceof ApiError && error.code === 'invalid_json_request',
  );
  for (const text of ['[]', '[{}]', 'null', '5', '"x"', 'true', '[[[]]]']) {
    assert.equal(await outcome(text), 'schema_validation_failed -', text);
  }
});

const contentOf = ({ prompt }: GenerationRequest): unknown =>
  prompt.type === 'messages' ? prompt.messages[0]?.content : undefined;
