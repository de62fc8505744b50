/** Batches that run out of credit, or of time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BatchClient, chatLine } from '../support/batch-client.ts';
import { slowness } from '../support/busy.ts';
import { InnerService, noFeatures, scriptedModel, until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';

const model = scriptedModel(
  `- { when: { last_text: slow }, say: [{ text: ["word "] }], repeat: 40, pace_ms: 50 }
- { say: [{ text: "one two three" }] }`,
  { settings: noFeatures },
);

test('one line says that there is no credit; the others run when there is credit again', async (t) => {
  const service = new InnerService({ config: model, firstCreditCents: '0.002' });
  t.after(() => service.dispose());
  await service.start();
  const client = new BatchClient(service);
  const ledger = new TestLedger(service);
  const lines = Array.from({ length: 80 }, (_, index) => chatLine(`line-${index}`, 'x', { max_tokens: 10 }));
  const { id } = await client.of(lines);
  const short = await client.when(id, ({ request_counts: counts }) => counts.failed === 1);
  assert.ok(short.request_counts.completed > 0 && short.request_counts.completed < 79, JSON.stringify(short));
  assert.equal(short.status, 'in_progress');
  // It tries again, and no second line ends.
  await new Promise((resolve) => setTimeout(resolve, 7_000));
  assert.equal((await client.get(id)).request_counts.failed, 1);
  const { code, stderr } = await service.command('credits', 'grant', '--cents', '100', '--account', service.accountId);
  assert.equal(code, 0, stderr);
  const batch = await client.when(id);
  assert.deepEqual([batch.status, batch.request_counts], ['completed', { total: 80, completed: 79, failed: 1 }]);
  const [error] = await client.results(batch.error_file_id);
  assert.deepEqual([error?.response?.status_code, error?.response?.body.error?.code], [402, 'insufficient_credits']);
  const results = await client.results(batch.output_file_id);
  assert.equal(new Set([...results, error!].map(({ custom_id: customId }) => customId)).size, 80);
  assert.equal((await ledger.newest(200)).filter(({ costMicrocents }) => costMicrocents > 0n).length, 79);
  await service.verify();
});

test('lines that have not begun when the window ends are expired, and cost nothing', async (t) => {
  const service = new InnerService({
    config: `batches: { window_seconds: ${Math.ceil(6 * slowness)}, lines_running_max: 4 }\n${model}`,
  });
  t.after(() => service.dispose());
  await service.start();
  const client = new BatchClient(service);
  const ledger = new TestLedger(service);
  // Four at a time, two seconds each: more than fit into the window.
  const lineCount = Math.ceil(30 * slowness);
  const { id } = await client.of(Array.from({ length: lineCount }, (_, index) => chatLine(`line-${index}`, 'slow')));
  const batch = await client.when(id, ({ status }) => status === 'expired');
  const { completed, failed, total } = batch.request_counts;
  assert.ok(completed > 0 && failed > 0 && completed + failed === total && total === lineCount, JSON.stringify(batch));
  const errors = await client.results(batch.error_file_id);
  assert.ok(errors.every(({ error, response }) => error?.code === 'batch_expired' && response === null));
  assert.equal((await client.results(batch.output_file_id)).length, completed);
  assert.equal((await ledger.newest(1_000)).length, completed, 'no row of a line that did not run');
  await until(async () => (await client.send(`/batches/${id}`)).ok);
  await service.verify();
});
