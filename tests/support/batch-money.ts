import assert from 'node:assert/strict';

import type { BatchClient, BatchObject, LineUsage } from './batch-client.ts';
import type { TestLedger } from './test-ledger.ts';

/** Half of the prices of the test models, rounded up. */
export const lineCost = (promptTokens: number, completionTokens: number): bigint =>
  (BigInt(promptTokens) * 2_500_000n + BigInt(completionTokens) * 10_000_000n + 999_999n) / 1_000_000n;

interface AssertLinesOptions {
  readonly client: BatchClient;
  readonly ledger: TestLedger;
  readonly credit: bigint;
  /** What a line costs, where the model is none of the test models. */
  readonly costOf?: (usage: LineUsage) => bigint;
}

const costOfTestModel = ({ prompt_tokens: prompt, completion_tokens: completion }: LineUsage): bigint =>
  lineCost(prompt, completion);

/**
 * Asserts that each line of a completed batch is in its output once and charged once, at its price, and that nothing was paid back. `credit`
 * is what the account had before; nothing else may have run meanwhile. Lines are in the order of their ids.
 */
export async function assertEachLineOnce(
  { id, request_counts: counts, output_file_id: output }: BatchObject,
  customIds: readonly string[],
  { client, ledger, credit, costOf = costOfTestModel }: AssertLinesOptions,
): Promise<void> {
  const total = customIds.length;
  assert.deepEqual(counts, { total, completed: total, failed: 0 });
  const results = await client.results(output);
  assert.deepEqual(
    results.map(({ custom_id: customId }) => customId),
    customIds,
  );
  const rows = (await ledger.everyRow()).filter(({ costMicrocents }) => costMicrocents > 0n);
  const charged = new Map(rows.map((row) => [row.publicId, row]));
  assert.deepEqual([rows.length, charged.size], [total, total], 'each line is charged once');
  let sum = 0n;
  for (const { response } of results) {
    const row = charged.get(response!.request_id);
    assert.ok(row, `${response!.request_id} is delivered and not charged`);
    const cost = costOf(response!.body.usage!);
    assert.deepEqual([row.batchId, row.costMicrocents], [id, cost]);
    sum += cost;
  }
  const paidBack = (await ledger.transfers()).filter(({ kind }) => kind === 'refund');
  assert.deepEqual(paidBack, []);
  assert.equal(await ledger.balance(), credit - sum);
}
