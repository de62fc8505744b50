import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import OpenAI, { toFile } from 'openai';

import { InnerService, noFeatures, scriptedModel, until } from '../support/service.ts';

/** Batches with the official client, unmodified. */
const service = new InnerService({
  config: scriptedModel('- say: [ { text: "one two three" } ]', { settings: noFeatures }),
});
let openai: OpenAI;
before(async () => {
  await service.start();
  openai = new OpenAI({ baseURL: `${service.url}/v1`, apiKey: service.key, maxRetries: 0 });
});
after(async () => {
  await service.verify();
  await service.dispose();
});

test('create, retrieve, list over pages, results, cancel', async () => {
  const lines = ['a', 'b', 'c'].map((id) => ({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'demo', messages: [{ role: 'user', content: id }] },
  }));
  const file = await openai.files.create({
    file: await toFile(Buffer.from(lines.map((line) => JSON.stringify(line)).join('\n')), 'requests.jsonl'),
    purpose: 'batch',
  });
  const made: string[] = [];
  for (let count = 0; count < 3; count++) {
    const batch = await openai.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      metadata: { count: String(count) },
    });
    assert.deepEqual([batch.object, batch.metadata], ['batch', { count: String(count) }]);
    made.push(batch.id);
    await until(async () => (await openai.batches.retrieve(batch.id)).status === 'completed');
  }
  const done = await openai.batches.retrieve(made[0]!);
  assert.deepEqual(done.request_counts, { total: 3, completed: 3, failed: 0 });
  assert.ok(done.output_file_id);
  const text = await (await openai.files.content(done.output_file_id)).text();
  const results = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { custom_id: string; response: { body: OpenAI.ChatCompletion } });
  assert.deepEqual(
    results.map(({ custom_id: id, response }) => [id, response.body.choices[0]?.message.content]),
    [
      ['a', 'one two three'],
      ['b', 'one two three'],
      ['c', 'one two three'],
    ],
  );
  assert.equal((await openai.files.retrieve(done.output_file_id)).purpose, 'batch_output');
  const listed: string[] = [];
  for await (const batch of openai.batches.list({ limit: 2 })) listed.push(batch.id);
  assert.deepEqual(listed, made.toReversed());
  assert.equal((await openai.batches.cancel(made[0]!)).status, 'completed', 'what is over stays over');
  await assert.rejects(openai.batches.retrieve('batch_none'), OpenAI.NotFoundError);
});
