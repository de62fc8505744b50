/** A real vLLM behind the service: what each flag of a card promises, held against vLLM's own answer, and what was bound. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Compile } from 'typebox/schema';

import type { Capabilities } from '../../../src/catalog/card-flags.ts';
import { probeBackend } from '../../../src/inference/engines/openai/probe.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { TestService } from '../../support/service.ts';
import { clientOf, type Client } from '../../support/service-client.ts';
import { contextLength, keyVariable, VllmServer } from './vllm-server.ts';

let server: VllmServer;
let service: TestService;
let ledger: TestLedger;
let client: Client;
before(async () => {
  server = await VllmServer.start('model');
  service = new TestService({
    config: `models:
  - id: real
    context_length: ${contextLength}
    pricing: { input_cents_per_million: 5000, output_cents_per_million: 20000, cache_read_cents_per_million: 2500 }
    backends: [ ${server.backend} ]
  - id: wide
    context_length: 8192
    pricing: { input_cents_per_million: 5000, output_cents_per_million: 20000 }
    backends: [ ${server.backend} ]`,
  });
  await service.start();
  ledger = new TestLedger(service);
  client = clientOf(service);
});
after(async () => {
  try {
    await ledger.verify({ owned: true });
  } finally {
    await service.dispose();
    await server.stop();
  }
});

const hello = { messages: [{ role: 'user', content: 'Name three colours.' }], temperature: 0, max_tokens: 16 };
const weather = {
  type: 'function',
  function: {
    name: 'weather',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string', maxLength: 12 }, unit: { enum: ['c', 'f'] } },
      required: ['city', 'unit'],
      additionalProperties: false,
    },
  },
};
const isWeather = (value: unknown): boolean => Compile(weather.function.parameters).Check(value);
const forced = { tools: [weather], tool_choice: 'required', max_tokens: 100 } as const;

test('`backends add` finds out what it is, and it answers at once', async () => {
  const { code, stdout, stderr } = await service.command(
    ...['backends', 'add', server.url, '--id', 'added', '--api-key-env', keyVariable],
  );
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^added · vllm · .*\nwindow {3}\d+ tokens\ncan {6}chat, tools, no reasoning\nsays /);
  const answer = await service.chat({ model: 'added', ...hello });
  assert.equal(answer.status, 200, await answer.text());
});

/** What the service and vLLM itself say to the same request: texts, ends and tokens. */
async function assertSame(fields: object): Promise<void> {
  const direct = await server.post('/chat/completions', fields);
  assert.equal(direct.status, 200, JSON.stringify(direct.body));
  const through = await client.chat(fields);
  assert.deepEqual(shown(through), shown(direct.body));
}

interface Shown {
  readonly choices: readonly {
    readonly message: { readonly content: string | null };
    readonly finish_reason: string;
    readonly logprobs?: { readonly content: readonly { readonly token: string; readonly logprob: number }[] } | null;
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}
function shown(answer: unknown): unknown {
  const { choices, usage } = answer as Shown;
  return [
    choices.map(({ message, finish_reason, logprobs }) => [
      message.content ?? '',
      finish_reason,
      logprobs?.content.map(({ token, logprob }) => [token, logprob.toFixed(2)]) ?? null,
    ]),
    usage.prompt_tokens,
    usage.completion_tokens,
  ];
}

/** One for each: a flag that is added has to be thought of here. */
type Flag =
  | Exclude<keyof Capabilities['chat'], 'supported'>
  | keyof Pick<Capabilities, 'vision' | 'reasoning' | 'preservesThinking'>;
const flags: Readonly<Record<Flag, () => Promise<void>>> = {
  streaming: async () => {
    const whole = await client.chat(hello);
    const streamed = await client.stream(hello);
    assert.equal(streamed.text, whole.choices[0]!.message.content);
    await assertSame(hello);
    await assertSame({ ...hello, stop: [','] });
  },
  vision: async () => {
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } };
    const text = { type: 'text', text: 'Hi' };
    const seen = await client.chat({ messages: [{ role: 'user', content: [text, image] }], max_tokens: 1 });
    const said = await client.chat({ messages: [{ role: 'user', content: 'Hi' }], max_tokens: 1 });
    assert.equal(seen.usage.prompt_tokens, said.usage.prompt_tokens, 'only the file can say that a model sees');
  },
  tools: async () => {
    for (const tool_choice of ['required', { type: 'function', function: { name: 'weather' } }]) {
      const answer = await client.chat({ ...hello, ...forced, tool_choice });
      const [call] = answer.choices[0]!.message.tool_calls ?? [];
      assert.ok(call !== undefined && isWeather(JSON.parse(call.function.arguments)), JSON.stringify(answer));
      assert.match(call.id, /^call_[0-9a-f]+$/);
    }
  },
  toolStreaming: async () => {
    const { calls, finish } = await client.stream({ ...hello, ...forced });
    assert.equal(finish, 'tool_calls');
    assert.ok(isWeather(JSON.parse(calls)), calls);
  },
  reasoning: async () => {
    const refused = await client.chat({ ...hello, reasoning_effort: 'high' });
    assert.equal(refused.usage.completion_tokens > 0, true, 'a model that does not reason answers all the same');
  },
  preservesThinking: () => flags.reasoning(),
  jsonObject: async () => {
    const answer = await client.chat({ ...hello, max_tokens: 60, response_format: { type: 'json_object' } });
    const { message, finish_reason } = answer.choices[0]!;
    assert.ok(finish_reason === 'length' ? message.content!.startsWith('{') : JSON.parse(message.content!) !== null);
  },
  jsonSchema: async () => {
    for (const [schema, canBeCut] of schemas) {
      const { choices } = await client.chat({
        ...hello,
        max_tokens: 120,
        response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } },
      });
      const { message, finish_reason } = choices[0]!;
      if (finish_reason === 'length') assert.ok(canBeCut, JSON.stringify([schema, message.content]));
      else
        assert.ok(
          Compile(schema as object).Check(JSON.parse(message.content!)),
          JSON.stringify([schema, message.content]),
        );
    }
  },
  jsonSchemaRefs: async () => {
    const schema = {
      $defs: { c: { enum: ['red', 'blue'] } },
      type: 'object',
      properties: { a: { $ref: '#/$defs/c' } },
      required: ['a'],
    };
    const { choices } = await client.chat({
      ...hello,
      response_format: { type: 'json_schema', json_schema: { name: 'a', schema } },
    });
    assert.match(choices[0]!.message.content!, /^\{\s*"a":\s*"(red|blue)"\s*\}$/);
  },
  toolsWithResponseFormat: async () => {
    const { choices } = await client.chat({ ...hello, tools: [weather], regex: 'yes|no' });
    assert.match(choices[0]!.message.content!, /^(yes|no)$/);
  },
  n: async () => {
    const { choices } = await client.chat({ ...hello, n: 2 });
    const [first, second] = choices.map(({ message }) => message.content);
    assert.equal(begin(first), begin(second), 'the likeliest answer is one');
    assert.equal((await client.chat({ ...hello, n: 2, temperature: 1 })).choices.length, 2);
  },
  regex: async () => {
    for (const pattern of [
      '[/a]{4}',
      '[-b]{4}',
      '[A-Za-z_]{3}',
      '[a-zA-Z0-9_]{2,5}',
      '\\x7fabc',
      '\\p{L}{3}',
      '(?i)hello',
      '\\{x\\}',
      '[^\\x00-\\x20"\\\\]{3}',
    ]) {
      const matching = pattern.startsWith('(?i)')
        ? new RegExp(`^(?:${pattern.slice(4)})$`, 'iu')
        : new RegExp(`^(?:${pattern})$`, 'u');
      for (const [route, fields] of [
        ['/chat/completions', hello],
        ['/completions', { prompt: 'x', temperature: 0, max_tokens: 16 }],
      ] as const) {
        const answer = await client.answer(route, { ...fields, regex: pattern });
        assert.match(answer.text, matching, `${route} ${pattern}`);
        assert.equal(answer.finish, 'stop');
      }
    }
  },
  grammar: async () => {
    const grammar = 'root ::= ("red" | "blue") [-_/]{2} "\\x7f"?';
    const format = { response_format: { type: 'grammar', grammar } };
    assert.match((await client.answer('/chat/completions', { ...hello, ...format })).text, /^(red|blue)[-_/]{2}\x7f?$/);
    const continued = await client.answer('/completions', { prompt: 'x', max_tokens: 16, ebnf: grammar });
    assert.match(continued.text, /^(red|blue)[-_/]{2}\x7f?$/);
  },
  logprobs: () => assertSame({ ...hello, max_tokens: 4, logprobs: true, top_logprobs: 3 }),
  logitBias: () => assertSame({ ...hello, logit_bias: { '100': 3, '28': -100 } }),
};

/** What is written together with others may differ in the last digits (bf16), and so after some tokens. */
const begin = (text: string | null | undefined): string => (text ?? '').slice(0, 8);

/** With whether the model may write on until it is cut. */
const schemas: readonly (readonly [schema: unknown, canBeCut: boolean])[] = [
  [true, true],
  [{ type: 'array', items: { type: 'integer', minimum: 0, maximum: 9 }, minItems: 2, maxItems: 4 }, false],
  [
    {
      allOf: [
        { type: 'object', properties: { a: { type: 'integer', minimum: 0, maximum: 5 } }, required: ['a'] },
        { type: 'object', properties: { b: { type: 'boolean' } }, required: ['b'] },
      ],
    },
    false,
  ],
  [{ type: 'object', properties: { name: { type: 'string', pattern: '^\\p{L}{2,5}$' } }, required: ['name'] }, false],
  [{ enum: ['a/b', 'c-d', '_'] }, false],
  [{ type: 'object', properties: { x: { anyOf: [{ type: 'null' }, { const: 7 }] } }, required: ['x'] }, false],
];

describe('what a card promises', () => {
  for (const [flag, holds] of Object.entries(flags)) test(flag, holds);
});

describe('what vLLM does otherwise', () => {
  test('top_p 0 is the likeliest token, a seed below 0 is the same seed', async () => {
    const greedy = await client.chat(hello);
    const { temperature, ...warm } = { ...hello, temperature: 1 };
    assert.equal(temperature, 1);
    const { choices } = await client.chat({ ...warm, top_p: 0 });
    assert.equal(begin(choices[0]!.message.content), begin(greedy.choices[0]!.message.content));
    await assertSame({ ...warm, seed: -5 });
  });

  test('a token that the model does not have is the fault of the client', async () => {
    for (const [route, fields, param] of [
      ['/chat/completions', { ...hello, logit_bias: { '9999999': 1 } }, 'logit_bias'],
      ['/completions', { prompt: 'x', max_tokens: 4, stop_token_ids: [9_999_999] }, 'stop_token_ids'],
      ['/completions', { prompt: [1, 9_999_999], max_tokens: 4 }, 'prompt[1]'],
    ] as const) {
      const { status, code, param: reported } = await client.refused(route, fields);
      assert.deepEqual([status, code, reported], [400, 'unsupported_value', param]);
    }
  });

  test('a form with an end that it does not let is refused: vLLM would write on', async () => {
    const free = await server.post('/completions', {
      prompt: 'x',
      max_tokens: 12,
      ignore_eos: true,
      structured_outputs: { grammar: 'root ::= "yes" | "no"' },
    });
    assert.doesNotMatch((free.body as { choices: { text: string }[] }).choices[0]!.text, /^(yes|no)$/);
    const refused = await client.refused('/completions', {
      prompt: 'x',
      max_tokens: 12,
      ignore_eos: true,
      regex: 'yes|no',
    });
    assert.deepEqual([refused.status, refused.param], [400, 'ignore_eos']);
  });

  test('its own window is what a prompt that is too long gets, and what the probe compares', async () => {
    const prompt = Array.from({ length: 2_500 }, () => 100);
    const { status, body } = await client.refused('/completions', { model: 'wide', prompt, max_tokens: 5 });
    assert.equal(status, 400);
    assert.equal(body['context_length_limit'], contextLength);
    assert.equal(body['prompt_tokens'], 2_500, 'what the ids are, where vLLM says "at least 2049"');
    const { problem } = await probeBackend({
      ...{ url: server.url, apiKey: 'test-key', flavor: 'vllm', model: 'smollm2', contextLength: 8192 },
      signal: new AbortController().signal,
    });
    assert.match(problem ?? '', /window is 2048 tokens, but context_length is 8192/);
  });

  test('a forced call that its client leaves is charged for what was written', async () => {
    const endless = {
      ...weather.function,
      parameters: { type: 'object', properties: { text: { type: 'string', minLength: 600 } }, required: ['text'] },
    };
    const before = await server.metric('vllm:generation_tokens_total');
    const leave = new AbortController();
    const { requestId, response } = await client.send(
      '/chat/completions',
      { ...hello, ...forced, tools: [{ type: 'function', function: endless }], max_tokens: 800, stream: true },
      leave.signal,
    );
    const reading = response.then(async (answer) => answer.text()).catch(() => undefined);
    while ((await server.metric('vllm:generation_tokens_total')) - before < 15) await delay(50);
    leave.abort();
    await reading;
    const row = await ledger.row(requestId);
    assert.equal(row.ending, 'client_left');
    await delay(500);
    const written = (await server.metric('vllm:generation_tokens_total')) - before;
    assert.ok(
      row.completionTokens >= written - 8 && row.completionTokens <= written,
      `${row.completionTokens} of ${written}`,
    );
    assert.ok(row.costMicrocents > 0n);
  });

  test('messages and responses have arguments by their schema too', async () => {
    const { parameters } = weather.function;
    const message = await client.json('/messages', {
      max_tokens: 100,
      messages: hello.messages,
      tools: [{ name: 'weather', input_schema: parameters }],
      tool_choice: { type: 'any' },
    });
    const [use] = (message['content'] as { type: string; input: unknown }[]).filter(({ type }) => type === 'tool_use');
    assert.ok(isWeather(use?.input), JSON.stringify(message));
    const response = await client.json('/responses', {
      max_output_tokens: 100,
      input: 'Name three colours.',
      tools: [{ type: 'function', name: 'weather', parameters, strict: true }],
      tool_choice: 'required',
    });
    const [call] = (response['output'] as { type: string; arguments: string }[]).filter(
      ({ type }) => type === 'function_call',
    );
    assert.ok(call !== undefined && isWeather(JSON.parse(call.arguments)), JSON.stringify(response));
  });
});

test('doctor --claims finds what the cards say kept, and the window of the one that promises more', async () => {
  const { stdout } = await service.command('doctor', '--claims');
  assert.doesNotMatch(stdout, /^warning +claims +real/m, stdout);
  for (const claim of [
    'usage',
    'window',
    'abort',
    'json_schema',
    'regex',
    'grammar',
    'logprobs',
    'n',
    'min_p',
    'top_k',
  ])
    assert.match(stdout, new RegExp(`^ok +claims +real · openai · .*\\b${claim}\\b`, 'm'));
  assert.match(stdout, /^warning +claims +wide · openai · window: /m);
});
