import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import OpenAI from 'openai';

import { TestService, scriptedModel } from '../support/service.ts';

const service = new TestService({ config: scriptedModel(`- say: [ { text: "hello world" } ]`) });
before(() => service.start());
after(() => service.dispose());

test('a whole answer', async () => {
  const client = new OpenAI({ apiKey: service.key, baseURL: `${service.url}/v1`, maxRetries: 0 });
  const answer = await client.chat.completions.create({ model: 'demo', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(answer.choices[0]?.message.content, 'hello world');
});
