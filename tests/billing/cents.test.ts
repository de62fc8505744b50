import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ceiledCents, flooredCents } from '../../src/billing/cents.ts';

/** Microcents, and the whole cents that are charged and shown for them; no price is below zero. */
const amounts: readonly (readonly [bigint, number | undefined, number])[] = [
  [0n, 0, 0],
  [1n, 1, 0],
  [999_999n, 1, 0],
  [1_000_000n, 1, 1],
  [1_000_001n, 2, 1],
  [2_500_000n, 3, 2],
  // A debt is never shown smaller than it is.
  [-1n, undefined, -1],
  [-999_999n, undefined, -1],
  [-1_000_000n, undefined, -1],
  [-1_000_001n, undefined, -2],
];

for (const [microcents, up, down] of amounts)
  test(`${microcents} microcents are ${down} cents rounded down, ${up ?? 'never'} rounded up`, () => {
    if (up !== undefined) assert.equal(ceiledCents(microcents), up);
    assert.equal(flooredCents(microcents), down);
  });
