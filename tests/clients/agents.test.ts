import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from '@openai/agents';
import { z } from 'zod';

import { InnerService } from '../support/service.ts';
import { weatherScripts } from './weather-scripts.ts';

/** OpenAI Agents on /v1/responses: its loop calls the tools. */
const service = new InnerService({ config: weatherScripts('demo') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

setTracingDisabled(true);

for (const stream of [false, true]) {
  test(`a tool loop, ${stream ? 'streamed' : 'whole'}`, async () => {
    const cities: string[] = [];
    const weather = tool({
      name: 'get_weather',
      description: 'weather of a city',
      parameters: z.object({ city: z.string() }),
      execute: ({ city }) => {
        cities.push(city);
        return cities.length === 1 ? 'first: sunny' : 'sunny';
      },
    });
    const agent = new Agent({ name: 'weather', instructions: 'Be brief.', model: 'demo', tools: [weather] });
    const modelProvider = new OpenAIProvider({
      apiKey: service.key,
      baseURL: `${service.url}/v1`,
      useResponses: true,
    });
    const runner = new Runner({ modelProvider, tracingDisabled: true });
    let text: string | undefined;
    if (stream) {
      const result = await runner.run(agent, 'step by step', { stream: true });
      await result.completed;
      text = result.finalOutput;
    } else text = (await runner.run(agent, 'step by step')).finalOutput;
    assert.equal(text, 'Both are sunny.');
    assert.deepEqual(cities, ['Bern', 'Rom']);
  });
}
