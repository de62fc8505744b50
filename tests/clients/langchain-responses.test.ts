import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

import { InnerService } from '../support/service.ts';
import { weatherScripts } from './weather-scripts.ts';

/** LangChain with its OpenAI model on /v1/responses. */
const service = new InnerService({ config: weatherScripts('demo') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const modelOf = () =>
  new ChatOpenAI({
    model: 'demo',
    apiKey: service.key,
    maxRetries: 0,
    useResponsesApi: true,
    configuration: { baseURL: `${service.url}/v1` },
  });
const weather = tool(() => 'sunny', { name: 'get_weather', schema: z.object({ city: z.string() }) });

test('invoke and stream', async () => {
  const answer = await modelOf().invoke('hi');
  assert.equal(answer.text, 'hello world');
  let text = '';
  for await (const chunk of await modelOf().stream('hi')) text += chunk.text;
  assert.equal(text, 'hello world');
});

test('calls tools and goes on with their results', async () => {
  const model = modelOf().bindTools([weather]);
  const question = new HumanMessage('two cities');
  const called = await model.invoke([question]);
  assert.deepEqual(
    called.tool_calls?.map(({ args }) => args),
    [{ city: 'Bern' }, { city: 'Rom' }],
  );
  const results = called.tool_calls.map(({ id }) => new ToolMessage({ content: 'sunny', tool_call_id: id ?? '' }));
  const answer = await model.invoke([question, called, ...results]);
  assert.equal(answer.text, 'It is sunny.');
});

test('structured output', async () => {
  const City = z.object({ name: z.string(), inhabitants: z.number(), tags: z.array(z.string()) });
  const structured = modelOf().withStructuredOutput(City, { method: 'jsonSchema', name: 'city' });
  assert.deepEqual(await structured.invoke('city as JSON'), { name: 'Bern', inhabitants: 134_000, tags: ['old'] });
});

test('a failure in the middle is thrown, not a short answer', async () => {
  await assert.rejects(async () => {
    for await (const _ of await modelOf().stream('fail in the middle'));
  });
});
