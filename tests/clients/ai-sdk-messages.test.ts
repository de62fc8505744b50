import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { createAnthropic } from '@ai-sdk/anthropic';
import { APICallError, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from 'ai';
import { z } from 'zod';

import { InnerService, until } from '../support/service.ts';
import { weatherScripts } from './weather-scripts.ts';

/** The AI SDK with its provider for messages: what an application that is written with it gets. */
const service = new InnerService({
  config: weatherScripts('demo').replace(
    /^( +)backends:/m,
    '$1reasoning: { efforts: [none, low, high], default: none }\n$1backends:',
  ),
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const modelOf = (apiKey = service.key) => createAnthropic({ baseURL: `${service.url}/v1`, apiKey })('demo');

const City = z.object({ name: z.string(), inhabitants: z.number().int(), tags: z.array(z.enum(['old', 'new'])) });
const bern = { name: 'Bern', inhabitants: 134_000, tags: ['old'] };
const thinking = { anthropic: { thinking: { type: 'enabled' as const, budgetTokens: 1024 } } };

const weatherTool = (cities: string[]) =>
  tool({
    description: 'weather of a city',
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      cities.push(city);
      return cities.length === 1 ? `first: sunny in ${city}` : `sunny in ${city}`;
    },
  });

describe('generateText', () => {
  test('has text, finish reason, usage and the id of the answer', async () => {
    const answer = await generateText({ model: modelOf(), prompt: 'hi', maxRetries: 0 });
    assert.deepEqual([answer.text, answer.finishReason, answer.usage.outputTokens], ['hello world', 'stop', 2]);
    assert.match(answer.response.id, /^msg_/);
  });

  test('has the reasoning apart from the text', async () => {
    const answer = await generateText({ model: modelOf(), prompt: 'think', providerOptions: thinking, maxRetries: 0 });
    assert.deepEqual([answer.reasoningText, answer.text], ['hm well', 'yes sir']);
  });

  test('stops at maxOutputTokens', async () => {
    const answer = await generateText({ model: modelOf(), prompt: 'hi', maxOutputTokens: 1, maxRetries: 0 });
    assert.deepEqual([answer.text, answer.finishReason], ['hello', 'length']);
  });

  test('calls tools, several at once and in several steps', async () => {
    for (const [prompt, text, steps] of [
      ['two cities', 'It is sunny.', 2],
      ['step by step', 'Both are sunny.', 3],
    ] as const) {
      const cities: string[] = [];
      const answer = await generateText({
        model: modelOf(),
        prompt,
        tools: { get_weather: weatherTool(cities) },
        providerOptions: thinking,
        stopWhen: stepCountIs(5),
        maxRetries: 0,
      });
      assert.deepEqual([answer.text, cities.toSorted(), answer.steps.length], [text, ['Bern', 'Rom'], steps]);
    }
  });

  test('sends images', async () => {
    const image = Buffer.from(
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
      'base64',
    );
    const content = [
      { type: 'text' as const, text: 'What is this?' },
      { type: 'image' as const, image },
    ];
    const answer = await generateText({ model: modelOf(), messages: [{ role: 'user', content }], maxRetries: 0 });
    assert.equal(answer.text, 'hello world');
  });
});

describe('streamText', () => {
  test('streams reasoning, then the text, then finish and usage', async () => {
    const result = streamText({ model: modelOf(), prompt: 'think', providerOptions: thinking, maxRetries: 0 });
    const types: string[] = [];
    for await (const part of result.fullStream) if (/-(delta|start|end)$/.test(part.type)) types.push(part.type);
    assert.deepEqual([await result.reasoningText, await result.text], ['hm well', 'yes sir']);
    assert.ok(types.lastIndexOf('reasoning-delta') < types.indexOf('text-delta'), types.join());
    assert.deepEqual([await result.finishReason, (await result.usage).outputTokens], ['stop', 4]);
  });

  test('calls tools in several steps', async () => {
    const cities: string[] = [];
    const result = streamText({
      model: modelOf(),
      prompt: 'step by step',
      tools: { get_weather: weatherTool(cities) },
      stopWhen: stepCountIs(5),
      maxRetries: 0,
    });
    await result.consumeStream();
    assert.deepEqual([await result.text, cities], ['Both are sunny.', ['Bern', 'Rom']]);
    assert.equal((await result.steps).length, 3);
  });

  test('hands over an error in the middle, after the text that came', async () => {
    const errors: unknown[] = [];
    const result = streamText({
      model: modelOf(),
      prompt: 'fail in the middle',
      maxRetries: 0,
      onError: ({ error }) => void errors.push(error),
    });
    let text = '';
    for await (const part of result.textStream) text += part;
    assert.equal(text, 'one two');
    assert.equal(errors.length, 1);
    assert.match(JSON.stringify(errors[0]) + String(errors[0]), /timeout_error|script of the model/);
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
    for await (const part of result.fullStream) if (part.type === 'text-delta') controller.abort();
    await until(async () => (await service.usage()).requests[0]?.ending === 'client_left', 60_000);
  });
});

describe('objects', () => {
  // This provider asks for them by a tool whose arguments they are, and of models that it knows by a schema.
  for (const [structuredOutputMode, prompt] of [
    ['outputFormat', 'city as JSON'],
    ['jsonTool', 'city by json tool'],
  ] as const) {
    test(`generateObject and streamObject by ${structuredOutputMode}`, async () => {
      const options = {
        model: modelOf(),
        schema: City,
        prompt,
        maxRetries: 0,
        providerOptions: { anthropic: { structuredOutputMode } },
      };
      const { object } = await generateObject(options);
      assert.deepEqual(object, bern);
      const result = streamObject(options);
      const partial: unknown[] = [];
      for await (const part of result.partialObjectStream) partial.push(part);
      assert.deepEqual(partial.at(-1), bern);
    });
  }
});

describe('errors', () => {
  test('are APICallErrors with status, our message and the envelope', async () => {
    await assert.rejects(
      generateText({ model: modelOf('sk-wrong'), prompt: 'hi', maxRetries: 0 }),
      (error: unknown) => {
        assert.ok(APICallError.isInstance(error), String(error));
        assert.deepEqual([error.statusCode, error.isRetryable], [401, false]);
        assert.match(error.message, /API key/);
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
