/** The cap on the running requests of an account (specification §7.5 and part 8). */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../../src/errors.ts';
import { Concurrency } from '../../src/limits/concurrency.ts';
import type { Slot } from '../../src/limits/concurrency.ts';

test('as many run as may, whatever comes and goes', () => {
  const step = fc.record({ account: fc.constantFrom('a', 'b', 'c'), releases: fc.boolean(), which: fc.nat() });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5 }), fc.array(step, { maxLength: 200 }), (max, steps) => {
      const concurrency = new Concurrency(max);
      const held = new Map<string, Slot[]>([
        ['a', []],
        ['b', []],
        ['c', []],
      ]);
      for (const { account, releases, which } of steps) {
        const slots = held.get(account)!;
        if (releases && slots.length > 0) slots.splice(which % slots.length, 1)[0]!.release();
        else if (slots.length < max) slots.push(concurrency.admit(account));
        else assert.throws(() => concurrency.admit(account), ApiError);
        assert.equal(
          concurrency.total,
          [...held.values()].reduce((sum, { length }) => sum + length, 0),
        );
      }
      for (const slots of held.values()) for (const slot of slots) slot.release();
      assert.equal(concurrency.total, 0);
    }),
  );
});

test('a refusal says when to come back, and in which limit it ran', () => {
  const concurrency = new Concurrency(2);
  concurrency.admit('a');
  const slot = concurrency.admit('a');
  assert.throws(
    () => concurrency.admit('a'),
    (error: unknown) => {
      assert.ok(error instanceof ApiError);
      assert.deepEqual([error.code, error.status, error.retryAfterSeconds], ['concurrency_limit_exceeded', 429, 1]);
      assert.deepEqual(error.headers, { 'ratelimit-limit': '2', 'ratelimit-remaining': '0', 'ratelimit-reset': '1' });
      return true;
    },
  );
  concurrency.admit('b');
  slot.release();
  concurrency.admit('a');
  assert.throws(() => slot.release(), /released once/);
});
