import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { ErrorCode } from '../../../src/platform/errors.ts';
import { InnerService, noFeatures, scriptedModel } from '../../support/service.ts';
import { askChat, eventsOf, plainBody } from './chat.ts';
import { assertEnvelope } from './envelope.ts';

/**
 * What a model cannot do is refused by the codes of the specification, because a model's card says so (contracts
 * decision 20); what the specification wants ignored is ignored.
 */
const service = new InnerService({
  config: scriptedModel(
    `
- when: { last_text: "count" }
  say: [ { text: "one two three four five six seven eight nine ten" } ]
- when: { last_text: "picture" }
  say: [ { text: "words only" } ]
- say: [ { text: "hello" } ]
`,
    { settings: noFeatures },
  ),
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

interface Answer {
  readonly model: string;
  readonly choices: readonly { readonly message: Record<string, unknown>; readonly finish_reason: string }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}
const ask = async (fields: Record<string, unknown>): Promise<Answer> => {
  const answer = await askChat(service, { ...plainBody, ...fields });
  assert.equal(answer.status, 200, answer.body);
  return answer.json() as unknown as Answer;
};
const says = (content: unknown) => [{ role: 'user', content }];

const tool = { type: 'function', function: { name: 'look', parameters: { type: 'object', properties: {} } } };
const call = { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } };

const refusals: readonly (readonly [string, Record<string, unknown>, ErrorCode, string])[] = [
  ['tools', { tools: [tool] }, 'unsupported_feature', 'tools'],
  ['streamed tools', { tools: [tool], stream: true }, 'unsupported_feature', 'tools'],
  [
    'tools with a response format',
    { tools: [tool], response_format: { type: 'json_object' } },
    'unsupported_feature',
    'tools',
  ],
  ['json_object', { response_format: { type: 'json_object' } }, 'unsupported_response_format', 'response_format.type'],
  [
    'json_schema',
    { response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'object' } } } },
    'unsupported_response_format',
    'response_format.type',
  ],
  [
    'grammar',
    { response_format: { type: 'grammar', grammar: 'root ::= "a"' } },
    'unsupported_response_format',
    'response_format.type',
  ],
  ['an unknown format', { response_format: { type: 'xml' } }, 'unsupported_response_format', 'response_format.type'],
  ['regex', { regex: '[a-z]+' }, 'unsupported_regex', 'regex'],
  ['n', { n: 2 }, 'unsupported_feature', 'n'],
  ['logprobs', { logprobs: true }, 'unsupported_parameter', 'logprobs'],
  ['top_logprobs', { logprobs: true, top_logprobs: 3 }, 'unsupported_parameter', 'logprobs'],
  ['logit_bias', { logit_bias: { '5': 1 } }, 'unsupported_parameter', 'logit_bias'],
  ['an unknown effort', { reasoning_effort: 'minimal' }, 'unsupported_value', 'reasoning_effort'],
  ['an unknown nested effort', { reasoning: { effort: 'enormous' } }, 'unsupported_value', 'reasoning.effort'],
  ['audio', { messages: says([{ type: 'input_audio' }]) }, 'unsupported_value', 'messages[0].content[0].type'],
  [
    'a file',
    { messages: says([{ type: 'file', file: { file_id: 'file-1' } }]) },
    'unsupported_value',
    'messages[0].content[0].file.file_id',
  ],
  // The rules for tools come before what the model can do.
  ['another kind of tool', { tools: [{ type: 'web_search' }] }, 'unsupported_tool_type', 'tools[0].type'],
  [
    'a tool without a schema of an object',
    { tools: [{ type: 'function', function: { name: 'look', parameters: { type: 'string' } } }] },
    'tool_schema_invalid',
    'tools[0].function.parameters',
  ],
  ['two tools of one name', { tools: [tool, tool] }, 'duplicate_tool_name', 'tools[1].function.name'],
  [
    'the choice of a tool that is not there',
    { tools: [tool], tool_choice: { type: 'function', function: { name: 'hear' } } },
    'tool_choice_unknown_tool',
    'tool_choice.function.name',
  ],
  [
    'a result without a call',
    { messages: [...says('hi'), { role: 'tool', tool_call_id: 'call_1', content: 'x' }] },
    'orphan_tool_message',
    'messages[1].tool_call_id',
  ],
  [
    'a result without an id',
    {
      messages: [
        { role: 'assistant', tool_calls: [call] },
        { role: 'tool', content: 'x' },
      ],
    },
    'missing_tool_call_id',
    'messages[1].tool_call_id',
  ],
];

describe('is refused', () => {
  for (const [what, fields, code, param] of refusals) {
    test(what, async () => {
      assertEnvelope(await askChat(service, { ...plainBody, ...fields }), code, { param });
    });
  }
});

describe('changes nothing', () => {
  for (const [what, fields] of [
    ['one choice', { n: 1 }],
    ['no logprobs', { logprobs: false }],
    ['the format text', { response_format: { type: 'text' } }],
    ['no tools', { tools: [] }],
    ['null for what may be left out', { n: null, stop: null, tools: null, regex: null, logit_bias: null, seed: null }],
    ['every effort', { reasoning_effort: 'max' }],
    ['the effort none', { reasoning: { effort: 'none' } }],
    ['thinking', { thinking: { type: 'enabled', keep: 'all' } }],
    ['no thinking', { thinking: false, enable_thinking: true, chat_template_kwargs: { enable_thinking: true } }],
    ['stream_options', { stream_options: { include_usage: false } }],
    ['unknown fields', { store: true, best_of: 7, priority: -1, metadata: { a: 1 }, something: [{}] }],
    ['sampling', { temperature: 0.5, top_p: 0.9, top_k: 40, min_p: 0.1, repetition_penalty: 1.1, seed: 7 }],
    ['penalties', { frequency_penalty: -2, presence_penalty: 2 }],
    ['no limit of candidates', { top_k: -1 }],
  ] as const) {
    test(what, async () => {
      const answer = await ask(fields);
      assert.deepEqual(
        { ...answer.choices[0]?.message },
        { role: 'assistant', content: 'hello', reasoning_content: null, refusal: null, tool_calls: null },
      );
    });
  }

  test('an image, which this model cannot see', async () => {
    const picture = { type: 'image_url', image_url: { url: 'http://169.254.169.254/latest/meta-data' } };
    const answer = await ask({ messages: says([{ type: 'text', text: 'a picture' }, picture]) });
    assert.equal(answer.choices[0]?.message['content'], 'words only');
    const plain = await ask({ messages: says('a picture') });
    assert.equal(answer.usage.prompt_tokens, plain.usage.prompt_tokens);
    assert.equal((await ask({ messages: says([picture]) })).choices[0]?.message['content'], 'hello');
  });
});

describe('the length of an answer (specification §4.2.1)', () => {
  const length = async (fields: Record<string, unknown>): Promise<number> =>
    (await ask({ messages: says('count'), ...fields })).usage.completion_tokens;

  test('max_tokens, its alias, and both', async () => {
    assert.equal(await length({ max_tokens: 3 }), 3);
    assert.equal(await length({ max_completion_tokens: 4 }), 4);
    assert.equal(await length({ max_tokens: 3, max_completion_tokens: 5 }), 3);
    assert.equal(await length({}), 10);
  });

  test('larger than the window is as if it were absent', async () => {
    assert.equal(await length({ max_tokens: 1_000_000 }), 10);
  });

  test('more than the window leaves room for is tried again without', async () => {
    assert.equal(await length({ max_tokens: 8190 }), 10);
  });
});

describe('stop', () => {
  for (const [stop, text] of [
    ['four', 'one two three '],
    [['nine', ' six'], 'one two three four five'],
    ['ee fo', 'one two thr'],
    [[], 'one two three four five six seven eight nine ten'],
    ['', 'one two three four five six seven eight nine ten'],
    ['eleven', 'one two three four five six seven eight nine ten'],
  ] as const) {
    test(JSON.stringify(stop), async () => {
      const whole = await ask({ messages: says('count'), stop });
      assert.equal(whole.choices[0]?.message['content'], text);
      assert.equal(whole.choices[0]?.finish_reason, 'stop');
      const streamed = await askChat(service, { ...plainBody, messages: says('count'), stop, stream: true });
      const deltas = eventsOf(streamed.body)
        .slice(0, -1)
        .map((event) => JSON.parse(event) as { choices: { delta: { content?: string } }[] })
        .map((chunk) => chunk.choices[0]?.delta.content ?? '');
      assert.equal(deltas.join(''), text);
    });
  }
});
