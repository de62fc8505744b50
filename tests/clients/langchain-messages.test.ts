import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { ChatAnthropic } from '@langchain/anthropic';
import { HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import type { AIMessage, AIMessageChunk, BaseMessage, UsageMetadata } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { z } from 'zod';

import { InnerService } from '../support/service.ts';
import { weatherScripts } from './weather-scripts.ts';

/** LangChain's ChatAnthropic with our base address: what an application that is written with it gets. */
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

const modelOf = (more: ConstructorParameters<typeof ChatAnthropic>[0] & object = {}) =>
  new ChatAnthropic({
    model: 'demo',
    apiKey: service.key,
    anthropicApiUrl: service.url,
    maxRetries: 0,
    maxTokens: 100,
    ...more,
  });

const City = z.object({ name: z.string(), inhabitants: z.number().int(), tags: z.array(z.enum(['old', 'new'])) });
const bern = { name: 'Bern', inhabitants: 134_000, tags: ['old'] };
const getWeather = tool(({ city }) => `sunny in ${city}`, {
  name: 'get_weather',
  description: 'weather of a city',
  schema: z.object({ city: z.string() }),
});
const usageOf = (message: object): UsageMetadata | undefined =>
  (message as { usage_metadata?: UsageMetadata }).usage_metadata;

test('invoke has text, stop reason and usage', async () => {
  const answer = await modelOf().invoke([new SystemMessage('Be brief.'), new HumanMessage('hi')]);
  assert.equal(answer.text, 'hello world');
  assert.equal(answer.response_metadata['stop_reason'], 'end_turn');
  assert.equal(usageOf(answer)?.output_tokens, 2);
  assert.match(answer.id ?? '', /^msg_/);
});

test('stream has the same text in pieces, and the usage', async () => {
  const pieces: string[] = [];
  let whole: AIMessageChunk | undefined;
  for await (const chunk of await modelOf().stream('hi')) {
    if (chunk.text !== '') pieces.push(chunk.text);
    whole = whole === undefined ? chunk : whole.concat(chunk);
  }
  assert.deepEqual(pieces, ['hello', ' world']);
  // It adds the one token that every stream of this wire begins with to what the end tells.
  assert.equal(usageOf(whole ?? {})?.output_tokens, 3);
});

test('tools are called and answered, whole and streamed', async () => {
  const model = modelOf().bindTools([getWeather]);
  const messages: BaseMessage[] = [new HumanMessage('two cities')];
  const answer: AIMessage = await model.invoke(messages);
  assert.deepEqual(
    answer.tool_calls?.map(({ args }) => args),
    [{ city: 'Bern' }, { city: 'Rom' }],
  );
  messages.push(answer);
  for (const call of answer.tool_calls ?? [])
    messages.push(
      new ToolMessage({ tool_call_id: call.id ?? '', content: await getWeather.invoke(call.args as never) }),
    );
  assert.equal((await model.invoke(messages)).text, 'It is sunny.');
  let whole: AIMessageChunk | undefined;
  for await (const chunk of await model.stream('weather')) whole = whole === undefined ? chunk : whole.concat(chunk);
  assert.deepEqual(
    whole?.tool_calls?.map(({ args }) => args),
    [{ city: 'Bern' }],
  );
});

test('structured output is the object of the schema', async () => {
  const object = await modelOf().withStructuredOutput(City, { name: 'city' }).invoke('city by call');
  assert.deepEqual(object, bern);
});

test('thinking is a block of its own', async () => {
  const answer = await modelOf({ maxTokens: 2000, thinking: { type: 'enabled', budget_tokens: 1024 } }).invoke('think');
  const blocks = answer.content as { type: string; thinking?: string }[];
  assert.deepEqual([blocks[0]?.type, blocks[0]?.thinking, answer.text], ['thinking', 'hm well', 'yes sir']);
});

test('errors are thrown, before the stream and in it', async () => {
  const failure = (promise: Promise<unknown>) =>
    promise.then(
      () => assert.fail('it was not refused'),
      (error: unknown) => error as { status?: number; message: string },
    );
  assert.equal((await failure(modelOf({ apiKey: 'tkh_wrong' }).invoke('hi'))).status, 401);
  const broken = await failure(
    (async () => {
      for await (const _ of await modelOf().stream('fail in the middle'));
    })(),
  );
  assert.match(broken.message, /timeout_error|script of the model/);
});
