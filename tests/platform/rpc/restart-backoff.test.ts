import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RestartBackoff } from '../../../src/platform/rpc/restart-backoff.ts';

test('the pause doubles with each death in a row, up to the most', () => {
  const backoff = new RestartBackoff({ firstMs: 200, mostMs: 1_000, provenMs: 60_000, provenCounts: 1 });
  assert.deepEqual(
    Array.from({ length: 5 }, () => backoff.died(0)),
    [200, 400, 800, 1_000, 1_000],
  );
  assert.equal(backoff.deathsInRow, 5);
  assert.deepEqual([backoff.died(60_000), backoff.died(59_999)], [200, 400], 'a long life begins a new row');
});

test('where a proven one counts for nothing, its successor comes at once', () => {
  const backoff = new RestartBackoff({ firstMs: 100, mostMs: Infinity, provenMs: 10_000, provenCounts: 0 });
  assert.deepEqual([backoff.died(0), backoff.died(0), backoff.died(10_000), backoff.died(0)], [100, 200, 0, 100]);
});

test('whatever the lives were, deaths in a row are those since the last long one, and no pause is longer than the most', () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(100), { minLength: 1, maxLength: 60 }),
      fc.constantFrom(0, 1),
      (lives, provenCounts) => {
        const backoff = new RestartBackoff({
          firstMs: 3,
          mostMs: 500,
          provenMs: 50,
          provenCounts: provenCounts as 0 | 1,
        });
        const pauses = lives.map((livedMs) => backoff.died(livedMs));
        const lastLong = lives.findLastIndex((livedMs) => livedMs >= 50);
        assert.equal(backoff.deathsInRow, lives.length - 1 - lastLong + (lastLong === -1 ? 0 : provenCounts));
        assert.ok(pauses.every((pauseMs) => pauseMs >= 0 && pauseMs <= 500));
      },
    ),
  );
});
