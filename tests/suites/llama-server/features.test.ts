/** What clients may ask for beyond text, through the whole service, each kept by a real llama-server on the default model. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Check } from 'typebox/schema';

import { readChatCompletion, readChatStream, type ReadAnswer } from '../../conformance/chat-reader.ts';
import { TestService } from '../../support/service.ts';
import { LlamaServer, TinyModels, defaultModelFile, stopServer } from './llama-server.ts';

type Body = Readonly<Record<string, unknown>>;

/** What the model for tools would write: its arguments lack one that is required. */
const callWithoutDays = [
  ...['assistant\n', '<tool_call>', '\n{"name": "get_weather", ', '"arguments": {"city": "Paris"', '}}\n'],
  ...['</tool_call>', '<|im_end|>'],
];
const models = new TinyModels();
let server: LlamaServer | undefined;
/** With a template that knows tools, which the default model's does not: llama-server then leaves them out in silence. */
let toolServer: LlamaServer | undefined;
let service: TestService;
before(async () => {
  server = await LlamaServer.start({ modelFile: defaultModelFile(), slots: 2, contextLength: 2048 });
  const modelFile = models.write('tools', { script: [callWithoutDays], contextLength: 2048 });
  toolServer = await LlamaServer.start({ modelFile, slots: 2, contextLength: 2048 });
  const model = (id: string, url: string | undefined, more = ''): string => `
  - id: ${id}
    context_length: 2048
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    ${more}
    backends: [ { engine: openai, name: ${id}, flavor: llama-server, url: "${url}" } ]`;
  // The model does not reason; that the card says so makes the service ask as it asks models that do.
  const reasoning = 'reasoning: { efforts: [none, low], default: low }';
  const list = [model('real', server.url), model('thinker', server.url, reasoning), model('caller', toolServer.url)];
  service = await new TestService({ config: `models:${list.join('')}` }).start();
});
after(async () => {
  try {
    await service?.verify();
  } finally {
    await service?.dispose();
    await stopServer(server);
    await stopServer(toolServer);
    models.dispose();
  }
});

const france = 'What is the capital of France?';
/** The system text that the model's template adds by itself makes its answers worse; any other takes its place. */
const ask = (text: string, more: Body = {}): Body => ({
  model: 'real',
  messages: [
    { role: 'system', content: 'You are a helpful assistant.' },
    { role: 'user', content: text },
  ],
  temperature: 0,
  seed: 1,
  max_tokens: 64,
  ...more,
});

async function answered(body: Body): Promise<ReadAnswer> {
  const response = await service.chat(body);
  const received = await response.text();
  assert.equal(response.status, 200, received);
  return body['stream'] === true ? readChatStream(received) : readChatCompletion(received);
}

async function choiceOf(body: Body) {
  const [choice] = (await answered(body)).choices;
  assert.ok(choice !== undefined);
  return choice;
}

const place = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 20 }, people: { type: 'integer', minimum: 1, maximum: 9_999_999 } },
  required: ['city', 'people'],
  additionalProperties: false,
};
const schemaFormat = (schema: unknown): Body => ({
  response_format: { type: 'json_schema', json_schema: { name: 'place', strict: true, schema } },
});
const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Says how the weather of a city is.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string', maxLength: 20 }, days: { type: 'integer', minimum: 1, maximum: 7 } },
      required: ['city', 'days'],
    },
  },
};

describe('the form of an answer', () => {
  for (const model of ['real', 'thinker']) {
    test(`§4.2.3(1) json_schema: it parses and is valid (${model})`, async () => {
      const { content, finishReason } = await choiceOf(ask(france, { model, ...schemaFormat(place) }));
      assert.equal(finishReason, 'stop');
      const value: unknown = JSON.parse(content);
      assert.ok(Check(place, value), content);
    });
  }

  test('§4.2.3(1) json_object: it parses and is an object', async () => {
    // At temperature 0 the small model repeats itself in a string that has no end.
    const hot = { temperature: 1, max_tokens: 500, response_format: { type: 'json_object' } };
    let finished = 0;
    for (let seed = 1; seed <= 6 && finished === 0; seed++) {
      const { content, finishReason } = await choiceOf(ask('Answer in JSON: {"city": "Paris"}', { ...hot, seed }));
      assert.match(content, /^\s*\{/);
      if (finishReason !== 'stop') continue;
      finished++;
      const value: unknown = JSON.parse(content);
      assert.ok(typeof value === 'object' && value !== null && !Array.isArray(value), content);
    }
    assert.ok(finished > 0, 'none of six ended by itself');
  });

  test('§4.2.3(5) a regex is matched from end to end', async () => {
    const { content, finishReason } = await choiceOf(ask(france, { regex: '(Rome|Oslo), [12]\\d{3}' }));
    assert.equal(finishReason, 'stop');
    assert.match(content, /^(Rome|Oslo), [12]\d{3}$/);
  });

  test('§4.2.3(6) a GBNF grammar is kept', async () => {
    const grammar = 'root ::= city ("; " city){1,2} "."\ncity ::= "Rome" | "Oslo"';
    const { content, finishReason } = await choiceOf(ask(france, { response_format: { type: 'grammar', grammar } }));
    assert.equal(finishReason, 'stop');
    assert.match(content, /^(Rome|Oslo)(; (Rome|Oslo)){1,2}\.$/);
  });
});

describe('tools', () => {
  for (const stream of [false, true]) {
    test(`§4.2.2 required: a call whose arguments parse and are valid, ${stream ? 'streamed' : 'whole'}`, async () => {
      const forced = { tools: [weather], tool_choice: 'required', parallel_tool_calls: false };
      const body = ask('How is the weather?', { model: 'caller', ...forced, max_tokens: 600, stream });
      const { toolCalls, finishReason } = await choiceOf(body);
      assert.equal(finishReason, 'tool_calls');
      assert.equal(toolCalls.length, 1);
      for (const call of toolCalls) {
        assert.equal(call.name, 'get_weather');
        const value: unknown = JSON.parse(call.arguments);
        assert.ok(Check(weather.function.parameters, value), call.arguments);
      }
    });
  }

  test('a template without tools leaves them out in silence, even forced: the file has to say so', async () => {
    const silent = await server?.post(
      '/v1/chat/completions',
      ask(france, { tools: [weather], tool_choice: 'required' }),
    );
    assert.equal(silent?.status, 200);
    assert.doesNotMatch(await silent.text(), /tool_calls|get_weather/);
  });

  test('§4.2.2 none: the model does not hear of them', async () => {
    const short = { model: 'caller', max_tokens: 16 };
    const plain = await answered(ask(france, short));
    const none = await answered(ask(france, { ...short, tools: [weather], tool_choice: 'none' }));
    assert.deepEqual([none.choices, none.choices[0]?.toolCalls], [plain.choices, []]);
    const promptTokens = ({ usage }: ReadAnswer) => (usage as Record<string, number>)['prompt_tokens'];
    assert.equal(promptTokens(none), promptTokens(plain));
  });
});

describe('the words of an answer', () => {
  test('§6 streamed is whole, with a seed and at temperature 0', async () => {
    for (const more of [{}, { temperature: 1, seed: 7 }, schemaFormat(place), { logprobs: true, top_logprobs: 2 }]) {
      const whole = await answered(ask('Name three colours.', { max_tokens: 24, ...more }));
      const streamed = await answered(
        ask('Name three colours.', { max_tokens: 24, ...more, stream: true, stream_options: { include_usage: true } }),
      );
      const figures = ({ usage }: ReadAnswer) => {
        const { prompt_tokens, completion_tokens } = usage as Record<string, number>;
        return [prompt_tokens, completion_tokens];
      };
      assert.deepEqual(streamed.choices, whole.choices, JSON.stringify(more));
      assert.deepEqual(figures(streamed), figures(whole));
    }
  });

  test('logprobs with top_logprobs: one for each token of the text, the likeliest first', async () => {
    const { content, logprobs } = await choiceOf(ask(france, { logprobs: true, top_logprobs: 3 }));
    interface Entry {
      readonly token: string;
      readonly logprob: number;
      readonly bytes: readonly number[] | null;
    }
    const entries = logprobs as readonly (Entry & { readonly top_logprobs: readonly Entry[] })[];
    assert.equal(entries.map(({ token }) => token).join(''), content);
    for (const { token, logprob, bytes, top_logprobs: top } of entries) {
      assert.ok(logprob <= 0);
      assert.deepEqual(bytes, [...Buffer.from(token)]);
      assert.equal(top.length, 3);
      assert.equal(top[0]?.token, token, 'at temperature 0 the likeliest is taken');
      const figures = top.map((entry) => entry.logprob);
      assert.deepEqual(
        figures,
        figures.toSorted((a, b) => b - a),
      );
    }
  });

  test('n: two choices, each finished; the prompt is paid once', async () => {
    const one = await answered(ask(france));
    const two = await answered(ask(france, { n: 2 }));
    assert.deepEqual(
      two.choices.map(({ index, finishReason }) => [index, finishReason]),
      [
        [0, 'stop'],
        [1, 'stop'],
      ],
    );
    for (const { content } of two.choices) assert.equal(content, one.choices[0]?.content);
    const [single, double] = [one.usage, two.usage] as Record<string, number>[];
    assert.equal(double?.['prompt_tokens'], single?.['prompt_tokens']);
    assert.equal(double?.['completion_tokens'], 2 * (single?.['completion_tokens'] ?? NaN));
  });
});

describe('what the server itself refuses: 400 in our words, nothing of its own (reliability U12)', () => {
  const schemaOf = (property: Body) => ({ type: 'object', properties: { a: property }, required: ['a'] });
  const toolOf = (property: Body) => ({
    model: 'caller',
    tool_choice: 'required',
    tools: [{ type: 'function', function: { name: 'f', parameters: schemaOf(property) } }],
  });
  /** A schema goes to it as it stands when the model reasons, and always in a tool. */
  const bodies: readonly (readonly [string, Body])[] = [
    [
      'a pattern that its converter cannot hold, in an answer that reasons',
      { model: 'thinker', ...schemaFormat(schemaOf({ type: 'string', pattern: '^(a|)*$' })) },
    ],
    ['a type that there is not, in a tool', toolOf({ type: 'strange' })],
    ['a pattern that is none, in a tool', toolOf({ type: 'string', pattern: '^(a$' })],
  ];
  for (const [what, more] of bodies) {
    for (const stream of [false, true]) {
      test(`${what}, ${stream ? 'streamed' : 'whole'}`, async () => {
        const response = await service.chat(ask(france, { ...more, stream }));
        const received = await response.text();
        assert.equal(response.status, 400, received);
        const { error } = JSON.parse(received) as { error: Body };
        assert.equal(error['code'], 'unsupported_value', received);
        assert.doesNotMatch(received, /sampler|parser|grammar_|conversion|strange|\^\(a|llama|generat/i);
      });
    }
  }
});

test('fields that the client invents do not reach the server', async () => {
  const invented = { grammar: 'root ::= "Rome"', n_predict: 1, ignore_eos: true, n_probs: 5, repeat_penalty: 100 };
  // The server itself obeys them.
  const direct = await server?.post('/v1/chat/completions', ask(france, invented));
  assert.doesNotMatch((await direct?.text()) ?? '', /Paris/);
  const plain = await answered(ask(france));
  assert.match(plain.choices[0]?.content ?? '', /Paris/);
  assert.deepEqual((await answered(ask(france, invented))).choices, plain.choices);
});
