import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { Asking } from '../../../src/inference/pipeline/tier-line.ts';
import { Waiter, WaitQueue } from '../../../src/inference/pipeline/wait-queue.ts';

interface Slots {
  running: number;
}

const anybody: Asking = {
  tier: 'default',
  account: { id: 'acct_1' },
  key: { id: 'key_1' },
  model: {},
  promptTokensLikely: 10,
  completionTokensMax: 10,
};

/** A queue in front of one backend with this many slots. */
function queueBefore(slots: number, { lengthMax = 100, timeoutMs = 60_000 } = {}) {
  const backend: Slots = { running: 0 };
  const queue = new WaitQueue<Slots>({ lengthMax, timeoutMs, mayHaveChanged: () => backend.running < slots });
  const take = (): Slots | undefined => {
    if (backend.running >= slots) return undefined;
    backend.running++;
    return backend;
  };
  return {
    queue,
    backend,
    ask: async (signal = new AbortController().signal, by = take, asking = anybody) => {
      const got = queue.acquire(by, signal, asking);
      return got instanceof Waiter ? await got.outcome : got;
    },
    freeSlot: () => {
      backend.running--;
      queue.offer();
    },
  };
}

describe('the wait queue in front of backends', () => {
  it('serves in the order of arrival, and lets nobody in before those who wait', async () => {
    const { queue, backend, ask, freeSlot } = queueBefore(1);
    await ask();
    const served: number[] = [];
    const waiting = [1, 2, 3].map((number) => ask().then(() => served.push(number)));
    assert.equal(queue.length, 3);
    freeSlot();
    const late = ask().then(() => served.push(4));
    for (let i = 0; i < 3; i++) {
      await waiting[i];
      assert.equal(backend.running, 1);
      freeSlot();
    }
    await late;
    assert.deepEqual(served, [1, 2, 3, 4]);
    freeSlot();
    assert.deepEqual([queue.length, backend.running], [0, 0]);
  });

  it('is bounded in length and in time', async () => {
    const { queue, ask } = queueBefore(1, { lengthMax: 2, timeoutMs: 20 });
    await ask();
    const waiting = [ask(), ask()];
    assert.equal(await ask(), 'queue-full');
    assert.deepEqual(await Promise.all(waiting), ['queue-timed-out', 'queue-timed-out']);
    assert.equal(queue.length, 0);
  });

  it('without a length, refuses at once', async () => {
    const { ask } = queueBefore(1, { lengthMax: 0 });
    await ask();
    assert.equal(await ask(), 'queue-full');
  });

  it('is left at an abort, with its reason, and nobody behind is held up', async () => {
    const { queue, ask, freeSlot } = queueBefore(1);
    await ask();
    const abort = new AbortController();
    const first = ask(abort.signal);
    const second = ask();
    const reason = new Error('left');
    abort.abort(reason);
    await assert.rejects(first, (error) => error === reason);
    assert.equal(queue.length, 1);
    freeSlot();
    assert.ok(typeof (await second) === 'object');
    await assert.rejects(ask(AbortSignal.abort(reason)), (error) => error === reason);
  });

  it('lets pass who can use what another cannot, and tells who can use nothing any more', async () => {
    const { backend, queue, ask, freeSlot } = queueBefore(1);
    await ask();
    let mayUse = false;
    let isGone = false;
    const picky = ask(undefined, () => {
      if (isGone) throw new Error('nothing is left');
      if (!mayUse || backend.running > 0) return undefined;
      backend.running++;
      return backend;
    });
    const other = ask();
    freeSlot();
    await other;
    assert.equal(queue.length, 1);
    mayUse = true;
    freeSlot();
    assert.ok(typeof (await picky) === 'object');
    const next = ask(undefined, () => {
      if (isGone) throw new Error('nothing is left');
      return undefined;
    });
    isGone = true;
    freeSlot();
    await assert.rejects(next, /nothing is left/);
  });

  it('loses no slot and gives none twice, in whatever order things happen', async () => {
    const steps = fc.array(fc.constantFrom('ask', 'free', 'abort'), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(steps, fc.integer({ min: 1, max: 3 }), async (sequence, slots) => {
        const { queue, backend, ask, freeSlot } = queueBefore(slots, { lengthMax: 5 });
        const aborts: AbortController[] = [];
        let held = 0;
        let arrived = 0;
        const served: number[] = [];
        for (const step of sequence) {
          if (step === 'ask') {
            const abort = new AbortController();
            const number = arrived++;
            const outcome = ask(abort.signal).then(
              (got) => {
                if (typeof got !== 'object') return;
                held++;
                served.push(number);
              },
              () => {},
            );
            aborts.push(abort);
            if (queue.length === 0) await outcome;
          } else if (step === 'free' && held > 0) {
            held--;
            freeSlot();
          } else if (step === 'abort') aborts.pop()?.abort(new Error('left'));
          await new Promise((resolve) => setImmediate(resolve));
          assert.equal(backend.running, held, 'who holds a slot, and nobody else, has taken one');
          assert.ok(backend.running <= slots && queue.length <= 5);
          assert.ok(queue.length === 0 || backend.running === slots, 'nobody waits beside a free slot');
        }
        assert.deepEqual(
          served,
          served.toSorted((a, b) => a - b),
          'in the order of arrival',
        );
        // Nobody waits out the time limit after the test.
        for (const abort of aborts) abort.abort(new Error('over'));
      }),
      { numRuns: 200 },
    );
  });
});
