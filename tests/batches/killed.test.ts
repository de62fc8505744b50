/** kill -9 in the middle of batches: each line is in the files once, and charged once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BatchClient, chatLine, isOver } from '../support/batch-client.ts';
import { mulberry32 } from '../support/random.ts';
import { TestService, noFeatures, scriptedModel } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';

const kills = Number(process.env['TOKENHOUSE_BATCH_KILLS'] ?? 6);
const lineCount = Number(process.env['TOKENHOUSE_BATCH_LINES'] ?? 400);

test(`a batch of ${lineCount} lines and ${kills} kills`, async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.diagnostic(`seed ${seed}`);
  const random = mulberry32(seed);
  const service = new TestService({
    config: scriptedModel(
      `- { when: { last_text: longer }, say: [{ text: ["word "] }], repeat: 20, pace_ms: 10 }
- { say: [{ text: "one two three" }] }`,
      { settings: noFeatures },
    ),
  });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const credit = await ledger.balance();
  const client = new BatchClient(service);
  const lines = Array.from({ length: lineCount }, (_, index) =>
    chatLine(`line-${index}`, random() < 0.3 ? 'longer' : `question ${index}`),
  );
  const { id } = await client.of(lines);
  let met = 0;
  for (let kill = 0; kill < kills; kill++) {
    await new Promise((resolve) => setTimeout(resolve, random() * 600));
    if (!isOver(await client.get(id))) met++;
    await service.stop('SIGKILL');
    await service.start();
    await ledger.verify({ owned: true });
  }
  const batch = await client.when(id, isOver, 120_000);
  assert.deepEqual(batch.request_counts, { total: lineCount, completed: lineCount, failed: 0 });
  const results = await client.results(batch.output_file_id);
  assert.deepEqual(
    results.map(({ custom_id: customId }) => customId),
    lines.map((_, index) => `line-${index}`),
  );
  const rows = (await ledger.everyRow()).filter(({ costMicrocents }) => costMicrocents > 0n);
  assert.equal(rows.length, lineCount, 'each line is charged once');
  const charged = new Map(rows.map((row) => [row.publicId, row]));
  let sum = 0n;
  for (const { response } of results) {
    const row = charged.get(response!.request_id);
    assert.ok(row, `${response!.request_id} is delivered and not charged`);
    const { prompt_tokens: prompt, completion_tokens: completion } = response!.body.usage!;
    const cost = (BigInt(prompt) * 2_500_000n + BigInt(completion) * 10_000_000n + 999_999n) / 1_000_000n;
    assert.deepEqual([row.batchId, row.costMicrocents], [id, cost]);
    sum += cost;
  }
  assert.equal(await ledger.balance(), credit - sum);
  t.diagnostic(`${met} of ${kills} kills met the batch`);
  assert.ok(met > 0);
  await service.stop();
  await service.verify();
});
