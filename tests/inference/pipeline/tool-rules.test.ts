import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { checkTools } from '../../../src/inference/pipeline/tool-rules.ts';
import { chatRequest } from './models.ts';

const f = (name: string, parameters?: unknown) => ({ type: 'function', function: { name, parameters } });
const call = (...ids: readonly string[]) => ({
  role: 'assistant',
  tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } })),
});
const result = (id?: string | null) => ({ role: 'tool', tool_call_id: id, content: 'x' });
const said = { role: 'user', content: 'x' };

const tools: readonly (readonly [string, Record<string, unknown>, string])[] = [
  ['none', {}, 'accepted'],
  ['no parameters', { tools: [f('a')] }, 'accepted'],
  ['null parameters', { tools: [f('a', null)] }, 'accepted'],
  ['an object with properties', { tools: [f('a', { type: 'object', properties: {} })] }, 'accepted'],
  [
    'more keywords',
    { tools: [f('a', { $schema: 'x', type: 'object', properties: { a: {} }, required: ['a'] })] },
    'accepted',
  ],
  ['an object alone (decision 12)', { tools: [f('a', { type: 'object' })] }, 'accepted'],
  [
    'an object without properties',
    { tools: [f('a', { type: 'object', required: [] })] },
    'tool_schema_invalid tools[0].function.parameters',
  ],
  ['no type', { tools: [f('a', { properties: {} })] }, 'tool_schema_invalid tools[0].function.parameters'],
  ['an empty schema', { tools: [f('a', {})] }, 'tool_schema_invalid tools[0].function.parameters'],
  ['another type', { tools: [f('a', { type: 'string' })] }, 'tool_schema_invalid tools[0].function.parameters'],
  [
    'several types',
    { tools: [f('a', { type: ['object'], properties: {} })] },
    'tool_schema_invalid tools[0].function.parameters',
  ],
  [
    'properties as a list',
    { tools: [f('a', { type: 'object', properties: [] })] },
    'tool_schema_invalid tools[0].function.parameters',
  ],
  [
    'properties null',
    { tools: [f('a', { type: 'object', properties: null })] },
    'tool_schema_invalid tools[0].function.parameters',
  ],
  ...[true, 5, 'x', []].map((schema): readonly [string, Record<string, unknown>, string] => [
    `a schema that is ${JSON.stringify(schema)}`,
    { tools: [f('ok'), f('a', schema)] },
    'tool_schema_invalid tools[1].function.parameters',
  ]),
  ['two names alike', { tools: [f('a'), f('b'), f('a')] }, 'duplicate_tool_name tools[2].function.name'],
  ['names differ in case', { tools: [f('a'), f('A')] }, 'accepted'],
  ['another type of tool', { tools: [f('a'), { type: 'web_search' }] }, 'unsupported_tool_type tools[1].type'],
  [
    'two tools of another type',
    { tools: [{ type: 'custom' }, { type: 'custom' }] },
    'unsupported_tool_type tools[0].type',
  ],
  ['a choice among them', { tools: [f('a')], tool_choice: { type: 'function', function: { name: 'a' } } }, 'accepted'],
  [
    'a choice that is not there',
    { tools: [f('a')], tool_choice: { type: 'function', function: { name: 'b' } } },
    'tool_choice_unknown_tool tool_choice.function.name',
  ],
  [
    'a choice without tools',
    { tool_choice: { type: 'function', function: { name: 'a' } } },
    'tool_choice_unknown_tool tool_choice.function.name',
  ],
  ['auto without tools', { tool_choice: 'auto' }, 'accepted'],
];

const conversations: readonly (readonly [string, readonly unknown[], string])[] = [
  ['a round', [said, call('c1'), result('c1')], 'accepted'],
  ['several results, in any order', [said, call('c1', 'c2'), result('c2'), result('c1')], 'accepted'],
  ['a call of an earlier turn', [said, call('c1'), result('c1'), said, call('c2'), result('c2')], 'accepted'],
  ['a result twice', [said, call('c1'), result('c1'), result('c1')], 'accepted'],
  ['a call that was not answered', [said, call('c1'), said], 'accepted'],
  ['no id', [said, call('c1'), result()], 'missing_tool_call_id messages[2].tool_call_id'],
  ['null as id', [said, call('c1'), result(null)], 'missing_tool_call_id messages[2].tool_call_id'],
  ['an empty id', [said, call('c1'), result('')], 'missing_tool_call_id messages[2].tool_call_id'],
  ['an id that nobody issued', [said, call('c1'), result('c2')], 'orphan_tool_message messages[2].tool_call_id'],
  ['a result before its call', [said, result('c1'), call('c1')], 'orphan_tool_message messages[1].tool_call_id'],
  ['a result without any call', [result('c1')], 'orphan_tool_message messages[0].tool_call_id'],
  [
    'calls of a message that is not the assistant’s',
    [{ ...call('c1'), role: 'user' }, result('c1')],
    'orphan_tool_message messages[1].tool_call_id',
  ],
  ['the first fault is told', [result('c1'), result()], 'orphan_tool_message messages[0].tool_call_id'],
];

for (const [name, fields, expected] of tools) test(`tools: ${name}`, () => assert.equal(outcome(fields), expected));
for (const [name, messages, expected] of conversations) {
  test(`conversation: ${name}`, () => assert.equal(outcome({ messages }), expected));
}

test('tools are judged before messages', () => {
  assert.equal(
    outcome({ tools: [f('a'), f('a')], messages: [result('c1')] }),
    'duplicate_tool_name tools[1].function.name',
  );
});

function outcome(fields: Record<string, unknown>): string {
  try {
    checkTools(chatRequest(fields));
    return 'accepted';
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(error.status, 400);
    return `${error.code} ${error.param}`;
  }
}
