/** Batches from the upload of their file to the download of their results. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { BatchClient, chatLine, jsonl, type BatchObject } from '../support/batch-client.ts';
import { lineCost } from '../support/batch-money.ts';
import { TestService, noFeatures, scriptedModel, until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { downloads } from './downloads.ts';

let service: TestService;
let client: BatchClient;
let ledger: TestLedger;
before(async () => {
  service = new TestService({
    config: scriptedModel(
      `- { when: { last_text: slow }, say: [{ text: ["word "] }], repeat: 2000, pace_ms: 50 }
- { say: [{ text: "one two three" }] }`,
      { settings: noFeatures },
    ),
  });
  await service.start();
  client = new BatchClient(service);
  ledger = new TestLedger(service);
});
after(async () => {
  await service.stop();
  await service.verify();
  await service.dispose();
});

test('every line is answered once, charged half, and its receipt names the batch', async () => {
  const lines = Array.from({ length: 60 }, (_, index) => chatLine(`line-${index}`, `question ${index}`));
  const made = await client.of(lines, { metadata: { night: 'one' } });
  assert.deepEqual([made.status, made.metadata, made.request_counts.total], ['validating', { night: 'one' }, 0]);
  assert.equal(made.expires_at, made.created_at + 86_400);
  const batch = await client.when(made.id);
  assert.deepEqual(
    [batch.status, batch.model, batch.error_file_id, batch.request_counts],
    ['completed', 'demo', null, { total: 60, completed: 60, failed: 0 }],
  );
  const results = await client.results(batch.output_file_id);
  assert.deepEqual(
    results.map(({ custom_id: id }) => id),
    lines.map((_, index) => `line-${index}`),
  );
  for (const { response, error } of results) {
    assert.equal(error, null);
    assert.ok(response?.body.usage);
    assert.equal(response.body.choices?.[0]?.message.content, 'one two three');
    const row = await ledger.row(response.request_id);
    const { prompt_tokens: prompt, completion_tokens: completion } = response.body.usage;
    assert.deepEqual(
      [row.ending, row.batchId, row.costMicrocents, row.inputPrice, row.outputPrice],
      ['finished', batch.id, lineCost(prompt, completion), 2_500_000n, 10_000_000n],
    );
  }
  assert.equal((await ledger.sums()).count, 60);
});

describe('a file that is refused', () => {
  const cases: readonly (readonly [string, string, readonly (readonly [string, number | null, string | null])[]])[] = [
    ['empty', '\n \n', [['empty_file', null, null]]],
    ['not JSON', `${JSON.stringify(chatLine('a', 'x'))}\n{"custom_id":\n`, [['invalid_json_request', 2, null]]],
    ['not an object', '[]\n', [['schema_validation_failed', 1, null]]],
    [
      'the same custom_id',
      jsonl([chatLine('a', 'x'), chatLine('b', 'x'), chatLine('a', 'y')]),
      [['duplicate_custom_id', 3, 'custom_id']],
    ],
    [
      'fields',
      jsonl([
        { ...chatLine('a', 'x'), url: '/v1/embeddings' },
        { ...chatLine('b', 'x'), method: 'GET' },
        { ...chatLine('', 'x') },
        { ...chatLine('c', 'x'), body: [] },
        chatLine('d', 'x', { stream: true }),
        chatLine('e', 'x', { model: 'none' }),
        chatLine('f', 'x', { temperature: 'warm' }),
        chatLine('g', 'x', { messages: undefined }),
        // PostgreSQL has no U+0000, and half a pair would come back as another character.
        chatLine('h\u0000', 'x'),
        chatLine('i\ud800', 'x'),
      ]),
      [
        ['schema_validation_failed', 1, 'url'],
        ['schema_validation_failed', 2, 'method'],
        ['schema_validation_failed', 3, 'custom_id'],
        ['schema_validation_failed', 4, 'body'],
        ['schema_validation_failed', 5, 'body.stream'],
        ['model_not_found', 6, 'body.model'],
        ['schema_validation_failed', 7, 'body.temperature'],
        ['invalid_json_request', 8, 'body.messages'],
        ['schema_validation_failed', 9, 'custom_id'],
        ['schema_validation_failed', 10, 'custom_id'],
      ],
    ],
  ];
  for (const [name, text, expected] of cases)
    test(name, async () => {
      const batch = await client.when((await client.create(await client.upload(text))).id);
      assert.equal(batch.status, 'failed');
      assert.deepEqual(
        batch.errors?.data.map(({ code, line, param }) => [code, line, param]),
        expected,
      );
      assert.deepEqual([batch.output_file_id, batch.error_file_id], [null, null]);
      const rows = await ledger.newest(200);
      assert.ok(!rows.some(({ batchId }) => batchId === batch.id), 'nothing ran');
    });
});

test('what a batch may not be made of', async () => {
  const file = await client.upload(jsonl([chatLine('a', 'x')]));
  const refusals: readonly (readonly [object, number, string])[] = [
    [{ input_file_id: undefined }, 422, 'input_file_id'],
    [{ input_file_id: 'file-00000000000000000000000000000000' }, 400, 'input_file_id'],
    [{ endpoint: '/v1/models' }, 422, 'endpoint'],
    [{ endpoint: '/v1/messages/count_tokens' }, 422, 'endpoint'],
    [{ completion_window: '1h' }, 422, 'completion_window'],
    [{ metadata: { a: 1 } }, 422, 'metadata.a'],
  ];
  for (const [more, status, param] of refusals) {
    const body = { input_file_id: file, endpoint: '/v1/chat/completions', completion_window: '24h', ...more };
    const answer = await client.send('/batches', { method: 'POST', body: JSON.stringify(body) });
    const { error } = (await answer.json()) as { error: { param: string } };
    assert.deepEqual([answer.status, error.param], [status, param], JSON.stringify(more));
  }
  const zdr = await client.send('/batches', {
    method: 'POST',
    headers: { 'service-zdr': 'required' },
    body: JSON.stringify({ input_file_id: file, endpoint: '/v1/chat/completions', completion_window: '24h' }),
  });
  assert.equal(zdr.status, 400);
  assert.match(await zdr.text(), /keeps its requests and its results in files/);
  for (const path of ['/batches', '/messages/batches']) {
    const again = await client.send(path, { method: 'POST', headers: { 'idempotency-key': 'a' }, body: '{}' });
    assert.equal(again.status, 400);
    assert.match(await again.text(), /Batches take no Idempotency-Key/);
  }
});

test('a cancelled batch stops within a second, delivers what ran, and charges nothing else', async () => {
  const quick = Array.from({ length: 20 }, (_, index) => chatLine(`quick-${index}`, 'x'));
  const slow = Array.from({ length: 40 }, (_, index) => chatLine(`slow-${index}`, 'slow'));
  const before = await ledger.sums();
  const made = await client.of([...quick, ...slow]);
  await client.when(made.id, ({ request_counts: counts }) => counts.completed === 20);
  const conflict = await client.send(`/files/${await inputOf(made)}`, { method: 'DELETE' });
  assert.equal(conflict.status, 409);
  const cancelled = await client.cancel(made.id);
  assert.equal(cancelled.status, 'cancelling');
  const begunMs = performance.now();
  const batch = await client.when(made.id);
  const tookMs = performance.now() - begunMs;
  assert.ok(tookMs < 5_000, `${tookMs}`);
  assert.deepEqual([batch.status, batch.request_counts], ['cancelled', { total: 60, completed: 20, failed: 40 }]);
  assert.equal((await client.results(batch.output_file_id)).length, 20);
  const errors = await client.results(batch.error_file_id);
  assert.deepEqual(
    errors.map(({ custom_id: id, response, error }) => [id, response, error?.code]),
    slow.map((_, index) => [`slow-${index}`, null, 'batch_cancelled']),
  );
  await until(async () => (await ledger.newest(100)).some(({ ending }) => ending === 'cancelled'));
  const rows = (await ledger.newest(200)).filter(({ batchId }) => batchId === made.id);
  for (const { ending, costMicrocents } of rows) assert.equal(costMicrocents > 0n, ending === 'finished', ending);
  assert.equal(rows.filter(({ ending }) => ending === 'finished').length, 20);
  assert.ok((await ledger.sums()).count > before.count);
  assert.deepEqual(await client.cancel(made.id), batch, 'cancelled once');
});

const inputOf = async ({ id }: BatchObject): Promise<string> =>
  ((await (await client.send(`/batches/${id}`)).json()) as { input_file_id: string }).input_file_id;

test('a batch ends when its key is revoked or its file is gone, says why, and delivers what ran', async () => {
  const lines = [
    ...Array.from({ length: 3 }, (_, index) => chatLine(`quick-${index}`, 'x')),
    ...Array.from({ length: 30 }, (_, index) => chatLine(`slow-${index}`, 'slow')),
  ];
  const { stdout } = await service.command('keys', 'create', '--user', 'nightly', '--json');
  const made = JSON.parse(stdout) as { readonly id: string; readonly key: string };
  const losses: readonly (readonly [string, BatchClient, (batch: BatchObject) => Promise<unknown>])[] = [
    ['invalid_api_key', new BatchClient(service, made.key), () => service.command('keys', 'revoke', made.id)],
    [
      'file_not_found',
      client,
      async (batch) => {
        const id = (await inputOf(batch)).slice('file-'.length);
        rmSync(join(service.folder, 'data', 'files', id.slice(0, 2), id));
        // What runs is run again, from the file.
        await service.stop('SIGKILL');
        await service.start();
      },
    ],
  ];
  for (const [code, owner, lose] of losses) {
    const batch = await owner.of(lines);
    await client.when(batch.id, ({ request_counts: counts }) => counts.completed === 3);
    await lose(batch);
    const over = await client.when(batch.id);
    assert.deepEqual(
      [over.status, over.request_counts, over.errors?.data.map((error) => error.code)],
      ['cancelled', { total: 33, completed: 3, failed: 30 }, [code]],
    );
    const rows = (await ledger.everyRow()).filter(({ batchId }) => batchId === batch.id);
    assert.equal(rows.filter(({ costMicrocents }) => costMicrocents > 0n).length, 3);
  }
});

test('the account host sends its results too', (t) => downloads(t));

test('lists are newest first, in pages, and of one account', async () => {
  const made = await client.of([chatLine('last', 'x')]);
  const page = (await (await client.send('/batches?limit=2')).json()) as {
    readonly data: readonly BatchObject[];
    readonly has_more: boolean;
    readonly last_id: string;
  };
  assert.deepEqual([page.data[0]?.id, page.data.length, page.has_more], [made.id, 2, true]);
  const next = (await (await client.send(`/batches?limit=100&after=${page.last_id}`)).json()) as typeof page;
  assert.ok(next.data.length > 2);
  assert.ok(!next.data.some(({ id }) => page.data.some((earlier) => earlier.id === id)));
  assert.equal((await client.send('/batches/batch_00000000000000000000000000000000')).status, 404);
  await client.when(made.id);
});
