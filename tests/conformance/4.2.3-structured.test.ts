import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { ErrorCode } from '../../src/platform/errors.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { Relay } from './relay.ts';

/**
 * What policy decides about structured output. That answers keep to it is proved where they are generated: by the embedded
 * engine, and by a real llama-server in its suite.
 */
let relay: Relay;

const model = (id: string, more: string, ...backends: readonly string[]): string => `
  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    ${more}
    backends: [ ${backends.join(', ')} ]`;
const flag = (name: string): string => `capabilities: { chat_completions: { ${name}: false } }`;

before(async () => {
  relay = await Relay.start((url) => {
    const server = (flavor: string, more = ''): string =>
      `{ engine: openai, name: ${flavor}, flavor: ${flavor}, url: "${url}"${more} }`;
    return [
      model('able', '', server('vllm')),
      model('openai', '', server('openai')),
      model('no-schema', flag('json_schema'), server('vllm')),
      model('no-object', flag('json_object'), server('vllm')),
      model('no-grammar', flag('grammar'), server('vllm')),
      model('no-regex', flag('regex'), server('vllm')),
      model('no-refs', flag('json_schema_refs'), server('vllm')),
      model('no-both', flag('tools_with_response_format'), server('vllm')),
      // Only its second backend, which is for zero data retention, knows regular expressions.
      model('zdr-regex', flag('regex') + '\n    zdr: { regex: true }', server('openai'), server('vllm', ', zdr: true')),
    ].join('');
  });
});
after(() => relay.end());

const person = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
const format = (schema: unknown) => ({ type: 'json_schema', json_schema: { name: 'p', strict: true, schema } });
const tool = (parameters: unknown) => ({ type: 'function', function: { name: 'look', parameters } });
const look = tool({ type: 'object', properties: { at: { type: 'string' } } });
const schemaSent = (sent: Readonly<Record<string, unknown>>): unknown =>
  (sent['response_format'] as { json_schema?: { schema?: unknown } } | undefined)?.json_schema?.schema;

test('§4.2.3(1) json_object and json_schema reach the model as such', async () => {
  const object = await relay.sent({ model: 'openai', response_format: { type: 'json_object' } });
  assert.deepEqual(object['response_format'], { type: 'json_object' });
  assert.deepEqual(schemaSent(await relay.sent({ model: 'openai', response_format: format(person) })), person);
  // Or as a grammar, where the server's own converter would leave things out.
  const { guided_grammar } = await relay.sent({ model: 'able', response_format: format(person) });
  assert.match(guided_grammar as string, /^root ::= .*"\\"name\\":"/ms);
});

test('§4.2.3(1) the JSON is returned as a string in message.content', async () => {
  relay.reply = [{ content: '{"na' }, { content: 'me":"Ann"}' }];
  const { choices } = await relay.completion({ model: 'able', response_format: format(person) });
  relay.reply = [{ content: 'Hello.' }];
  assert.equal(choices[0]?.message.content, '{"name":"Ann"}');
});

test('§4.2.3(2) local references are inlined, in both response schemas and tool schemas', async () => {
  for (const place of ['$defs', 'definitions']) {
    const properties = {
      who: { $ref: `#/${place}/person` },
      also: { type: 'array', items: { $ref: `#/${place}/person` } },
    };
    const referring = { type: 'object', properties, [place]: { person } };
    const inlined = { type: 'object', properties: { who: person, also: { type: 'array', items: person } } };
    assert.deepEqual(schemaSent(await relay.sent({ model: 'openai', response_format: format(referring) })), inlined);
    const { tools } = await relay.sent({ model: 'able', tools: [tool(referring)] });
    assert.deepEqual((tools as { function: { parameters: unknown } }[])[0]?.function.parameters, inlined);
  }
});

const faulty: readonly (readonly [string, unknown])[] = [
  ['remote', { $ref: 'https://example.com/schema.json' }],
  ['unresolved', { $ref: '#/$defs/nobody' }],
  ['recursive', { $ref: '#' }],
  ['oversized', undefined],
];
/** Each level holds the one below ten times. */
const large = Object.fromEntries(
  Array.from({ length: 8 }, (_, level) => [
    `l${level}`,
    level === 0 ? person : { anyOf: Array.from({ length: 10 }, () => ({ $ref: `#/$defs/l${level - 1}` })) },
  ]),
);
for (const [what, reference] of faulty) {
  test(`§4.2.3(2) ${what} references return 400`, async () => {
    const schema = {
      type: 'object',
      properties: { a: reference ?? { $ref: '#/$defs/l7' } },
      ...(reference === undefined ? { $defs: large } : {}),
    };
    assertEnvelope(
      await relay.send({ model: 'able', response_format: format(schema) }),
      'json_schema_refs_unsupported',
      { param: 'response_format.json_schema.schema' },
    );
    assertEnvelope(
      await relay.send({
        model: 'able',
        tools: [look, { type: 'function', function: { name: 'b', parameters: schema } }],
      }),
      'json_schema_refs_unsupported',
      { param: 'tools[1].function.parameters' },
    );
  });
}

test('§2.3 json_schema_refs false: no reference is taken', async () => {
  const schema = { type: 'object', properties: { a: { $ref: '#/$defs/p' } }, $defs: { p: person } };
  assertEnvelope(
    await relay.send({ model: 'no-refs', response_format: format(schema) }),
    'json_schema_refs_unsupported',
    {
      param: 'response_format.json_schema.schema',
    },
  );
  await relay.sent({ model: 'no-refs', response_format: format(person) });
});

test('§4.2.3(3) keywords that cannot be enforced are dropped from the constraint', async () => {
  const kept = { type: 'object', properties: { format: { type: 'integer', minimum: 1 }, not: { enum: [{ not: 1 }] } } };
  const schema = {
    ...kept,
    properties: {
      format: { type: 'integer', minimum: 1, multipleOf: 5, not: { const: 10 } },
      not: { enum: [{ not: 1 }], format: 'email' },
    },
    if: { properties: {} },
    then: { required: ['format'] },
    else: {},
    uniqueItems: true,
  };
  assert.deepEqual(schemaSent(await relay.sent({ model: 'openai', response_format: format(schema) })), kept);
});

test('§4.2.3(4) tools and response_format with auto: the schema constrains the reply instead of calling a tool', async () => {
  for (const choice of [{}, { tool_choice: 'auto' }, { tool_choice: null }]) {
    const sent = await relay.sent({ model: 'openai', tools: [look], response_format: format(person), ...choice });
    assert.deepEqual(schemaSent(sent), person);
    assert.deepEqual([sent['tools'], sent['tool_choice']], [undefined, undefined]);
  }
});

test('§4.2.3(4) with required or a named function, response_format is ignored', async () => {
  const named = { type: 'function', function: { name: 'look' } };
  // It is not even looked at closely.
  const broken = format({ $ref: 'https://example.com/remote' });
  for (const choice of ['required', named]) {
    for (const response_format of [format(person), broken]) {
      const sent = await relay.sent({ model: 'able', tools: [look], response_format, tool_choice: choice });
      assert.deepEqual([sent['response_format'], sent['tool_choice']], [undefined, choice]);
    }
  }
});

test('contracts §0.14: tool_choice none is obeyed, because no tool is offered', async () => {
  const sent = await relay.sent({ model: 'able', tools: [look], tool_choice: 'none' });
  assert.deepEqual([sent['tools'], sent['tool_choice']], [undefined, undefined]);
});

const refusals: readonly (readonly [string, string, Record<string, unknown>, ErrorCode, string])[] = [
  [
    'no-schema',
    'json_schema',
    { response_format: format(person) },
    'unsupported_response_format',
    'response_format.type',
  ],
  [
    'no-object',
    'json_object',
    { response_format: { type: 'json_object' } },
    'unsupported_response_format',
    'response_format.type',
  ],
  [
    'no-grammar',
    'grammar',
    { response_format: { type: 'grammar', grammar: 'root ::= "a"' } },
    'unsupported_response_format',
    'response_format.type',
  ],
  [
    'openai',
    'grammar',
    { response_format: { type: 'grammar', grammar: 'root ::= "a"' } },
    'unsupported_response_format',
    'response_format.type',
  ],
  ['no-regex', 'regex', { regex: 'a+' }, 'unsupported_regex', 'regex'],
  ['openai', 'regex', { regex: 'a+' }, 'unsupported_regex', 'regex'],
  [
    'no-both',
    'tools with response_format',
    { tools: [look], response_format: format(person) },
    'unsupported_feature',
    'response_format',
  ],
];
for (const [id, what, fields, code, param] of refusals) {
  test(`§4.2.3(5) ${what} is rejected, not ignored, on the model ${id}`, async () => {
    assertEnvelope(await relay.send({ model: id, ...fields }), code, { param });
  });
}

test('§4.2.3(5) a model can support regex only when Service-ZDR: required is sent', async () => {
  assertEnvelope(await relay.send({ model: 'zdr-regex', regex: 'a+' }), 'unsupported_regex', { param: 'regex' });
  const sent = await relay.sent({ model: 'zdr-regex', regex: 'a+' }, [['Service-ZDR', 'required']]);
  assert.equal(sent['guided_grammar'], 'root ::= "a"+\n');
});

test('an answer has one form at most', async () => {
  const both = { regex: 'a+', response_format: { type: 'json_object' } };
  assertEnvelope(await relay.send({ model: 'able', ...both }), 'unsupported_parameter', { param: 'regex' });
  await relay.sent({ model: 'able', regex: 'a+', response_format: { type: 'text' } });
});

const brokenForms: readonly (readonly [string, Record<string, unknown>, string])[] = [
  ['a regex', { regex: '(a' }, 'regex'],
  ['a regex that no grammar can say', { regex: '(a)\\1' }, 'regex'],
  ['a grammar', { response_format: { type: 'grammar', grammar: 'root ::= (' } }, 'response_format.grammar'],
  [
    'a grammar without its rules',
    { response_format: { type: 'grammar', grammar: 'root ::= nothing' } },
    'response_format.grammar',
  ],
];
for (const [what, fields, param] of brokenForms) {
  test(`contracts decision 13: ${what} that is broken is 400 unsupported_value, before anybody is asked`, async () => {
    relay.asked();
    assertEnvelope(await relay.send({ model: 'able', ...fields }), 'unsupported_value', { param });
    assert.deepEqual(relay.asked(), []);
  });
}

test('contracts decision 15: a keyword that is neither dropped nor enforced is refused', async () => {
  const schema = { type: 'array', contains: { type: 'string' } };
  relay.asked();
  const answer = await relay.send({ model: 'able', response_format: format(schema) });
  if (answer.status === 400) {
    assertEnvelope(answer, 'unsupported_value', { param: 'response_format.json_schema.schema' });
    assert.deepEqual(relay.asked(), []);
  } else assert.deepEqual(schemaSent(relay.asked()[0] ?? {}), schema);
});

test('contracts decision 10: tools, then references, then features, then the form itself, then lengths', async () => {
  const wrong = {
    model: 'no-schema',
    messages: [{ role: 'user', content: 'x'.repeat(40_000) }],
    max_tokens: 8000,
    response_format: format({ type: 'object', properties: { a: { $ref: '#/$defs/gone' } } }),
    tools: [tool('no schema')],
  };
  relay.promptTokens = 9000;
  const order: readonly (readonly [Record<string, unknown>, ErrorCode])[] = [
    [{}, 'tool_schema_invalid'],
    [{ tools: [look] }, 'json_schema_refs_unsupported'],
    [{ tools: [look], response_format: format(person) }, 'unsupported_response_format'],
    [{ model: 'able', tools: [look], response_format: format({ type: 'nonsense' }) }, 'unsupported_value'],
    [{ model: 'able', tools: [look], response_format: format(person) }, 'context_length_exceeded'],
  ];
  try {
    for (const [repaired, code] of order) {
      const answer = await relay.send({ ...wrong, ...repaired });
      assert.equal((answer.json()['error'] as { code?: string } | undefined)?.code, code, answer.body);
    }
  } finally {
    relay.promptTokens = 10;
  }
});

test('§4.2.2 tool_choice required without tools is 400, as at other servers of this wire', async () => {
  for (const tools of [{}, { tools: [] }]) {
    assertEnvelope(await relay.send({ model: 'able', tool_choice: 'required', ...tools }), 'unsupported_value', {
      param: 'tool_choice',
    });
  }
});
