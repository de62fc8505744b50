import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { guarded } from '../../../../src/inference/engines/openai/special-tokens.ts';
import type { EngineRequest, Message, Part } from '../../../../src/generation/request.ts';
import { engineRequest } from '../contract.ts';

/** Reliability §3.4: a client's text is never a special token. */
const texts = ['[INST]', '</think>', '<s>'];
const forged = ['<|im_end|>', '<|start_header_id|>', '<｜User｜>', '[INST]', '</think>'];
const spelled = /<\|[^|<>\s]{1,64}\|>|<｜[^｜<>\s]{1,64}｜>|\[INST\]|<\/think>|<s>/u;

const text = (content: string): Part => ({ type: 'text', text: content });
const says = (...messages: readonly Message[]): Partial<EngineRequest> => ({ prompt: { type: 'messages', messages } });
const guard = (mode: 'pass' | 'refuse' | 'break', more: Partial<EngineRequest>): EngineRequest =>
  guarded(engineRequest('hi', more), { mode, texts });

/** Every place of a request where a client's text goes to a template. */
const places: readonly (readonly [string, (token: string) => Partial<EngineRequest>])[] = [
  ['messages[0].content', (token) => says({ role: 'system', content: [text(`a${token}b`)] })],
  ['messages[0].content', (token) => says({ role: 'user', content: [text('a'), text(token)] })],
  ['messages[0].content', (token) => says({ role: 'tool', toolCallId: 'call_1', content: [text(token)] })],
  ['messages[0].content', (token) => says({ role: 'assistant', content: [text(token)], reasoning: [], toolCalls: [] })],
  [
    'messages[0].reasoning_content',
    (token) =>
      says({ role: 'assistant', content: [], reasoning: [{ text: token, signature: undefined }], toolCalls: [] }),
  ],
  [
    'messages[0].tool_calls[0].function.arguments',
    (token) =>
      says({
        role: 'assistant',
        content: [],
        reasoning: [],
        toolCalls: [{ id: 'c', name: 'f', arguments: JSON.stringify({ a: token }) }],
      }),
  ],
  [
    'tools[0].function.description',
    (token) => ({ tools: [{ type: 'function', name: 'f', description: token, parameters: undefined }] }),
  ],
  [
    'tools[0].function.parameters',
    (token) => ({
      tools: [
        {
          type: 'function',
          name: 'f',
          description: undefined,
          parameters: { type: 'object', properties: { a: { type: 'string', description: token } } },
        },
      ],
    }),
  ],
  ['prompt', (token) => ({ prompt: { type: 'texts', prompts: [token] } })],
];

/** Names: they must come back as they are, so nothing can be put into them. */
const names: readonly (readonly [string, (token: string) => Partial<EngineRequest>])[] = [
  ['messages[0].tool_call_id', (token) => says({ role: 'tool', toolCallId: token, content: [] })],
  [
    'messages[0].tool_calls[0].function.name',
    (token) =>
      says({ role: 'assistant', content: [], reasoning: [], toolCalls: [{ id: 'c', name: token, arguments: '{}' }] }),
  ],
  [
    'tools[0].function.name',
    (token) => ({ tools: [{ type: 'function', name: token, description: undefined, parameters: undefined }] }),
  ],
  [
    'tools[0].function.parameters',
    (token) => ({
      tools: [
        {
          type: 'function',
          name: 'f',
          description: undefined,
          parameters: { type: 'object', properties: { [token]: {} } },
        },
      ],
    }),
  ],
];

for (const [param, place] of places) {
  test(`${param}: passed, refused or broken`, () => {
    for (const token of forged) {
      const more = place(token);
      assert.deepEqual(guard('pass', more), engineRequest('hi', more));
      assert.throws(() => guard('refuse', more), { code: 'unsupported_value', status: 400, param });
      const broken = JSON.stringify(guard('break', more));
      assert.doesNotMatch(broken, spelled);
      // Nothing of the text is lost.
      assert.ok(broken.replaceAll('\u200b', '').includes(token.replaceAll('"', '')), broken);
    }
    for (const mode of ['refuse', 'break'] as const) {
      const harmless = guard(mode, place('a < b | c > d, <b>, <|, |>'));
      assert.ok(!JSON.stringify(harmless).includes('\u200b'));
    }
  });
}

for (const [param, place] of names) {
  test(`${param}: a name is refused in both modes`, () => {
    for (const token of forged) {
      for (const mode of ['refuse', 'break'] as const)
        assert.throws(() => guard(mode, place(token)), { code: 'unsupported_value', param });
    }
  });
}

test('two halves beside each other are no token', () => {
  const content: readonly Part[] = [
    text('<|im_'),
    text('end|>'),
    { type: 'image-url', url: 'data:,', at: '' },
    text('<|im_end|>'),
  ];
  const { prompt } = guard('break', says({ role: 'user', content }));
  assert.equal(prompt.type, 'messages');
  const parts = prompt.type === 'messages' ? (prompt.messages[0]?.content ?? []) : [];
  assert.deepEqual(
    parts.map(({ type }) => type),
    ['text', 'image-url', 'text'],
  );
});

test('forged tokens that are nested, doubled or cut never come through', () => {
  const piece = fc.constantFrom(
    ...forged,
    '<|',
    '|>',
    '<',
    '|',
    '>',
    'im_end',
    '<｜',
    '｜>',
    '[INS',
    'T]',
    '</thi',
    'nk>',
    '\u200b',
    ' ',
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
      const content = pieces.join('');
      const { prompt } = guard('break', { prompt: { type: 'texts', prompts: [content] } });
      const [said = ''] = prompt.type === 'texts' ? prompt.prompts : [];
      assert.doesNotMatch(said, spelled);
      assert.equal(said.replaceAll('\u200b', ''), content.replaceAll('\u200b', ''));
    }),
  );
});
