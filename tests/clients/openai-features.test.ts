import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import OpenAI, { APIConnectionError, APIUserAbortError, InternalServerError, RateLimitError } from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import type { TestService } from '../support/service.ts';
import { InnerService, until } from '../support/service.ts';
import { Upstream, chatChunk } from '../support/upstream.ts';
import { weatherScripts } from './weather-scripts.ts';

/**
 * What the official client offers on top of requests: parsed answers, tools that it runs by itself, streams with events,
 * retries. Each must come out as its documentation says.
 */
const service = new InnerService({ config: weatherScripts('demo') });
let client: OpenAI;
before(async () => {
  await service.start();
  client = new OpenAI({ apiKey: service.key, baseURL: `${service.url}/v1`, maxRetries: 0, timeout: 120_000 });
});
after(async () => {
  await service.verify();
  await service.dispose();
});

const user = (content: string) => [{ role: 'user' as const, content }];
const City = z.object({ name: z.string(), inhabitants: z.number().int(), tags: z.array(z.enum(['old', 'new'])) });
const bern = { name: 'Bern', inhabitants: 134_000, tags: ['old'] };
const weather = z.object({ city: z.string() });

describe('parse', () => {
  test('gives the object of a zod schema', async () => {
    const answer = await client.chat.completions.parse({
      model: 'demo',
      messages: user('city as JSON'),
      response_format: zodResponseFormat(City, 'city'),
    });
    assert.deepEqual(answer.choices[0]?.message.parsed, bern);
    assert.equal(answer.choices[0]?.message.refusal, null);
  });

  test('gives the arguments of strict tools', async () => {
    const answer = await client.chat.completions.parse({
      model: 'demo',
      messages: user('weather'),
      tools: [zodFunction({ name: 'get_weather', parameters: weather })],
    });
    const [call] = answer.choices[0]?.message.tool_calls ?? [];
    assert.ok(call?.type === 'function');
    assert.deepEqual(call.function.parsed_arguments, { city: 'Bern' });
    assert.equal(answer.choices[0]?.finish_reason, 'tool_calls');
  });

  test('throws its own error when the answer was cut', async () => {
    const parsed = client.chat.completions.parse({
      model: 'demo',
      messages: user('city as JSON'),
      response_format: zodResponseFormat(City, 'city'),
      max_tokens: 2,
    });
    await assert.rejects(parsed, { name: 'Error', message: /length limit was reached/ });
  });
});

describe('a stream of the helper', () => {
  test('has the object of a zod schema in the end, and its parts on the way', async () => {
    const stream = client.chat.completions.stream({
      model: 'demo',
      messages: user('city as JSON'),
      response_format: zodResponseFormat(City, 'city'),
    });
    const runtimeConfigs: unknown[] = [];
    stream.on('content.delta', ({ parsed }) => runtimeConfigs.push(structuredClone(parsed)));
    const final = await stream.finalChatCompletion();
    assert.deepEqual(final.choices[0]?.message.parsed, bern);
    assert.ok(runtimeConfigs.length > 2);
    assert.deepEqual(runtimeConfigs.at(-1), bern);
  });

  test('says every call when it is complete, several at once', async () => {
    const stream = client.chat.completions.stream({
      model: 'demo',
      messages: user('two cities'),
      tools: [zodFunction({ name: 'get_weather', parameters: weather })],
    });
    const done: unknown[] = [];
    const deltas: string[] = [];
    stream.on('tool_calls.function.arguments.delta', ({ arguments_delta: delta }) => deltas.push(delta));
    stream.on('tool_calls.function.arguments.done', ({ index, name, parsed_arguments: parsed }) =>
      done.push([index, name, parsed]),
    );
    const final = await stream.finalChatCompletion();
    assert.deepEqual(done, [
      [0, 'get_weather', { city: 'Bern' }],
      [1, 'get_weather', { city: 'Rom' }],
    ]);
    assert.equal(deltas.join(''), '{"city":"Bern"}{"city":"Rom"}');
    assert.equal(final.choices[0]?.message.tool_calls?.length, 2);
    assert.equal(final.choices[0]?.finish_reason, 'tool_calls');
    assert.equal(new Set(final.choices[0]?.message.tool_calls?.map(({ id }) => id)).size, 2);
  });

  test('that is aborted ends with the abort, and the request as client_left', async () => {
    const stream = client.chat.completions.stream({ model: 'demo', messages: user('drip') });
    stream.on('content', () => stream.abort());
    await assert.rejects(stream.done(), APIUserAbortError);
    await until(async () => (await service.usage()).requests[0]?.ending === 'client_left', 60_000);
  });

  test('passes reasoning on beside the text', async () => {
    const stream = await client.chat.completions.create({ model: 'demo', messages: user('think'), stream: true });
    let [reasoning, text] = ['', ''];
    for await (const chunk of stream) {
      const delta = chunk.choices[0]?.delta as { content?: string; reasoning_content?: string } | undefined;
      reasoning += delta?.reasoning_content ?? '';
      text += delta?.content ?? '';
    }
    assert.deepEqual([reasoning, text], ['hm well', 'yes sir']);
  });
});

describe('runTools', () => {
  const toolsWith = (cities: string[]) => [
    {
      type: 'function' as const,
      function: {
        name: 'get_weather',
        description: 'weather of a city',
        parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
        parse: (text: string) => JSON.parse(text) as { city: string },
        function: ({ city }: { city: string }) => {
          cities.push(city);
          return cities.length === 1 ? `first: sunny in ${city}` : `sunny in ${city}`;
        },
      },
    },
  ];

  test('runs the calls and comes back with the answer', async () => {
    const cities: string[] = [];
    const runner = client.chat.completions.runTools({
      model: 'demo',
      messages: user('two cities'),
      tools: toolsWith(cities),
    });
    assert.equal(await runner.finalContent(), 'It is sunny.');
    assert.deepEqual(cities, ['Bern', 'Rom']);
    const { total_tokens: total } = await runner.totalUsage();
    assert.ok(total > 0);
  });

  test('the same streamed', async () => {
    const cities: string[] = [];
    const runner = client.chat.completions.runTools({
      model: 'demo',
      messages: user('two cities'),
      tools: toolsWith(cities),
      stream: true,
    });
    let text = '';
    runner.on('content', (delta) => (text += delta));
    assert.equal(await runner.finalContent(), 'It is sunny.');
    assert.equal(text, 'It is sunny.');
    assert.deepEqual(cities, ['Bern', 'Rom']);
  });

  test('several steps, one call after the other', async () => {
    const cities: string[] = [];
    const runner = client.chat.completions.runTools({
      model: 'demo',
      messages: user('step by step'),
      tools: toolsWith(cities),
    });
    assert.equal(await runner.finalContent(), 'Both are sunny.');
    assert.deepEqual(cities, ['Bern', 'Rom']);
  });
});

describe('several choices', () => {
  test('come whole and in a stream', async () => {
    const answer = await client.chat.completions.create({ model: 'demo', messages: user('hi'), n: 3 });
    assert.deepEqual(
      answer.choices.map(({ index, message }) => [index, message.content]),
      [0, 1, 2].map((index) => [index, 'hello world']),
    );
    const final = await client.chat.completions
      .stream({ model: 'demo', messages: user('hi'), n: 3 })
      .finalChatCompletion();
    assert.deepEqual(final.choices.map(({ message }) => message.content).toSorted(), Array(3).fill('hello world'));
  });
});

describe('retries', () => {
  /** Fails this many times before it answers; a backend of ours in front of which the service stands. */
  let failures: readonly { readonly status: number; readonly headers?: Readonly<Record<string, string>> }[] = [];
  let upstream: Upstream;
  let far: TestService;
  before(async () => {
    let asked = 0;
    upstream = await Upstream.start((request) => {
      if (request.method !== 'POST') return request.json(404, {});
      const failure = failures[asked++ % (failures.length + 1)];
      if (failure !== undefined) return request.json(failure.status, { error: { message: 'no' } }, failure.headers);
      request.events();
      request.chunk(chatChunk({ role: 'assistant', content: 'fine' }));
      request.chunk(chatChunk({}, 'stop'));
      request.chunk('data: [DONE]\n\n');
      request.endChunks();
    });
    far = new InnerService({
      config: `models:
  - id: far
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: openai, url: "${upstream.url}" } ]`,
    });
    await far.start();
  });
  after(async () => {
    await far.verify();
    await far.dispose();
    await upstream.close();
  });

  const retrying = (maxRetries: number) => {
    const statuses: number[] = [];
    const asking = new OpenAI({
      apiKey: far.key,
      baseURL: `${far.url}/v1`,
      maxRetries,
      timeout: 120_000,
      fetch: async (...args: Parameters<typeof fetch>) => {
        const answer = await fetch(...args);
        statuses.push(answer.status);
        return answer;
      },
    });
    return { asking, statuses };
  };

  test('a 429 with Retry-After is waited for and tried again', async () => {
    failures = [{ status: 429, headers: { 'retry-after': '1' } }];
    const { asking, statuses } = retrying(2);
    const startedMs = performance.now();
    const answer = await asking.chat.completions.create({ model: 'far', messages: user('hi') });
    assert.equal(answer.choices[0]?.message.content, 'fine');
    assert.deepEqual(statuses, [429, 200]);
    assert.ok(performance.now() - startedMs >= 990, 'it waits for as long as Retry-After says');
  });

  test('one that goes on is thrown after the last try', async () => {
    failures = Array.from({ length: 9 }, () => ({ status: 429, headers: { 'retry-after': '1' } }));
    const { asking, statuses } = retrying(1);
    const asked = asking.chat.completions.create({ model: 'far', messages: user('hi') });
    await assert.rejects(asked, (error: unknown) => {
      assert.ok(error instanceof RateLimitError, String(error));
      assert.equal(error.code, 'backend_overloaded');
      assert.equal(error.headers.get('retry-after'), '1');
      assert.match(error.requestID ?? '', /^req_[0-9a-f]{12}$/);
      return true;
    });
    assert.deepEqual(statuses, [429, 429]);
  });

  test('failures of the backend are tried again too, each as a request of its own that costs nothing', async () => {
    failures = [{ status: 500 }];
    const before = (await far.usage()).requests.length;
    const { asking, statuses } = retrying(2);
    await asking.chat.completions.create({ model: 'far', messages: user('hi') });
    assert.equal(statuses.at(-1), 200);
    const { requests } = await far.usage();
    const own = requests.slice(0, requests.length - before);
    assert.equal(own.length, statuses.length);
    assert.deepEqual(
      own.map(({ ending, cost_microcents: cost }) => [ending, cost > 0]),
      [['finished', true], ...statuses.slice(0, -1).map(() => ['failed', false])],
    );
  });

  test('a stopped service is a connection error', async () => {
    const { asking } = retrying(0);
    const gone = new OpenAI({ apiKey: far.key, baseURL: 'http://127.0.0.1:1/v1', maxRetries: 0 });
    await assert.rejects(gone.models.list().then(), APIConnectionError);
    assert.ok((await asking.models.list()).data.length > 0);
  });
});

describe('errors that belong to tools and formats', () => {
  const create = (more: object) =>
    client.chat.completions.create({ model: 'demo', messages: user('hi'), ...more } as never) as PromiseLike<unknown>;
  const tool = (name: string, parameters: object = { type: 'object', properties: {} }) => ({
    type: 'function',
    function: { name, parameters },
  });
  for (const [what, more, code, param] of [
    ['two tools of one name', { tools: [tool('a'), tool('a')] }, 'duplicate_tool_name', 'tools[1].function.name'],
    ['a tool of another type', { tools: [{ type: 'web_search' }] }, 'unsupported_tool_type', 'tools[0].type'],
    [
      'parameters that are no object',
      { tools: [tool('a', { type: 'string' })] },
      'tool_schema_invalid',
      'tools[0].function.parameters',
    ],
    [
      'a choice of a tool that is not there',
      { tools: [tool('a')], tool_choice: { type: 'function', function: { name: 'b' } } },
      'tool_choice_unknown_tool',
      'tool_choice.function.name',
    ],
    [
      'a format that does not exist',
      { response_format: { type: 'xml' } },
      'unsupported_response_format',
      'response_format.type',
    ],
    ['an effort that does not exist', { reasoning_effort: 'minimal' }, 'unsupported_value', 'reasoning_effort'],
  ] as const) {
    test(`${what}: ${code}`, async () => {
      await assert.rejects(Promise.resolve(create(more)), (error: unknown) => {
        assert.ok(error instanceof OpenAI.BadRequestError, String(error));
        assert.deepEqual([error.code, error.param, error.type], [code, param, 'invalid_request_error']);
        return true;
      });
    });
  }

  test('a failure of the service itself is an InternalServerError', async () => {
    await assert.rejects(
      client.chat.completions.create({ model: 'demo', messages: user('internal error') }).then(),
      (error: unknown) => error instanceof InternalServerError && error.code === 'internal_error',
    );
  });
});
