import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { decodeMessagesRequest } from '../../../src/inference/dialects/messages/request.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import type { GenerationRequest, Message } from '../../../src/generation/request.ts';
import { checkTools } from '../../../src/inference/pipeline/tool-rules.ts';

/** Contracts §1.2, the table of the request: what becomes of each field and of each kind of block. */
const decode = (fields: object): GenerationRequest =>
  decodeMessagesRequest({ model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'x' }], ...fields });

function conversation(messages: readonly unknown[], fields: object = {}): readonly Message[] {
  const { prompt } = decode({ messages, ...fields });
  assert.equal(prompt.type, 'messages');
  return prompt.messages;
}

const user = (...content: readonly unknown[]) => ({ role: 'user', content });
const assistant = (...content: readonly unknown[]) => ({ role: 'assistant', content });
const text = (value: string) => ({ type: 'text', text: value });
const call = (id: string, input: unknown = { a: 1 }) => ({ type: 'tool_use', id, name: 'f', input });
const result = (id: string, content: unknown, more: object = {}) => ({
  type: 'tool_result',
  tool_use_id: id,
  content,
  ...more,
});
const png = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } };
const cached = { cache_control: { type: 'ephemeral' } };
const said = (content: readonly unknown[], more: object = {}) => ({
  role: 'assistant',
  content,
  reasoning: [],
  toolCalls: [],
  ...more,
});

function refused(fields: object): string {
  try {
    checkTools(decode(fields));
  } catch (error) {
    if (error instanceof ApiError) return `${error.code} ${error.param ?? '-'}`;
    throw error;
  }
  return 'accepted';
}

describe('turns', () => {
  test('of one role in a row are one', () => {
    assert.deepEqual(
      conversation([
        user(text('a')),
        { role: 'user', content: 'b' },
        assistant(text('c')),
        assistant(call('1'), text('d')),
        user(result('1', 'e')),
        user(text('f')),
      ]),
      [
        { role: 'user', content: [text('a'), text('b')] },
        said([text('c'), text('d')], { toolCalls: [{ id: '1', name: 'f', arguments: '{"a":1}' }] }),
        { role: 'tool', toolCallId: '1', content: [text('e')] },
        { role: 'user', content: [text('f')] },
      ],
    );
  });

  test('of the system keep their place, and the block about the bill is dropped wherever it stands', () => {
    const bill = text('x-anthropic-billing-header: cc_version=1; cc_entrypoint=sdk-cli;');
    assert.deepEqual(
      conversation(
        [user(text('a')), { role: 'system', content: [bill, { ...text('b'), ...cached }] }, user(text('c'))],
        { system: [bill, text('d'), text('e')] },
      ),
      [
        { role: 'system', content: [text('d'), text('e')] },
        { role: 'user', content: [text('a')] },
        { role: 'system', content: [text('b')] },
        { role: 'user', content: [text('c')] },
      ],
    );
    assert.deepEqual(conversation([user(text('a')), { role: 'system', content: [bill] }], { system: [bill] }), [
      { role: 'user', content: [text('a')] },
    ]);
    assert.deepEqual(conversation([{ role: 'user', content: 'a' }], { system: 'Be brief.' })[0], {
      role: 'system',
      content: [text('Be brief.')],
    });
  });

  test('of the assistant at the end are a beginning, unless they call or say nothing', () => {
    assert.deepEqual(
      conversation([user(text('a')), assistant({ type: 'thinking', thinking: 't', signature: 's' }, text('b'))]).at(-1),
      said([text('b')], { isBeginning: true }),
    );
    assert.deepEqual(
      conversation([user(text('a')), assistant(call('1'))]).at(-1),
      said([], { toolCalls: [{ id: '1', name: 'f', arguments: '{"a":1}' }] }),
    );
    assert.deepEqual(conversation([user(text('a')), assistant(text(''))]), [{ role: 'user', content: [text('a')] }]);
  });
});

describe('blocks of a user', () => {
  const content = (...blocks: readonly unknown[]) => conversation([user(...blocks)])[0]?.content;

  test('images are data URIs, addresses or files', () => {
    assert.deepEqual(
      content(
        { ...png, ...cached },
        { type: 'image', source: { type: 'url', url: 'https://example.org/a.png' } },
        { type: 'image', source: { type: 'file', file_id: 'file_1' } },
      ),
      [
        {
          type: 'image-url',
          url: 'data:image/png;base64,iVBORw0KGgo=',
          at: 'messages[0].content[0].source.data',
        },
        { type: 'image-url', url: 'https://example.org/a.png', at: 'messages[0].content[1].source.url' },
        {
          type: 'file',
          fileId: 'file_1',
          data: undefined,
          filename: undefined,
          at: 'messages[0].content[2].source.file_id',
        },
      ],
    );
  });

  test('documents are files, or their text with their title and context', () => {
    const document = (source: object, more: object = {}) => ({ type: 'document', source, citations: {}, ...more });
    assert.deepEqual(
      content(
        document({ type: 'base64', media_type: 'application/pdf', data: 'JVBE' }, { title: 'a.pdf', context: 'Old.' }),
        document({ type: 'file', file_id: 'file_2' }, { title: 'b' }),
        document({ type: 'text', media_type: 'text/plain', data: 'plain' }, { title: 'c', context: 'New.' }),
        document({ type: 'content', content: 'words' }),
        document({ type: 'content', content: [text('piece'), png] }),
      ),
      [
        text('Old.'),
        {
          type: 'file',
          fileId: undefined,
          data: 'data:application/pdf;base64,JVBE',
          filename: 'a.pdf',
          at: 'messages[0].content[0].source.data',
        },
        { type: 'file', fileId: 'file_2', data: undefined, filename: 'b', at: 'messages[0].content[1].source.file_id' },
        text('Document: c\nNew.'),
        text('plain'),
        text('words'),
        text('piece'),
        {
          type: 'image-url',
          url: 'data:image/png;base64,iVBORw0KGgo=',
          at: 'messages[0].content[4].source.content[1].source.data',
        },
      ],
    );
  });

  test('search results are text', () => {
    assert.deepEqual(
      content({
        type: 'search_result',
        source: 'https://example.org',
        title: 'A page',
        content: [text('one'), text('two')],
        citations: { enabled: true },
      }),
      [text('A page\nhttps://example.org\n\none\n\ntwo')],
    );
  });
});

describe('results', () => {
  const after = (...blocks: readonly unknown[]) =>
    conversation([user(text('a')), assistant(call('1'), call('2')), user(...blocks)]).slice(2);

  test('stand before everything else of their turn, with their images', () => {
    const image = (at: string) => ({ type: 'image-url', url: 'data:image/png;base64,iVBORw0KGgo=', at });
    assert.deepEqual(
      after(text('look'), result('2', [text('two'), png], cached), result('1', [png]), { ...png }, text('there')),
      [
        {
          role: 'tool',
          toolCallId: '2',
          content: [text('two'), image('messages[2].content[1].content[1].source.data')],
        },
        { role: 'tool', toolCallId: '1', content: [image('messages[2].content[2].content[0].source.data')] },
        { role: 'user', content: [text('look'), image('messages[2].content[3].source.data'), text('there')] },
      ],
    );
  });

  test('may be documents, search results, references to tools, errors, or nothing', () => {
    assert.deepEqual(
      after(
        result('1', [
          { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBE' } },
          { type: 'search_result', source: 's', title: 't', content: [text('u')] },
          { type: 'tool_reference', tool_name: 'deep' },
        ]),
        result('2', 'no such file', { is_error: true }),
      ),
      [
        {
          role: 'tool',
          toolCallId: '1',
          content: [
            {
              type: 'file',
              fileId: undefined,
              data: 'data:application/pdf;base64,JVBE',
              filename: undefined,
              at: 'messages[2].content[0].content[0].source.data',
            },
            text('t\ns\n\nu'),
            text('The tool deep is now available.'),
          ],
        },
        { role: 'tool', toolCallId: '2', content: [text('Error:'), text('no such file')] },
      ],
    );
    assert.deepEqual(after({ type: 'tool_result', tool_use_id: '1' }, result('2', null)), [
      { role: 'tool', toolCallId: '1', content: [] },
      { role: 'tool', toolCallId: '2', content: [] },
    ]);
  });

  test('need a call before them, wherever the system speaks in between', () => {
    const system = { role: 'system', content: 's' };
    assert.equal(
      refused({ messages: [user(text('a')), assistant(call('1')), system, user(result('1', 'x'))] }),
      'accepted',
    );
    assert.equal(
      refused({ system: 's', messages: [user(text('a')), assistant(call('1')), user(text('b'), result('2', 'x'))] }),
      'orphan_tool_message messages[2].content[1].tool_use_id',
    );
    assert.equal(
      refused({ messages: [user(text('a')), assistant(call('1')), user(result('', 'x'))] }),
      'missing_tool_call_id messages[2].content[0].tool_use_id',
    );
  });
});

describe('blocks of an assistant', () => {
  test('thinking keeps its signature and where it stood; without one it is from elsewhere', () => {
    assert.deepEqual(
      conversation([
        user(text('a')),
        assistant(
          { type: 'thinking', thinking: 'hm', signature: 's1_x' },
          { type: 'redacted_thinking', data: 'e1_y' },
          { type: 'thinking', thinking: 'so', signature: '' },
          { type: 'thinking', thinking: 'well' },
          text('b'),
        ),
        user(text('c')),
      ])[1],
      said([text('b')], {
        reasoning: [
          { text: 'hm', signature: { value: 's1_x', at: 'messages[1].content[0].signature' } },
          { text: '', signature: { value: 'e1_y', at: 'messages[1].content[1].data' } },
          { text: 'so', signature: undefined },
          { text: 'well', signature: undefined },
        ],
      }),
    );
  });

  test('a call without input has an empty object', () => {
    const [, turn] = conversation([
      user(text('a')),
      assistant({ type: 'tool_use', id: 'i', name: 'n' }),
      user(text('b')),
    ]);
    assert.deepEqual(turn, said([], { toolCalls: [{ id: 'i', name: 'n', arguments: '{}' }] }));
  });
});

describe('tools', () => {
  const f = { name: 'f', input_schema: { type: 'object', properties: {} } };
  const server = { type: 'web_search_20250305', name: 'web_search', max_uses: 8 };

  test('of the client are offered, all of them at once, those of a server are not', () => {
    const $schema = 'https://json-schema.org/draft/2020-12/schema';
    const { tools, at } = decode({
      tools: [
        server,
        { type: 'mcp_toolset', mcp_server_name: 's' },
        { ...f, description: 'd', defer_loading: true, strict: true, eager_input_streaming: true, ...cached },
        { type: 'custom', name: 'g', input_schema: { type: 'object', $schema, additionalProperties: false } },
      ],
    });
    assert.deepEqual(tools, [
      { type: 'function', name: 'f', description: 'd', parameters: f.input_schema },
      {
        type: 'function',
        name: 'g',
        description: undefined,
        parameters: { type: 'object', $schema, additionalProperties: false, properties: {} },
      },
    ]);
    assert.equal(at.tool(1, 'parameters'), 'tools[3].input_schema');
  });

  test('choice', () => {
    const choice = (tool_choice: object, tools: readonly unknown[] = [f]) => {
      const { toolChoice, parallelToolCalls } = decode({ tools, tool_choice });
      return [toolChoice, parallelToolCalls];
    };
    assert.deepEqual(choice({ type: 'auto' }), [undefined, undefined]);
    assert.deepEqual(choice({ type: 'auto', disable_parallel_tool_use: true }), [undefined, false]);
    assert.deepEqual(choice({ type: 'any', disable_parallel_tool_use: false }), [{ type: 'required' }, undefined]);
    assert.deepEqual(choice({ type: 'tool', name: 'f', disable_parallel_tool_use: true }), [
      { type: 'function', name: 'f' },
      false,
    ]);
    assert.deepEqual(choice({ type: 'none' }), [{ type: 'none' }, undefined]);
    // Only tools that are not offered could be meant.
    assert.deepEqual(choice({ type: 'any' }, [server]), [undefined, undefined]);
    assert.deepEqual(choice({ type: 'tool', name: 'web_search' }, [server, f]), [undefined, undefined]);
  });

  test('need a name and a schema', () => {
    assert.equal(refused({ tools: [{ input_schema: { type: 'object' } }] }), 'schema_validation_failed tools[0].name');
    assert.equal(refused({ tools: [{ name: 'f' }] }), 'schema_validation_failed tools[0].input_schema');
    assert.equal(refused({ tool_choice: { type: 'tool' } }), 'schema_validation_failed tool_choice.name');
    assert.equal(refused({ tool_choice: { type: 'any' } }), 'unsupported_value tool_choice');
  });
});

describe('how much is thought', () => {
  const table: readonly (readonly [object, unknown, boolean])[] = [
    [{}, undefined, true],
    [{ thinking: { type: 'enabled', budget_tokens: 1024 } }, { type: 'switch', on: true, at: 'thinking.type' }, true],
    [{ thinking: { type: 'adaptive' } }, { type: 'switch', on: true, at: 'thinking.type' }, true],
    [{ thinking: { type: 'between_tools' } }, { type: 'switch', on: true, at: 'thinking.type' }, true],
    [{ thinking: { type: 'disabled' } }, { type: 'switch', on: false, at: 'thinking.type' }, false],
    [
      { thinking: { type: 'adaptive' }, output_config: { effort: 'xhigh' } },
      { type: 'tier', value: 'xhigh', at: 'output_config.effort' },
      true,
    ],
    [{ output_config: { effort: 'low' } }, { type: 'tier', value: 'low', at: 'output_config.effort' }, true],
    [
      { thinking: { type: 'disabled' }, output_config: { effort: 'high' } },
      { type: 'switch', on: false, at: 'thinking.type' },
      false,
    ],
    [{ thinking: null, output_config: { effort: null } }, undefined, true],
  ];
  for (const [fields, effort, preserves] of table) {
    test(JSON.stringify(fields), () => {
      const request = decode(fields);
      assert.deepEqual([request.effort, request.preserveThinking], [effort, preserves]);
    });
  }
});

describe('the form of the answer', () => {
  const schema = { type: 'object', properties: { a: { type: 'string' } } };

  test('is output_config.format, or output_format as it was called first', () => {
    for (const [fields, path] of [
      [{ output_config: { format: { type: 'json_schema', schema } } }, 'output_config.format'],
      [{ output_format: { type: 'json_schema', schema } }, 'output_format'],
      [
        {
          output_config: { format: { type: 'json_schema', schema } },
          output_format: { type: 'json_schema', schema: {} },
        },
        'output_config.format',
      ],
    ] as const) {
      const { constraint, at } = decode(fields);
      assert.deepEqual(constraint, { type: 'json-schema', schema, name: undefined });
      assert.deepEqual([at.constraint, at.constraintText], [path, `${path}.schema`]);
    }
    assert.equal(decode({ output_config: { format: null }, output_format: null }).constraint, undefined);
    assert.equal(
      refused({ output_config: { format: { type: 'json_schema' } } }),
      'schema_validation_failed output_config.format.schema',
    );
  });
});

test('fields without an effect are accepted', () => {
  const plain = decode({});
  const full = decode({
    metadata: { user_id: 'u' },
    service_tier: 'auto',
    speed: 'fast',
    inference_geo: 'eu',
    container: { id: 'c' },
    context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
    diagnostics: { previous_message_id: null },
    cache_control: { type: 'ephemeral' },
    thread: null,
    mcp_servers: [],
    fallbacks: 'none',
  });
  const { at: _, ...asked } = full;
  const { at: __, ...expected } = plain;
  assert.deepEqual(asked, expected);
});

test('sampling and stop sequences', () => {
  const { sampling, stop, maxTokens } = decode({
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    stop_sequences: ['a', '', 'b'],
    max_tokens: 32_000,
  });
  assert.deepEqual(
    [sampling.temperature, sampling.topP, sampling.topK, stop, maxTokens],
    [0.5, 0.9, 40, ['a', 'b'], 32_000],
  );
});

test('a block in a turn where it cannot stand is refused by its path', () => {
  const table: readonly (readonly [unknown, string])[] = [
    [user(call('1')), 'unsupported_value messages[0].content[0].type'],
    [user({ type: 'thinking', thinking: 'x', signature: 'y' }), 'unsupported_value messages[0].content[0].type'],
    [assistant(png), 'unsupported_value messages[0].content[0].type'],
    [assistant(result('1', 'x')), 'unsupported_value messages[0].content[0].type'],
    [{ role: 'system', content: [png] }, 'unsupported_value messages[0].content[0].type'],
    [user({ type: 'text' }), 'schema_validation_failed messages[0].content[0].text'],
    [user({ type: 'image' }), 'schema_validation_failed messages[0].content[0].source'],
    [user({ type: 'image', source: 'x' }), 'schema_validation_failed messages[0].content[0].source'],
    [user({ type: 'image', source: { type: 'tape' } }), 'unsupported_value messages[0].content[0].source.type'],
    [
      user({ type: 'image', source: { type: 'base64', data: 'x' } }),
      'schema_validation_failed messages[0].content[0].source.media_type',
    ],
    [
      user({ type: 'document', source: { type: 'file' } }),
      'schema_validation_failed messages[0].content[0].source.file_id',
    ],
    [
      assistant({ type: 'tool_use', id: 'i', name: 'n', input: [] }),
      'schema_validation_failed messages[0].content[0].input',
    ],
    [assistant({ type: 'tool_use', name: 'n', input: {} }), 'schema_validation_failed messages[0].content[0].id'],
    [assistant({ type: 'redacted_thinking' }), 'schema_validation_failed messages[0].content[0].data'],
    [user({ type: 'search_result', content: 'x' }), 'schema_validation_failed messages[0].content[0].content'],
    [user(5), 'schema_validation_failed messages[0].content[0]'],
  ];
  for (const [message, expected] of table)
    assert.equal(refused({ messages: [message] }), expected, JSON.stringify(message));
});
