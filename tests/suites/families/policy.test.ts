/**
 * What a model's card promises, and the rules of sampling and reasoning (specification part 1 and §4.2.5, contracts decisions
 * 20 and 22), on every API family: one table each.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { boundOutput } from '../../support/bound-reply.ts';
import { TestService } from '../../support/service.ts';
import { Upstream, chatChunk, event, usageChunk } from '../../support/upstream.ts';
import { ask, say } from './exchange.ts';
import { chat, completions, conversing, families, messages, responses } from './families.ts';
import type { Asked, Family } from './families.ts';

const options = { timeout: 600_000 };

type Body = Readonly<Record<string, unknown>>;
const asked: Body[] = [];
const upstream = await Upstream.start((exchange) => {
  if (exchange.path === '/tokenize') return exchange.json(200, { count: 10, max_model_len: 8_192, tokens: [] });
  const isText = exchange.path === '/v1/completions';
  if (!isText && exchange.path !== '/v1/chat/completions') return exchange.json(200, {});
  const body = JSON.parse(exchange.body) as Body;
  asked.push(body);
  const [delta = { content: 'Hi' }] = boundOutput(body) ?? [];
  const text = (finish_reason: string | null): string =>
    event({
      id: 'c',
      object: 'text_completion',
      created: 1,
      model: 'm',
      choices: [{ index: 0, text: delta['content'], finish_reason }],
    });
  exchange.events();
  exchange.chunk(
    [
      ...(isText ? [text('stop')] : [chatChunk({ role: 'assistant', ...delta }), chatChunk({}, 'stop')]),
      usageChunk({ prompt_tokens: 10, completion_tokens: 1 }),
      event('[DONE]'),
    ].join(''),
  );
  exchange.endChunks();
});
const model = (id: string, more: string, flavor = 'vllm'): string => `
  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    ${more.replaceAll('\n', '\n    ')}
    backends: [ { engine: openai, flavor: ${flavor}, url: "${upstream.url}" } ]`;
// One that gets every tier as it is.
const reasoning = (id: string, tiers: string): string => model(id, `reasoning: ${tiers}`, 'sglang');
const off = (id: string, flags: string): string => model(id, `capabilities: ${flags}`);
const service = new TestService({
  config: `models:${[
    model('honor', 'sampling: honor'),
    model('ignore', 'sampling: ignore'),
    model('fixed', 'sampling: fixed'),
    reasoning('all-tiers', '{ efforts: [none, low, medium, high, xhigh, max], default: medium }'),
    reasoning('some-tiers', '{ efforts: [none, low, high, max], default: none }'),
    reasoning('always', '{ efforts: [low, high], default: high }'),
    off('no-chat', '{ chat_completions: { supported: false } }'),
    off('no-messages', '{ messages: { supported: false } }'),
    off('no-responses', '{ responses: { supported: false } }'),
    off('no-streaming', '{ chat_completions: { streaming: false } }'),
    off('no-messages-streaming', '{ messages: { streaming: false } }'),
    off('no-responses-streaming', '{ responses: { streaming: false } }'),
    off('no-tools', '{ tools: false }'),
    off('no-chat-tools', '{ chat_completions: { tools: false } }'),
    off('no-messages-tools', '{ messages: { tools: false } }'),
    off('no-responses-tools', '{ responses: { tools: false } }'),
    off('no-tool-streaming', '{ chat_completions: { tool_streaming: false } }'),
    off('no-messages-tool-streaming', '{ messages: { tool_streaming: false } }'),
    off('no-schema', '{ chat_completions: { json_schema: false } }'),
    off('no-object', '{ chat_completions: { json_object: false } }'),
    off('text-only-responses', '{ responses: { text_format: [text] } }'),
    off('no-both', '{ chat_completions: { tools_with_response_format: false } }'),
    off('no-regex', '{ chat_completions: { regex: false } }'),
    off('no-grammar', '{ chat_completions: { grammar: false } }'),
    off('no-n', '{ chat_completions: { n: false } }'),
    off('no-logprobs', '{ logprobs: false }'),
    off('no-bias', '{ logit_bias: false }'),
  ].join('')}`,
});
before(() => service.start(), options);
after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
});

/** What the model was asked, for a request that is taken. */
async function sent(family: Family, fields: Partial<Asked>): Promise<Body> {
  asked.length = 0;
  const { status, text } = await ask(service, family, say('Say hi.', fields));
  assert.equal(status, 200, `${family.name}: ${text}`);
  assert.equal(asked.length, 1, 'one request upstream');
  return asked[0]!;
}

async function refused(family: Family, fields: Partial<Asked>, code: string, param: string): Promise<void> {
  asked.length = 0;
  const { status, text } = await ask(service, family, say('Say hi.', fields));
  assert.equal(status, 400, `${family.name}: ${text}`);
  const error = family.errorOf(text);
  assert.deepEqual([error.code, error.param], [code, param], text);
  assert.equal(asked.length, 0, 'nobody is asked');
}

const tool = { name: 'look', description: 'Looks.', parameters: { type: 'object', properties: {} } };
const schema = { type: 'object', properties: { a: { type: 'string' } } };
const tools = { tools: [tool] };

interface FlagRow {
  readonly flag: string;
  /** The models whose cards have it not, by family; absent: the family takes it. */
  readonly without: Readonly<Record<string, string>>;
  readonly needs: Readonly<Record<string, Partial<Asked>>>;
  readonly code: string;
  readonly params: Readonly<Record<string, string>>;
}

const everywhere = <Value>(value: Value, of: readonly Family[] = families): Readonly<Record<string, Value>> =>
  Object.fromEntries(of.map(({ name }) => [name, value]));

const jsonSchema = {
  chat: { more: { response_format: { type: 'json_schema', json_schema: { name: 'a', schema } } } },
  completions: { more: { json_schema: JSON.stringify(schema) } },
  messages: { more: { output_config: { format: { type: 'json_schema', schema } } } },
  responses: { more: { text: { format: { type: 'json_schema', name: 'a', schema } } } },
};
const formatType = {
  chat: 'response_format.type',
  completions: 'json_schema',
  messages: 'output_config.format.type',
  responses: 'text.format.type',
};

const rows: readonly FlagRow[] = [
  {
    flag: 'supported',
    without: { chat: 'no-chat', messages: 'no-messages', responses: 'no-responses' },
    needs: everywhere({}, conversing),
    code: 'unsupported_feature',
    params: everywhere('model'),
  },
  {
    flag: 'streaming',
    without: { chat: 'no-streaming', messages: 'no-messages-streaming', responses: 'no-responses-streaming' },
    needs: everywhere({ stream: true }),
    code: 'unsupported_feature',
    params: everywhere('stream'),
  },
  {
    flag: 'streaming of the model',
    without: everywhere('no-streaming'),
    needs: everywhere({ stream: true }),
    code: 'unsupported_feature',
    params: everywhere('stream'),
  },
  {
    flag: 'tools',
    without: { chat: 'no-chat-tools', messages: 'no-messages-tools', responses: 'no-responses-tools' },
    needs: everywhere(tools),
    code: 'unsupported_feature',
    params: everywhere('tools'),
  },
  {
    flag: 'tools of the model',
    without: everywhere('no-tools', conversing),
    needs: everywhere(tools),
    code: 'unsupported_feature',
    params: everywhere('tools'),
  },
  {
    flag: 'tool_streaming',
    without: { chat: 'no-tool-streaming', messages: 'no-messages-tool-streaming' },
    needs: everywhere({ ...tools, stream: true }),
    code: 'unsupported_feature',
    params: everywhere('tools'),
  },
  {
    flag: 'json_schema',
    without: everywhere('no-schema'),
    needs: jsonSchema,
    code: 'unsupported_response_format',
    params: formatType,
  },
  {
    flag: 'text_format',
    without: { responses: 'text-only-responses' },
    needs: jsonSchema,
    code: 'unsupported_response_format',
    params: formatType,
  },
  {
    flag: 'json_object',
    without: { chat: 'no-object', responses: 'no-object' },
    needs: {
      chat: { more: { response_format: { type: 'json_object' } } },
      responses: { more: { text: { format: { type: 'json_object' } } } },
    },
    code: 'unsupported_response_format',
    params: formatType,
  },
  {
    flag: 'tools_with_response_format',
    without: everywhere('no-both', conversing),
    needs: Object.fromEntries(conversing.map(({ name }) => [name, { ...tools, ...jsonSchema[name as 'chat'] }])),
    code: 'unsupported_feature',
    params: { chat: 'response_format', messages: 'output_config.format', responses: 'text.format' },
  },
  {
    flag: 'regex',
    without: everywhere('no-regex', [chat, completions]),
    needs: everywhere({ more: { regex: '[a-z]+' } }),
    code: 'unsupported_regex',
    params: everywhere('regex'),
  },
  {
    flag: 'grammar',
    without: everywhere('no-grammar', [chat, completions]),
    needs: {
      chat: { more: { response_format: { type: 'grammar', grammar: 'root ::= "a"' } } },
      completions: { more: { ebnf: 'root ::= "a"' } },
    },
    code: 'unsupported_response_format',
    params: { chat: 'response_format.type', completions: 'ebnf' },
  },
  {
    flag: 'n',
    without: everywhere('no-n', [chat, completions]),
    needs: everywhere({ more: { n: 2 } }),
    code: 'unsupported_feature',
    params: everywhere('n'),
  },
  {
    flag: 'logprobs',
    without: everywhere('no-logprobs', [chat, completions, responses]),
    needs: {
      chat: { more: { logprobs: true } },
      completions: { more: { logprobs: 1 } },
      responses: { more: { include: ['message.output_text.logprobs'] } },
    },
    code: 'unsupported_parameter',
    params: { chat: 'logprobs', completions: 'logprobs', responses: 'include' },
  },
  {
    flag: 'logit_bias',
    without: everywhere('no-bias', [chat, completions]),
    needs: everywhere({ more: { logit_bias: { '5': 1 } } }),
    code: 'unsupported_parameter',
    params: everywhere('logit_bias'),
  },
];

describe('a request is taken exactly when the card says so (contracts decision 20)', options, () => {
  for (const { flag, without, needs, code, params } of rows) {
    for (const family of families) {
      const id = without[family.name];
      if (id === undefined) continue;
      test(`${flag} on ${family.name}`, async () => {
        const fields = needs[family.name]!;
        const { status, text } = await ask(service, family, say('Say hi.', { ...fields, model: 'honor' }));
        // A model that may answer several times needs a backend that does; that it is taken is what counts here.
        assert.ok(status === 200 || (flag === 'n' && status === 502), text);
        await refused(family, { ...fields, model: id }, code, params[family.name]!);
        if (flag !== 'supported') assert.ok(await sent(family, { model: id }), 'the rest is taken');
      });
    }
  }
});

const picked = (body: Body, names: object): Body =>
  Object.fromEntries(Object.entries(body).filter(([name]) => Object.hasOwn(names, name)));

const four = { temperature: 0.3, top_p: 0.8, presence_penalty: 0.5, frequency_penalty: -0.5 };
const rest = { top_k: 7, min_p: 0.1, repetition_penalty: 1.2, seed: 42 };
/** What a family has fields for. */
const sampling: readonly (readonly [Family, object, object])[] = [
  [chat, four, rest],
  [completions, four, rest],
  [messages, { temperature: four.temperature, top_p: four.top_p }, { top_k: rest.top_k }],
  [responses, four, rest],
];

describe('sampling (part 1) on all APIs', options, () => {
  for (const [family, dropped, kept] of sampling) {
    for (const [id, expected] of [
      ['honor', dropped],
      ['ignore', {}],
      ['fixed', {}],
    ] as const) {
      test(`a model with sampling: ${id}, asked on ${family.name}`, async () => {
        const body = await sent(family, { model: id, stop: ['END'], more: { ...dropped, ...kept } });
        assert.deepEqual(picked(body, four), expected);
        assert.deepEqual(picked(body, rest), kept);
        assert.deepEqual(body['stop'], ['END']);
      });
    }
  }

  for (const family of [chat, completions]) {
    test(`n is stripped for a model with fixed sampling, on ${family.name}`, async () => {
      assert.equal((await sent(family, { model: 'fixed', more: { n: 3 } }))['n'], undefined);
    });
  }
});

/** How a family says a tier; messages has no `none` among them. */
const effortOf: Readonly<Record<string, (effort: string) => Partial<Asked>>> = {
  chat: (effort) => ({ more: { reasoning_effort: effort } }),
  messages: (effort) => ({
    more: effort === 'none' ? { thinking: { type: 'disabled' } } : { output_config: { effort } },
  }),
  responses: (effort) => ({ more: { reasoning: { effort } } }),
};

describe('reasoning (§4.2.5) on all APIs', options, () => {
  async function tier(family: Family, model: string, fields: Partial<Asked> = {}): Promise<unknown> {
    const body = await sent(family, { model, maxTokens: 100, ...fields });
    const switches = body['chat_template_kwargs'] as { readonly enable_thinking?: boolean } | undefined;
    assert.equal(switches?.enable_thinking, body['reasoning_effort'] !== undefined);
    return body['reasoning_effort'] ?? 'none';
  }

  for (const family of conversing) {
    const said = effortOf[family.name]!;
    test(`${family.name}: every tier reaches the model, and what the card does not list runs at the nearest one`, async () => {
      for (const effort of ['none', 'low', 'medium', 'high', 'xhigh', 'max'])
        assert.equal(await tier(family, 'all-tiers', said(effort)), effort);
      for (const [asks, runs] of [
        ['medium', 'low'],
        ['xhigh', 'high'],
        ['none', 'none'],
      ] as const)
        assert.equal(await tier(family, 'some-tiers', said(asks)), runs);
      assert.equal(await tier(family, 'always', said('max')), 'high');
    });

    test(`${family.name}: without a word the model's default applies`, async () => {
      assert.equal(await tier(family, 'all-tiers'), 'medium');
      assert.equal(await tier(family, 'some-tiers'), 'none');
      assert.equal(await tier(family, 'always'), 'high');
    });

    test(`${family.name}: a model that always reasons takes no forced tool`, async () => {
      const forced: Readonly<Record<string, readonly unknown[]>> = {
        chat: ['required', { type: 'function', function: { name: 'look' } }],
        messages: [{ type: 'any' }, { type: 'tool', name: 'look' }],
        responses: ['required', { type: 'function', name: 'look' }],
      };
      for (const tool_choice of forced[family.name]!)
        await refused(
          family,
          { model: 'always', ...tools, more: { tool_choice } },
          'unsupported_feature',
          'tool_choice',
        );
    });
  }

  test('an effort that is no tier is refused on chat, and turns reasoning off on responses (§4.2.5(3))', async () => {
    for (const effort of ['minimal', 'LOW', 'auto']) {
      await refused(
        chat,
        { model: 'all-tiers', ...effortOf['chat']!(effort) },
        'unsupported_value',
        'reasoning_effort',
      );
      assert.equal(await tier(responses, 'all-tiers', effortOf['responses']!(effort)), 'none');
    }
  });
});

describe('output length (§4.2.1) on all APIs', options, () => {
  for (const family of families) {
    test(`${family.name}: what does not fit the window is refused, only chat tries without max_tokens`, async () => {
      const fields = { model: 'honor', maxTokens: 8_190 };
      if (family === chat) {
        const body = await sent(family, fields);
        assert.ok(Number(body['max_tokens'] ?? body['max_completion_tokens']) <= 8_182);
      } else {
        const { status, text } = await ask(service, family, say('Say hi.', fields));
        assert.equal(status, 400, text);
        assert.equal(family.errorOf(text).code, 'context_length_exceeded');
      }
    });
  }
});
