import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from 'ai';
import { z } from 'zod';

import { InnerService, until } from '../support/service.ts';
import { weatherScripts } from './weather-scripts.ts';

/** The AI SDK with its provider for compatible servers: what an application that is written with it gets. */
const service = new InnerService({ config: weatherScripts('demo') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const modelOf = (apiKey = service.key) =>
  createOpenAICompatible({
    name: 'tokenhouse',
    baseURL: `${service.url}/v1`,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  })('demo');

const City = z.object({ name: z.string(), inhabitants: z.number().int(), tags: z.array(z.enum(['old', 'new'])) });
const bern = { name: 'Bern', inhabitants: 134_000, tags: ['old'] };

const weatherTool = (cities: string[]) =>
  tool({
    description: 'weather of a city',
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      cities.push(city);
      return cities.length === 1 ? `first: sunny in ${city}` : `sunny in ${city}`;
    },
  });

/** The one error of a stream, which the SDK hands over instead of throwing it. */
const caughtBy = (errors: unknown[]) => ({ onError: ({ error }: { error: unknown }) => void errors.push(error) });

describe('generateText', () => {
  test('has text, finish reason, usage and the id of the answer', async () => {
    const answer = await generateText({ model: modelOf(), prompt: 'hi', maxRetries: 0 });
    assert.equal(answer.text, 'hello world');
    assert.equal(answer.finishReason, 'stop');
    assert.equal(answer.usage.outputTokens, 2);
    assert.equal(answer.usage.totalTokens, (answer.usage.inputTokens ?? 0) + 2);
    assert.match(answer.response.id, /^chatcmpl-/);
    assert.match(answer.response.headers?.['x-request-id'] ?? '', /^req_[0-9a-f]{12}$/);
    assert.deepEqual(answer.warnings ?? [], []);
  });

  test('has the reasoning apart from the text', async () => {
    const answer = await generateText({ model: modelOf(), prompt: 'think', maxRetries: 0 });
    assert.deepEqual([answer.reasoningText, answer.text], ['hm well', 'yes sir']);
  });

  test('stops at maxOutputTokens', async () => {
    const answer = await generateText({ model: modelOf(), prompt: 'hi', maxOutputTokens: 1, maxRetries: 0 });
    assert.deepEqual([answer.text, answer.finishReason], ['hello', 'length']);
  });

  test('calls tools and goes on with their results', async () => {
    const cities: string[] = [];
    const answer = await generateText({
      model: modelOf(),
      prompt: 'two cities',
      tools: { get_weather: weatherTool(cities) },
      stopWhen: stepCountIs(5),
      maxRetries: 0,
    });
    assert.equal(answer.text, 'It is sunny.');
    assert.deepEqual(cities.toSorted(), ['Bern', 'Rom']);
    assert.deepEqual(
      answer.steps.map(({ finishReason }) => finishReason),
      ['tool-calls', 'stop'],
    );
  });

  test('calls tools in several steps', async () => {
    const cities: string[] = [];
    const answer = await generateText({
      model: modelOf(),
      prompt: 'step by step',
      tools: { get_weather: weatherTool(cities) },
      stopWhen: stepCountIs(5),
      maxRetries: 0,
    });
    assert.equal(answer.text, 'Both are sunny.');
    assert.deepEqual(cities, ['Bern', 'Rom']);
    assert.equal(answer.steps.length, 3);
  });
});

describe('streamText', () => {
  test('streams the text, then finish and usage', async () => {
    const result = streamText({ model: modelOf(), prompt: 'hi', maxRetries: 0 });
    const parts: string[] = [];
    for await (const part of result.textStream) parts.push(part);
    assert.deepEqual(parts, ['hello', ' world']);
    assert.equal(await result.finishReason, 'stop');
    assert.equal((await result.usage).outputTokens, 2);
  });

  test('streams reasoning before the text', async () => {
    const result = streamText({ model: modelOf(), prompt: 'think', maxRetries: 0 });
    const types: string[] = [];
    for await (const part of result.fullStream) if (/-(delta|start|end)$/.test(part.type)) types.push(part.type);
    assert.deepEqual([await result.reasoningText, await result.text], ['hm well', 'yes sir']);
    assert.ok(types.lastIndexOf('reasoning-delta') < types.indexOf('text-delta'), types.join());
  });

  test('calls tools, several at once and in several steps', async () => {
    for (const [prompt, text, steps] of [
      ['two cities', 'It is sunny.', 2],
      ['step by step', 'Both are sunny.', 3],
    ] as const) {
      const cities: string[] = [];
      const result = streamText({
        model: modelOf(),
        prompt,
        tools: { get_weather: weatherTool(cities) },
        stopWhen: stepCountIs(5),
        maxRetries: 0,
      });
      await result.consumeStream();
      assert.equal(await result.text, text);
      assert.deepEqual(cities.toSorted(), ['Bern', 'Rom']);
      assert.equal((await result.steps).length, steps);
    }
  });

  test('hands over an error in the middle, after the text that came', async () => {
    const errors: unknown[] = [];
    const result = streamText({ model: modelOf(), prompt: 'fail in the middle', maxRetries: 0, ...caughtBy(errors) });
    let text = '';
    for await (const part of result.textStream) text += part;
    assert.equal(text, 'one two');
    assert.equal(errors.length, 1);
    assert.match(JSON.stringify(errors[0]) + String(errors[0]), /backend_timeout|script of the model/);
    assert.equal(await result.finishReason, 'error');
  });

  test('that is aborted ends the request as client_left', async () => {
    const controller = new AbortController();
    const result = streamText({
      model: modelOf(),
      prompt: 'drip',
      abortSignal: controller.signal,
      maxRetries: 0,
      onError: () => {},
    });
    let aborted = false;
    for await (const part of result.fullStream) {
      if (part.type === 'text-delta') controller.abort();
      aborted ||= part.type === 'abort';
    }
    assert.ok(aborted);
    await until(async () => (await service.usage()).requests[0]?.ending === 'client_left', 60_000);
  });
});

describe('objects', () => {
  test('generateObject gives the object of the schema', async () => {
    const { object, usage } = await generateObject({
      model: modelOf(),
      schema: City,
      prompt: 'city as JSON',
      maxRetries: 0,
    });
    assert.deepEqual(object, bern);
    assert.ok((usage.outputTokens ?? 0) > 0);
  });

  test('streamObject gives its parts on the way', async () => {
    const result = streamObject({ model: modelOf(), schema: City, prompt: 'city as JSON', maxRetries: 0 });
    const partial: unknown[] = [];
    for await (const part of result.partialObjectStream) partial.push(part);
    assert.ok(partial.length > 1);
    assert.deepEqual(partial.at(-1), bern);
    assert.deepEqual(await result.object, bern);
  });
});

describe('errors', () => {
  test('are APICallErrors with status, our message and the envelope', async () => {
    await assert.rejects(
      generateText({ model: modelOf('sk-wrong'), prompt: 'hi', maxRetries: 0 }),
      (error: unknown) => {
        assert.ok(APICallError.isInstance(error), String(error));
        assert.equal(error.statusCode, 401);
        assert.equal(error.isRetryable, false);
        assert.match(error.message, /API key/);
        const { error: envelope } = JSON.parse(error.responseBody ?? '{}') as { error: Record<string, unknown> };
        assert.equal(envelope['code'], 'invalid_api_key');
        return true;
      },
    );
  });

  test('of the backend may be tried again, and are', async () => {
    const before = (await service.usage()).requests.length;
    await assert.rejects(
      generateText({ model: modelOf(), prompt: 'overloaded', maxRetries: 1 }),
      /Failed after 2 attempts/,
    );
    assert.equal((await service.usage()).requests.length, before + 2);
  });
});
