import assert from 'node:assert/strict';
import { test } from 'node:test';

import { measure, type Scene } from '../../src/prove/measure.ts';
import type { Range } from '../../src/prove/truth.ts';

/** A gateway that shows these amounts, one at each question, and then the last one. */
function sceneOf(unitMicrocents: bigint, settleMs: number, ...shown: readonly bigint[]): Scene {
  let asked = 0;
  return {
    adapter: {
      unitMicrocents,
      settleMs,
      spent: () => Promise.resolve(shown[Math.min(asked++, shown.length - 1)]!),
    },
    admin: { url: '', key: '' },
    settleMs,
  } as unknown as Scene;
}

const measured = async (scene: Scene, range: Range, requests: number) =>
  measure(scene, { check: 'answers', what: 'answers', key: 'one' }, () => Promise.resolve({ range, requests }));

test('a part of a charge that is right by itself is not taken for the whole', async () => {
  const { charged, verdict } = await measured(sceneOf(1n, 1_000, 0n, 300n, 300n, 500n), { least: 0n, most: 600n }, 1);
  assert.equal(charged, 500n);
  assert.equal(verdict, 'right');
});

const tolerances = [
  // unit, charged, least and most, requests, verdict, lost
  [200n, 47_800n, 48_000n, 2, 'wrong', 200n], // nothing to round: one unit is missing
  [200n, 48_000n, 48_100n, 2, 'right', 0n],
  [200n, 47_600n, 48_100n, 2, 'wrong', 500n], // all of it, not what is beyond the tolerance
  [1n, 47_999n, 48_000n, 2, 'right', 0n], // what is true is rounded to a microcent itself
  [1n, 47_997n, 48_000n, 2, 'wrong', 3n],
] as const;

for (const [unit, charged, exact, requests, verdict, lost] of tolerances)
  test(`${charged} for ${exact} in units of ${unit} is ${verdict}`, async () => {
    const row = await measured(sceneOf(unit, 0, 0n, charged), { least: exact, most: exact }, requests);
    assert.deepEqual([row.verdict, row.lost], [verdict, lost]);
  });
