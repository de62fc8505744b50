import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { WaitQueue } from '../../../src/inference/pipeline/wait-queue.ts';

interface Place {
  running: number;
}

/** A line in front of one thing with so many places. */
function lineBefore(places: number, { lengthMax = 100, timeoutMs = 60_000 } = {}) {
  const place: Place = { running: 0 };
  const line = new WaitQueue<Place>({ lengthMax, timeoutMs, mayHaveChanged: () => place.running < places });
  const take = (): Place | undefined => {
    if (place.running >= places) return undefined;
    place.running++;
    return place;
  };
  return {
    line,
    place,
    ask: async (signal = new AbortController().signal, by = take) => line.acquire(by, signal),
    giveBack: () => {
      place.running--;
      line.offer();
    },
  };
}

describe('the line in front of backends', () => {
  it('serves in the order of arrival, and lets nobody in before those who wait', async () => {
    const { line, place, ask, giveBack } = lineBefore(1);
    await ask();
    const served: number[] = [];
    const waiting = [1, 2, 3].map((number) => ask().then(() => served.push(number)));
    assert.equal(line.length, 3);
    giveBack();
    const late = ask().then(() => served.push(4));
    for (let i = 0; i < 3; i++) {
      await waiting[i];
      assert.equal(place.running, 1);
      giveBack();
    }
    await late;
    assert.deepEqual(served, [1, 2, 3, 4]);
    giveBack();
    assert.deepEqual([line.length, place.running], [0, 0]);
  });

  it('is bounded in length and in time', async () => {
    const { line, ask } = lineBefore(1, { lengthMax: 2, timeoutMs: 20 });
    await ask();
    const waiting = [ask(), ask()];
    assert.equal(await ask(), 'queue-full');
    assert.deepEqual(await Promise.all(waiting), ['queue-timed-out', 'queue-timed-out']);
    assert.equal(line.length, 0);
  });

  it('without a length, refuses at once', async () => {
    const { ask } = lineBefore(1, { lengthMax: 0 });
    await ask();
    assert.equal(await ask(), 'queue-full');
  });

  it('is left at an abort, with its reason, and nobody behind is held up', async () => {
    const { line, ask, giveBack } = lineBefore(1);
    await ask();
    const abort = new AbortController();
    const first = ask(abort.signal);
    const second = ask();
    const reason = new Error('left');
    abort.abort(reason);
    await assert.rejects(first, (error) => error === reason);
    assert.equal(line.length, 1);
    giveBack();
    assert.ok(typeof (await second) === 'object');
    await assert.rejects(ask(AbortSignal.abort(reason)), (error) => error === reason);
  });

  it('lets pass who can use what another cannot, and tells who can use nothing any more', async () => {
    const { place, line, ask, giveBack } = lineBefore(1);
    await ask();
    let mayUse = false;
    let isGone = false;
    const picky = ask(undefined, () => {
      if (isGone) throw new Error('nothing is left');
      if (!mayUse || place.running > 0) return undefined;
      place.running++;
      return place;
    });
    const other = ask();
    giveBack();
    await other;
    assert.equal(line.length, 1);
    mayUse = true;
    giveBack();
    assert.ok(typeof (await picky) === 'object');
    const next = ask(undefined, () => {
      if (isGone) throw new Error('nothing is left');
      return undefined;
    });
    isGone = true;
    giveBack();
    await assert.rejects(next, /nothing is left/);
  });

  it('loses no place and gives none twice, in whatever order things happen', async () => {
    const steps = fc.array(fc.constantFrom('ask', 'give back', 'abort'), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(steps, fc.integer({ min: 1, max: 3 }), async (sequence, places) => {
        const { line, place, ask, giveBack } = lineBefore(places, { lengthMax: 5 });
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
            if (line.length === 0) await outcome;
          } else if (step === 'give back' && held > 0) {
            held--;
            giveBack();
          } else if (step === 'abort') aborts.pop()?.abort(new Error('left'));
          await new Promise((resolve) => setImmediate(resolve));
          assert.equal(place.running, held, 'who holds a place, and nobody else, has taken one');
          assert.ok(place.running <= places && line.length <= 5);
          assert.ok(line.length === 0 || place.running === places, 'nobody waits beside a free place');
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
