import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Semaphore } from '../../src/platform/semaphore.ts';

const never = new AbortController().signal;

test('in whatever order callers come and leave, no more hold it than may, in the order of their coming', async () => {
  const step = fc.oneof(
    fc.constant('acquire' as const),
    fc.constant('release' as const),
    fc.constant('abort' as const),
  );
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 3 }), fc.array(step, { maxLength: 40 }), async (max, steps) => {
      const semaphore = new Semaphore(max, { waitingMax: 4, refusal: () => new Error('full') });
      const held: { readonly index: number; readonly release: () => void }[] = [];
      const waiting: { readonly index: number; readonly abort: AbortController }[] = [];
      let refused = 0;
      let expected = 0;
      for (const [index, kind] of steps.entries()) {
        if (kind === 'acquire') {
          const abort = new AbortController();
          if (held.length === max && waiting.length === 4) expected++;
          else if (held.length === max) waiting.push({ index, abort });
          semaphore.acquire(abort.signal).then(
            (release) => held.push({ index, release }),
            (error: Error) => (error.message === 'full' ? refused++ : assert.equal(error.message, 'left')),
          );
        } else if (kind === 'release') {
          const [one] = held.splice(0, 1);
          one?.release();
          if (one !== undefined) waiting.shift();
        } else waiting.pop()?.abort.abort(new Error('left'));
        await new Promise((resolve) => setImmediate(resolve));
        assert.ok(held.length <= max);
        const order = held.map((one) => one.index);
        assert.deepEqual(
          order,
          order.toSorted((a, b) => a - b),
        );
        assert.ok(waiting.length === 0 || held.length === max, 'none waits while there is room');
        assert.equal(semaphore.isIdle, held.length + waiting.length === 0);
      }
      assert.equal(refused, expected);
    }),
    { numRuns: 100 },
  );
});

test('what can be had without waiting is had at once, and one who has left is not let in', async () => {
  const semaphore = new Semaphore(1);
  const release = semaphore.tryAcquire();
  assert.ok(release);
  assert.equal(semaphore.tryAcquire(), undefined);
  const reason = new Error('left');
  await assert.rejects(semaphore.acquire(AbortSignal.abort(reason)), reason);
  release();
  (await semaphore.acquire(never))();
  assert.ok(semaphore.isIdle);
});
