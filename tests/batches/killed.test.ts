/** kill -9 in the middle of batches: each line is in the files once, and charged once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BatchClient, chatLine, isOver } from '../support/batch-client.ts';
import { assertEachLineOnce } from '../support/batch-money.ts';
import { built } from '../support/built.ts';
import { mulberry32 } from '../support/random.ts';
import { TestService, noFeatures, scriptedModel } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';

const kills = Number(process.env['BATCH_KILLS'] ?? 6);
const lineCount = Number(process.env['BATCH_LINES'] ?? 400);

const config = scriptedModel(
  `- { when: { last_text: longer }, say: [{ text: ["word "] }], repeat: 20, pace_ms: 10 }
- { say: [{ text: "one two three" }] }`,
  { settings: noFeatures },
);

const cases: readonly (readonly [string, { lines: number; kills: number; betweenMs: number; entry?: string }])[] = [
  ['a batch', { lines: lineCount, kills, betweenMs: 600 }],
  [
    'a batch whose charges take longer than requests wait for them',
    // A settlement is given up after 2 s, and decided from then on: kills meet both.
    { lines: 80, kills: 4, betweenMs: 4_500, entry: built('tests/support/slow-settlements-entry.ts') },
  ],
];

for (const [name, { lines: count, kills: times, betweenMs, ...program }] of cases)
  test(`${name} of ${count} lines, and ${times} kills`, async (t) => {
    const seed = Date.now() % 2 ** 32;
    t.diagnostic(`seed ${seed}`);
    const random = mulberry32(seed);
    const service = new TestService({ config, ...program });
    t.after(() => service.dispose());
    await service.start();
    const ledger = new TestLedger(service);
    const credit = await ledger.balance();
    const client = new BatchClient(service);
    const customIds = Array.from({ length: count }, (_, index) => `line-${index}`);
    const { id } = await client.of(
      customIds.map((customId) => chatLine(customId, random() < 0.3 ? 'longer' : `question of ${customId}`)),
    );
    let met = 0;
    for (let kill = 0; kill < times; kill++) {
      await new Promise((resolve) => setTimeout(resolve, random() * betweenMs));
      if (!isOver(await client.get(id))) met++;
      await service.stop('SIGKILL');
      await service.start();
      await ledger.verify({ owned: true });
    }
    const batch = await client.when(id, isOver, 120_000);
    await assertEachLineOnce(batch, customIds, { client, ledger, credit });
    t.diagnostic(`${met} of ${times} kills met the batch`);
    assert.ok(met > 0);
    await service.stop();
    await service.verify();
  });
