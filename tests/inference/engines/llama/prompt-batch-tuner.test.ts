import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { PromptBatchTuner } from '../../../../src/inference/engines/llama/prompt-batch-tuner.ts';

/** A machine on which a step costs this much. */
function play(
  tuner: PromptBatchTuner,
  steps: number,
  costMs: (threads: number, tokens: number) => number,
  othersWait = true,
): { threads: number; tokens: number }[] {
  return Array.from({ length: steps }, () => {
    const { threads, tokens } = tuner.next(othersWait);
    tuner.observe(threads, tokens, costMs(threads, tokens));
    return { threads, tokens };
  });
}

describe('the batch size of reading prompts', () => {
  test('comes to steps of the largest size that takes 50 ms', () => {
    for (const [tokenMs, tokens] of [
      [1.1, 32],
      [0.9, 48],
      [0.7, 64],
      [0.05, 512],
      [30, 32],
    ] as const) {
      const steps = play(new PromptBatchTuner(1, 512), 30, (_, count) => tokenMs * count);
      assert.equal(steps.at(-1)?.tokens, tokens, `${tokenMs} ms a token`);
    }
  });

  test('comes to steps ten times as long while nobody waits, and back at once', () => {
    const tuner = new PromptBatchTuner(1, 512);
    // What a token costs grows as steps get smaller.
    const costMs = (_: number, tokens: number) => 10 + tokens;
    assert.equal(play(tuner, 30, costMs, false).at(-1)?.tokens, 384);
    assert.deepEqual(
      play(tuner, 5, costMs).map(({ tokens }) => tokens),
      [48, 32, 32, 32, 32],
    );
    assert.equal(play(tuner, 30, costMs, false).at(-1)?.tokens, 384);
  });

  test('uses all threads where they are faster', () => {
    const steps = play(new PromptBatchTuner(8, 512), 200, (threads, tokens) => tokens / threads);
    assert.ok(steps.filter(({ threads }) => threads === 8).length > 170);
    assert.deepEqual([...new Set(steps.map(({ threads }) => threads))].sort(), [1, 4, 8]);
  });

  test('uses one thread while another process takes the cores, and all of them again when it is gone', () => {
    const tuner = new PromptBatchTuner(2, 512);
    const free = (threads: number, tokens: number) => tokens / threads;
    const crowded = (threads: number, tokens: number) => (threads === 1 ? tokens * 1.2 : 300);
    assert.ok(play(tuner, 50, free).filter(({ threads }) => threads === 2).length >= 45);
    const hard = play(tuner, 200, crowded);
    assert.ok(hard.filter(({ threads }) => threads === 1).length > 180);
    assert.equal(hard.at(-1)?.threads, 1);
    assert.equal(play(tuner, 3000, free).at(-1)?.threads, 2);
  });

  test('expects of a step of few tokens what the quickest of the latest three took, and never more than one of 32', () => {
    const tuner = new PromptBatchTuner(1, 512);
    const expected = (tokens: number) => tuner.next(true).expectedMs(tokens);
    assert.equal(expected(10), Infinity);
    for (const elapsedMs of [50, 300, 200]) tuner.observe(1, 10, elapsedMs);
    assert.equal(expected(10), 50);
    assert.equal(expected(20), 100);
    assert.equal(expected(32), Infinity);
    tuner.observe(1, 10, 100);
    assert.equal(expected(10), 100);
    // A step of few tokens says nothing of how large steps should be.
    assert.equal(tuner.next(true).tokens, 32);
    tuner.observe(1, 64, 128);
    assert.deepEqual([expected(5), expected(10), expected(100)], [50, 64, 200]);
  });

  test('stays within its bounds for clocks that show nothing', () => {
    const tuner = new PromptBatchTuner(4, 128);
    for (const { tokens } of play(tuner, 100, () => 0)) assert.ok(tokens >= 32 && tokens <= 128);
  });
});
