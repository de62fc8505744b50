import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';

import { InnerService, noFeatures, scriptedModel, until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';

/** Message batches with the official client, unmodified. */
const service = new InnerService({
  config: scriptedModel(
    `- { when: { last_text: slow }, say: [{ text: ["word "] }], repeat: 2000, pace_ms: 500 }
- { say: [{ text: "one two three" }] }`,
    { settings: noFeatures },
  ),
});
let client: Anthropic;
let ledger: TestLedger;
before(async () => {
  await service.start();
  client = new Anthropic({ baseURL: service.url, apiKey: service.key, maxRetries: 0 });
  ledger = new TestLedger(service);
});
after(async () => {
  await service.verify();
  await service.dispose();
});

const request = (id: string, content: string, more: object = {}) => ({
  custom_id: id,
  params: { model: 'demo', max_tokens: 20, messages: [{ role: 'user' as const, content }], ...more },
});
const ended = async (id: string): Promise<Anthropic.Messages.MessageBatch> => {
  await until(async () => (await client.messages.batches.retrieve(id)).processing_status === 'ended');
  return await client.messages.batches.retrieve(id);
};
const resultsOf = async (id: string): Promise<readonly Anthropic.Messages.MessageBatchIndividualResponse[]> => {
  const results: Anthropic.Messages.MessageBatchIndividualResponse[] = [];
  for await (const result of await client.messages.batches.results(id)) results.push(result);
  return results;
};
const textOf = ({ result }: Anthropic.Messages.MessageBatchIndividualResponse): unknown =>
  result.type === 'succeeded' ? result.message.content.map((part) => part.type === 'text' && part.text) : result.type;

test('create, retrieve, results, list both ways, delete', async () => {
  const made = await client.messages.batches.create({
    requests: [
      request('a', 'x'),
      request('b', 'ü "quoted" {[}\\'),
      request('wrong', 'x', { model: 'none' }),
      request('d', 'x'),
    ],
  });
  assert.deepEqual(
    [made.type, made.processing_status, made.request_counts, made.results_url, made.ended_at],
    ['message_batch', 'in_progress', { processing: 4, succeeded: 0, errored: 0, canceled: 0, expired: 0 }, null, null],
  );
  const batch = await ended(made.id);
  assert.deepEqual(batch.request_counts, { processing: 0, succeeded: 3, errored: 1, canceled: 0, expired: 0 });
  assert.equal(batch.results_url, `${service.url}/v1/messages/batches/${made.id}/results`);
  assert.equal(Date.parse(batch.expires_at) - Date.parse(batch.created_at), 86_400_000);
  const results = await resultsOf(made.id);
  assert.deepEqual(
    results.map((result) => [result.custom_id, textOf(result)]),
    [
      ['a', ['one two three']],
      ['b', ['one two three']],
      ['wrong', 'errored'],
      ['d', ['one two three']],
    ],
  );
  const [first, , refused] = results;
  assert.ok(first?.result.type === 'succeeded' && refused?.result.type === 'errored');
  assert.equal(first.result.message.usage.service_tier, 'batch');
  assert.match(refused.result.error.error.message, /none/);
  const row = await ledger.row('d');
  assert.deepEqual([row.batchId, row.ending, (await ledger.sums()).count], [made.id, 'finished', 3]);
  const more = [made.id];
  for (const id of ['e', 'f'])
    more.unshift((await client.messages.batches.create({ requests: [request(id, 'x')] })).id);
  const listed: string[] = [];
  for await (const { id } of client.messages.batches.list({ limit: 2 })) listed.push(id);
  assert.deepEqual(listed, more);
  const newer = await client.messages.batches.list({ limit: 1, before_id: made.id });
  assert.deepEqual([newer.data[0]?.id, newer.has_more], [more[1], true]);
  const files = async (): Promise<number> => (await client.beta.files.list()).data.length;
  for (const id of more) await ended(id);
  assert.equal(await files(), 3, 'the results; what was sent is deleted with the last line');
  assert.deepEqual(await client.messages.batches.delete(made.id), { id: made.id, type: 'message_batch_deleted' });
  await assert.rejects(client.messages.batches.retrieve(made.id), Anthropic.NotFoundError);
  assert.equal(await files(), 2);
});

test('cancelled: what has ended is delivered, the rest is canceled and costs nothing', async () => {
  const made = await client.messages.batches.create({
    requests: [request('quick', 'x'), ...Array.from({ length: 20 }, (_, index) => request(`s-${index}`, 'slow'))],
  });
  await until(async () => (await client.messages.batches.retrieve(made.id)).request_counts.succeeded === 1);
  await assert.rejects(client.messages.batches.delete(made.id), Anthropic.BadRequestError);
  assert.equal((await client.messages.batches.cancel(made.id)).processing_status, 'canceling');
  const batch = await ended(made.id);
  assert.ok(batch.cancel_initiated_at);
  assert.deepEqual(batch.request_counts, { processing: 0, succeeded: 1, errored: 0, canceled: 20, expired: 0 });
  const results = await resultsOf(made.id);
  assert.deepEqual([results.length, textOf(results[0]!), textOf(results[20]!)], [21, ['one two three'], 'canceled']);
});

test('cancelled at once: each request has its result all the same', async () => {
  const requests = Array.from({ length: 2_000 }, (_, index) => request(`r-${index}`, 'slow'));
  const made = await client.messages.batches.create({ requests });
  await client.messages.batches.cancel(made.id);
  await ended(made.id);
  const results = await resultsOf(made.id);
  assert.deepEqual(
    [results.length, new Set(results.map(textOf)).size, new Set(results.map(({ custom_id: id }) => id)).size],
    [2_000, 1, 2_000],
  );
});

test('what is no batch is refused in the form of this interface, and nothing of it stays', async () => {
  const send = async (body: string): Promise<readonly [number, string, string]> => {
    const headers = { 'x-api-key': service.key, 'anthropic-version': '2023-06-01' };
    const answer = await fetch(`${service.url}/v1/messages/batches`, { method: 'POST', headers, body });
    const { type, error } = (await answer.json()) as { type: string; error: { type: string; message: string } };
    return [answer.status, `${type} ${error.type}`, error.message];
  };
  const before = (await client.beta.files.list()).data.length;
  const good = JSON.stringify(request('a', 'x'));
  const other = JSON.stringify(request('b', 'x'));
  for (const [body, status, message] of [
    ['', 400, /empty/],
    ['{"requests":[', 400, /JSON/],
    [`{"requests":[${good}`, 400, /./],
    [`{"requests":[${good}]`, 400, /JSON/],
    [`{"requests":[${good}]}}`, 400, /JSON/],
    [`{"requests":[${good} ${other}]}`, 400, /JSON/],
    [`{"requests":[${good}],"requests":[]}`, 422, /'requests'/],
    [`[${good}]`, 422, /'requests'/],
    ['{"requests":[]}', 422, /empty/],
    ['{"requests":{}}', 422, /list/],
    [`{"requests":[${good},0]}`, 422, /list of objects/],
    [`{"requests":[[${good}]]}`, 422, /list of objects/],
    [`{"requests":[${good},{"custom_id":"b"}]}`, 422, /^requests\.1: 'params'/],
    [`{"requests":[${good},{"custom_id":"ö","params":{}}]}`, 422, /^requests\.1: 'custom_id'/],
    [`{"requests":[${good},${good}]}`, 422, /another request/],
    [`{"requests":[{"custom_id":"a","params":{]}]}`, 400, /JSON/],
  ] as const) {
    const [answered, form, said] = await send(body);
    assert.deepEqual([answered, form], [status, 'error invalid_request_error'], `${body} ${said}`);
    assert.match(said, message, body);
  }
  assert.equal((await client.beta.files.list()).data.length, before);
  await assert.rejects(client.messages.batches.retrieve('msgbatch_none'), Anthropic.NotFoundError);
  const zdr = { headers: { 'service-zdr': 'required' } };
  await assert.rejects(client.messages.batches.create({ requests: [request('a', 'x')] }, zdr), /zero data retention/);
});
