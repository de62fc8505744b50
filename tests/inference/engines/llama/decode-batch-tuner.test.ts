import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { DecodeBatchTuner } from '../../../../src/inference/engines/llama/decode-batch-tuner.ts';

type Cost = (threads: number, width: number) => number;

/** Steps on a machine on which each costs this much; `waiting` answers want their next token. */
function play(tuner: DecodeBatchTuner, steps: number, waiting: number, costMs: Cost) {
  return Array.from({ length: steps }, () => {
    const { threads, width } = tuner.next(waiting);
    assert.ok(width >= 1 && width <= waiting);
    const elapsedMs = costMs(threads, width);
    tuner.observe(threads, width, elapsedMs);
    return { threads, width, elapsedMs };
  });
}

const share = (steps: ReturnType<typeof play>, threads: number, width: number) =>
  steps.filter((step) => step.threads === threads && step.width === width).length / steps.length;

/** Repacked kernels: whole groups of four rows at the price of one and a half, single rows between at the full price. */
const repacked: Cost = (_, width) => 10 * (1.5 * Math.floor(width / 4) + (width % 4));

describe('the batch size of writing', () => {
  test('begins with all answers at once and the first number of threads, and disturbs no first answer', () => {
    const tuner = new DecodeBatchTuner([1, 2], 8);
    for (const step of play(tuner, 8, 6, () => 10)) assert.deepEqual([step.threads, step.width], [1, 6]);
  });

  test('takes the width that is fastest for that many answers', () => {
    const tuner = new DecodeBatchTuner([1], 8);
    for (const [waiting, width] of [
      [8, 8],
      [6, 4],
      [7, 4],
      [3, 3],
      [1, 1],
    ] as const) {
      play(tuner, 200, waiting, repacked);
      assert.ok(share(play(tuner, 200, waiting, repacked), 1, width) > 0.85, `${width} of ${waiting}`);
    }
  });

  test('takes the number of threads that is fastest for each width', () => {
    const cost: Cost = (threads, width) => (threads === 1 ? 5 * width : 8 + 2.5 * width);
    const tuner = new DecodeBatchTuner([1, 2], 8);
    for (const waiting of [8, 1]) play(tuner, 300, waiting, cost);
    assert.ok(share(play(tuner, 200, 8, cost), 2, 8) > 0.85);
    assert.ok(share(play(tuner, 200, 1, cost), 1, 1) > 0.85);
  });

  test('spends little on trials, however bad they are', () => {
    const tuner = new DecodeBatchTuner([1, 2], 4);
    const steps = play(tuner, 5000, 4, (threads) => (threads === 2 ? 800 : 5));
    const wasted = steps.filter(({ threads }) => threads === 2).reduce((sum, { elapsedMs }) => sum + elapsedMs, 0);
    const rest = steps.filter(({ threads }) => threads === 1).reduce((sum, { elapsedMs }) => sum + elapsedMs, 0);
    assert.ok(wasted <= rest * 0.03 + 2 * 800, `${wasted} of ${rest} ms`);
  });

  test('follows a machine that changes', () => {
    const tuner = new DecodeBatchTuner([1, 2], 4);
    const free: Cost = (threads, width) => (10 * width) / threads;
    const crowded: Cost = (threads, width) => (threads === 1 ? 10 * width : 300);
    play(tuner, 300, 4, free);
    assert.ok(share(play(tuner, 100, 4, free), 2, 4) > 0.8);
    play(tuner, 100, 4, crowded);
    assert.ok(share(play(tuner, 100, 4, crowded), 1, 4) > 0.8);
    play(tuner, 20_000, 4, free);
    assert.ok(share(play(tuner, 100, 4, free), 2, 4) > 0.8);
  });

  test('is not led astray by moments in which everything is slow', () => {
    let step = 0;
    const noisy: Cost = (threads, width) => repacked(threads, width) * (step++ % 3 === 0 ? 8 : 1);
    const tuner = new DecodeBatchTuner([1], 8);
    play(tuner, 400, 8, noisy);
    assert.ok(share(play(tuner, 200, 8, noisy), 1, 8) > 0.8);
  });

  test('knows one way only when the number of threads is given and one answer is made at a time', () => {
    const steps = play(new DecodeBatchTuner([3], 1), 100, 1, () => 0);
    assert.equal(share(steps, 3, 1), 1);
  });
});
