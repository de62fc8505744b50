import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestService, scriptedModel } from '../support/service.ts';
import { jsonOf, runCommand } from './command.ts';

/** What an operator does takes effect in the running service at once: credit can be spent, a revoked key is dead. */
const service = new TestService({
  firstCreditCents: '0',
  config: scriptedModel(`
- when: { last_text: "hang" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 1, type: hang }
- say: [ { text: "hello" } ]
`),
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const body = (content: string, stream = false) => ({
  model: 'demo',
  messages: [{ role: 'user', content }],
  max_tokens: 10,
  stream,
});

test('a grant can be spent by the next request', async () => {
  for (let refusal = 0; refusal < 3; refusal++) assert.equal((await service.chat(body('hi'))).status, 402);
  const grant = await runCommand(service.folder, ['credits', 'grant', '--cents', '1']);
  assert.equal(grant.code, 0, grant.stderr);
  assert.equal((await service.chat(body('hi'))).status, 200);
});

test('a revoked key is refused, and what runs on it is cut with the reason and charged so far', async () => {
  const made = jsonOf(await runCommand(service.folder, ['keys', 'create', '--json'])) as { id: string; key: string };
  const stream = await service.chat(body('hang', true), { key: made.key });
  const id = stream.headers.get('x-request-id');
  const reader = stream.body?.pipeThrough(new TextDecoderStream()).getReader();
  assert.ok(reader);
  let text = '';
  while (!text.includes('one')) text += (await reader.read()).value ?? '';

  const revoked = await runCommand(service.folder, ['keys', 'revoke', made.id]);
  assert.equal(revoked.code, 0, revoked.stderr);
  assert.equal((await service.chat(body('hi'), { key: made.key })).status, 401);
  for (let read = await reader.read(); !read.done; read = await reader.read()) text += read.value;
  assert.match(text, /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n$/);
  const receipt = (await service.usage()).requests.find((line) => line.request_id === id);
  assert.equal(receipt?.ending, 'revoked');
  assert.equal(receipt.completion_tokens, 1);
  assert.equal(receipt.cost_microcents, receipt.prompt_tokens * 5 + 20);
  // Other keys of the account go on.
  assert.equal((await service.chat(body('hi'))).status, 200);
});
