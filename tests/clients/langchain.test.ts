import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import type { AIMessage, AIMessageChunk, UsageMetadata } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

import { InnerService, until } from '../support/service.ts';
import { weatherScripts } from './weather-scripts.ts';

/** LangChain's ChatOpenAI with our base address: what an application that is written with it gets. */
const service = new InnerService({ config: weatherScripts('demo') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const modelOf = (more: ConstructorParameters<typeof ChatOpenAI>[0] & object = {}) =>
  new ChatOpenAI({
    model: 'demo',
    apiKey: service.key,
    maxRetries: 0,
    ...more,
    configuration: { ...more.configuration, baseURL: `${service.url}/v1` },
  });

const City = z.object({ name: z.string(), inhabitants: z.number().int(), tags: z.array(z.enum(['old', 'new'])) });
const bern = { name: 'Bern', inhabitants: 134_000, tags: ['old'] };
const getWeather = tool(({ city }) => `sunny in ${city}`, {
  name: 'get_weather',
  description: 'weather of a city',
  schema: z.object({ city: z.string() }),
});

/** The types of the library lose it. */
const usageOf = (message: object | undefined): UsageMetadata | undefined =>
  (message as { usage_metadata?: UsageMetadata } | undefined)?.usage_metadata;

/** Code and status of the error that a promise rejects with. */
async function failureOf(promise: Promise<unknown>): Promise<{ status?: number; code?: string; name: string }> {
  return await promise.then(
    () => assert.fail('it was not refused'),
    (error: unknown) => error as { status?: number; code?: string; name: string },
  );
}

describe('invoke', () => {
  test('has text, finish reason and usage', async () => {
    const answer = await modelOf().invoke('hi');
    assert.equal(answer.content, 'hello world');
    assert.equal(answer.response_metadata['finish_reason'], 'stop');
    assert.equal(usageOf(answer)?.output_tokens, 2);
    assert.equal(usageOf(answer)?.total_tokens, (usageOf(answer)?.input_tokens ?? 0) + 2);
    assert.match(answer.id ?? '', /^chatcmpl-/);
  });

  test('stops at maxTokens', async () => {
    const answer = await modelOf({ maxTokens: 1 }).invoke('hi');
    assert.equal(answer.content, 'hello');
    assert.equal(answer.response_metadata['finish_reason'], 'length');
  });
});

describe('stream', () => {
  test('gives chunks that join to the answer, with the usage in the end', async () => {
    let joined: AIMessageChunk | undefined;
    const texts: unknown[] = [];
    for await (const chunk of await modelOf().stream('hi')) {
      if (chunk.content !== '') texts.push(chunk.content);
      joined = joined === undefined ? chunk : joined.concat(chunk);
    }
    assert.deepEqual(texts, ['hello', ' world']);
    assert.equal(joined?.content, 'hello world');
    assert.equal(usageOf(joined)?.output_tokens, 2);
  });

  test('gives tool calls in pieces that join to whole ones', async () => {
    let joined: AIMessageChunk | undefined;
    for await (const chunk of await modelOf().bindTools([getWeather]).stream('two cities'))
      joined = joined === undefined ? chunk : joined.concat(chunk);
    assert.deepEqual(
      joined?.tool_calls?.map(({ name, args }) => [name, args]),
      [
        ['get_weather', { city: 'Bern' }],
        ['get_weather', { city: 'Rom' }],
      ],
    );
  });

  test('throws an error in the middle, after the text that came', async () => {
    let text = '';
    const error = await failureOf(
      (async () => {
        for await (const chunk of await modelOf().stream('fail in the middle')) text += String(chunk.content);
      })(),
    );
    assert.equal(text, 'one two');
    assert.equal(error.code, 'backend_timeout');
  });

  test('that is aborted ends the request as client_left', async () => {
    const controller = new AbortController();
    await failureOf(
      (async () => {
        for await (const chunk of await modelOf().stream('drip', { signal: controller.signal }))
          if (chunk.content !== '') controller.abort();
        throw new DOMException('the stream ended by itself', 'AbortError');
      })(),
    );
    await until(async () => (await service.usage()).requests[0]?.ending === 'client_left', 60_000);
  });
});

describe('tools', () => {
  test('bindTools: the call, its result, the answer', async () => {
    const model = modelOf().bindTools([getWeather]);
    const question = new HumanMessage('two cities');
    const asked: AIMessage = await model.invoke([question]);
    assert.equal(asked.tool_calls?.length, 2);
    assert.equal(asked.response_metadata['finish_reason'], 'tool_calls');
    const results: ToolMessage[] = [];
    for (const call of asked.tool_calls ?? []) {
      const said: unknown = await getWeather.invoke({ ...call, type: 'tool_call' });
      assert.ok(ToolMessage.isInstance(said));
      results.push(said);
    }
    assert.deepEqual(
      results.map(({ content }) => content),
      ['sunny in Bern', 'sunny in Rom'],
    );
    const answer = await model.invoke([question, asked, ...results]);
    assert.equal(answer.content, 'It is sunny.');
  });
});

describe('withStructuredOutput', () => {
  for (const method of ['jsonSchema', 'functionCalling'] as const) {
    test(`gives the object of the schema (${method})`, async () => {
      const structured = modelOf().withStructuredOutput(City, { name: 'city', method });
      assert.deepEqual(await structured.invoke(method === 'jsonSchema' ? 'city as JSON' : 'city by call'), bern);
    });
  }
});

describe('errors', () => {
  test('have status and code', async () => {
    const wrongKey = await failureOf(modelOf({ apiKey: 'sk-wrong' }).invoke('hi'));
    assert.deepEqual([wrongKey.status, wrongKey.code], [401, 'invalid_api_key']);
    const unknown = await failureOf(modelOf({ model: 'nothing' }).invoke('hi'));
    assert.deepEqual([unknown.status, unknown.code], [404, 'model_not_found']);
    const overloaded = await failureOf(modelOf().invoke('overloaded'));
    assert.deepEqual([overloaded.status, overloaded.code], [429, 'backend_overloaded']);
  });

  test('of the kind 429 are tried again after Retry-After, without which the library gives up at once', async () => {
    const statuses: number[] = [];
    const retrying = modelOf({
      maxRetries: 1,
      configuration: {
        fetch: async (...args: Parameters<typeof fetch>) => {
          const answer = await fetch(...args);
          statuses.push(answer.status);
          return answer;
        },
      },
    });
    await failureOf(retrying.invoke('overloaded'));
    assert.deepEqual(statuses, [429, 429]);
  });
});
