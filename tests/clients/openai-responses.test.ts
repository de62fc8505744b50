import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import OpenAI, { APIError, BadRequestError } from 'openai';
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import type { ResponseInput, ResponseInputItem } from 'openai/resources/responses/responses';
import { z } from 'zod';

import { InnerService } from '../support/service.ts';
import { weatherScripts } from './weather-scripts.ts';

/** The official client of OpenAI on /v1/responses: create, stream helper, parse, tool loops, counting. */
const service = new InnerService({ config: weatherScripts('demo') });
let client: OpenAI;
before(async () => {
  await service.start();
  client = new OpenAI({ apiKey: service.key, baseURL: `${service.url}/v1`, maxRetries: 0 });
});
after(async () => {
  await service.verify();
  await service.dispose();
});

const City = z.object({ name: z.string(), inhabitants: z.number().int(), tags: z.array(z.enum(['old', 'new'])) });
const bern = { name: 'Bern', inhabitants: 134_000, tags: ['old'] };
const weather = zodResponsesFunction({ name: 'get_weather', parameters: z.object({ city: z.string() }) });

describe('responses.create', () => {
  test('has the text, the usage and the request id', async () => {
    const answer = await client.responses.create({ model: 'demo', input: 'hi', metadata: { a: 'b' } });
    assert.equal(answer.output_text, 'hello world');
    assert.equal(answer.status, 'completed');
    assert.equal(answer.usage?.output_tokens, 2);
    assert.deepEqual(answer.metadata, { a: 'b' });
    assert.match(answer._request_id ?? '', /^req_[0-9a-f]{12}$/);
  });

  test('has reasoning as a summary', async () => {
    const { output, output_text: text } = await client.responses.create({ model: 'demo', input: 'think' });
    const [reasoning] = output;
    assert.ok(reasoning?.type === 'reasoning');
    assert.deepEqual(reasoning.summary, [{ type: 'summary_text', text: 'hm well' }]);
    assert.equal(text, 'yes sir');
  });

  test('stops at max_output_tokens', async () => {
    const answer = await client.responses.create({ model: 'demo', input: 'hi', max_output_tokens: 1 });
    assert.deepEqual([answer.status, answer.incomplete_details?.reason], ['incomplete', 'max_output_tokens']);
    assert.equal(answer.output_text, 'hello');
  });

  for (const how of ['the items themselves', 'references']) {
    test(`a tool loop by ${how}`, async () => {
      const input: ResponseInput = [{ role: 'user', content: 'step by step' }];
      const cities: string[] = [];
      for (let turn = 0; turn < 5; turn++) {
        const answer = await client.responses.create({ model: 'demo', input, tools: [weather] });
        for (const item of answer.output) {
          input.push(
            how === 'references' ? { type: 'item_reference', id: item.id ?? '' } : (item as ResponseInputItem),
          );
        }
        const calls = answer.output.filter((item) => item.type === 'function_call');
        if (calls.length === 0) {
          assert.equal(answer.output_text, 'Both are sunny.');
          break;
        }
        for (const { call_id, arguments: text } of calls) {
          const { city } = JSON.parse(text) as { city: string };
          cities.push(city);
          input.push({ type: 'function_call_output', call_id, output: turn === 0 ? 'first: sunny' : 'sunny' });
        }
      }
      assert.deepEqual(cities, ['Bern', 'Rom']);
    });
  }
});

describe('a stream', () => {
  test('read with for await', async () => {
    const stream = await client.responses.create({ model: 'demo', input: 'hi', stream: true });
    let text = '';
    const types: string[] = [];
    for await (const event of stream) {
      types.push(event.type);
      if (event.type === 'response.output_text.delta') text += event.delta;
      if (event.type === 'response.completed') assert.equal(event.response.usage?.output_tokens, 2);
    }
    assert.equal(text, 'hello world');
    assert.deepEqual([types[0], types.at(-1)], ['response.created', 'response.completed']);
  });

  test('read with the stream helper', async () => {
    const stream = client.responses.stream({ model: 'demo', input: 'two cities', tools: [weather] });
    let fragments = '';
    stream.on('response.function_call_arguments.delta', ({ delta }) => (fragments += delta));
    const final = await stream.finalResponse();
    const calls = final.output.filter((item) => item.type === 'function_call');
    assert.equal(calls.map((call) => call.arguments).join(''), fragments);
    assert.deepEqual(
      calls.map(({ parsed_arguments: parsed }) => parsed as unknown),
      [{ city: 'Bern' }, { city: 'Rom' }],
    );
  });

  test('parses structured output at its end', async () => {
    const stream = client.responses.stream({
      model: 'demo',
      input: 'city as JSON',
      text: { format: zodTextFormat(City, 'city') },
    });
    assert.deepEqual((await stream.finalResponse()).output_parsed, bern);
  });

  test('that fails in the middle throws with the code, after the text that came', async () => {
    const stream = await client.responses.create({ model: 'demo', input: 'fail in the middle', stream: true });
    let text = '';
    await assert.rejects(
      async () => {
        for await (const event of stream) if (event.type === 'response.output_text.delta') text += event.delta;
      },
      (error: unknown) =>
        error instanceof APIError && error.code === 'backend_timeout' && error.type === 'server_error',
    );
    assert.equal(text, 'one two');
  });
});

test('responses.parse', async () => {
  const answer = await client.responses.parse({
    model: 'demo',
    input: 'city as JSON',
    text: { format: zodTextFormat(City, 'city') },
  });
  assert.deepEqual(answer.output_parsed, bern);
  const called = await client.responses.parse({ model: 'demo', input: 'weather', tools: [weather] });
  const [call] = called.output;
  assert.ok(call?.type === 'function_call');
  assert.deepEqual(call.parsed_arguments as unknown, { city: 'Bern' });
});

test('responses.inputTokens.count', async () => {
  const short = await client.responses.inputTokens.count({ model: 'demo', input: 'hi' });
  const long = await client.responses.inputTokens.count({ model: 'demo', input: 'hi '.repeat(200), tools: [weather] });
  assert.equal(short.object, 'response.input_tokens');
  assert.ok(long.input_tokens > short.input_tokens + 100);
  const answer = await client.responses.create({ model: 'demo', input: 'hi' });
  assert.equal(short.input_tokens, answer.usage?.input_tokens);
});

test('what is not supported is a BadRequestError with its param', async () => {
  await assert.rejects(
    client.responses.create({ model: 'demo', input: 'hi', previous_response_id: 'resp_1' }),
    (error: unknown) => error instanceof BadRequestError && error.param === 'previous_response_id',
  );
  await assert.rejects(client.responses.retrieve('resp_1'), { status: 404 });
});
