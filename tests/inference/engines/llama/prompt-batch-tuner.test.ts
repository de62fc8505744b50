import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { PromptBatchTuner, type ReadingPlace } from '../../../../src/inference/engines/llama/prompt-batch-tuner.ts';

const busy: ReadingPlace = { waits: 'somebody', depth: 0 };
const alone: ReadingPlace = { waits: 'nobody', depth: 0 };

interface Played {
  readonly threads: number;
  readonly tokens: number;
  readonly elapsedMs: number;
}

/** A machine on which a step costs this much. */
function play(
  tuner: PromptBatchTuner,
  steps: number,
  costMs: (threads: number, tokens: number) => number,
  place: ReadingPlace = busy,
): Played[] {
  return Array.from({ length: steps }, () => {
    const { threads, tokens } = tuner.next(place);
    const elapsedMs = costMs(threads, tokens);
    tuner.observe({ threads, tokens, depth: place.depth }, elapsedMs);
    return { threads, tokens, elapsedMs };
  });
}

/** Reads for that long, by the clock of the steps themselves. */
function playFor(
  tuner: PromptBatchTuner,
  durationMs: number,
  costMs: (threads: number, tokens: number) => number,
  place: ReadingPlace,
): Played[] {
  const played: Played[] = [];
  for (let ms = 0; ms < durationMs; ms += played.at(-1)?.elapsedMs ?? 0) played.push(...play(tuner, 1, costMs, place));
  return played;
}

describe('the batch size of reading prompts', () => {
  test('comes to steps of the largest size that takes 50 ms', () => {
    for (const [tokenMs, tokens] of [
      [1.1, 32],
      [0.9, 48],
      [0.7, 64],
      [0.5, 64],
      [0.05, 512],
      [30, 32],
    ] as const) {
      const steps = play(new PromptBatchTuner(1, 512), 30, (_, count) => tokenMs * count);
      assert.equal(steps.at(-1)?.tokens, tokens, `${tokenMs} ms a token`);
    }
  });

  test('is this, by who waits, how deep in the prompt, how many threads, and how slow', () => {
    // Milliseconds for a token; two cores of a small machine take 6 at the beginning, 12 at 3,000 and 20 at 6,000 tokens.
    for (const [waits, threads, depth, tokenMs, tokens] of [
      ['somebody', 2, 0, 6, 32],
      ['somebody', 2, 255, 6, 32],
      ['somebody', 2, 256, 6, 64],
      ['somebody', 2, 6000, 20, 64],
      ['somebody', 2, 6000, 0.2, 192],
      ['prompts', 2, 0, 6, 64],
      ['prompts', 2, 3000, 12, 64],
      ['prompts', 2, 3000, 1, 384],
      ['nobody', 2, 0, 6, 128],
      ['nobody', 2, 0, 40, 64],
      ['nobody', 2, 0, 100, 32],
      ['nobody', 2, 511, 7, 128],
      ['nobody', 2, 512, 7, 256],
      ['nobody', 2, 1500, 9, 256],
      ['nobody', 2, 3000, 12, 256],
      ['nobody', 2, 6000, 20, 192],
      ['nobody', 2, 6000, 27, 128],
      ['nobody', 2, 6000, 16, 192],
      ['nobody', 2, 6000, 35, 64],
      ['nobody', 2, 6000, 300, 64],
      ['nobody', 2, 6000, 1, 384],
      ['nobody', 1, 3000, 24, 64],
      ['nobody', 1, 6000, 2, 192],
    ] as const) {
      const cost = (count: number, size: number) => (count === threads ? tokenMs : tokenMs * 3) * size;
      const steps = play(new PromptBatchTuner(threads, 512), 30, cost, { waits, depth });
      const regular = steps.findLast((step) => step.threads === threads);
      assert.equal(regular?.tokens, tokens, [waits, threads, depth, tokenMs].join());
    }
  });

  test('comes to steps ten times as long while nobody waits, and back at once', () => {
    const tuner = new PromptBatchTuner(1, 512);
    // What a token costs grows as steps get smaller.
    const costMs = (_: number, tokens: number) => 10 + tokens;
    assert.equal(play(tuner, 30, costMs, alone).at(-1)?.tokens, 384);
    assert.deepEqual(
      play(tuner, 5, costMs).map(({ tokens }) => tokens),
      [48, 32, 32, 32, 32],
    );
    assert.equal(play(tuner, 30, costMs, alone).at(-1)?.tokens, 384);
  });

  test('uses all threads where they are faster', () => {
    const steps = play(new PromptBatchTuner(8, 512), 200, (threads, tokens) => tokens / threads);
    assert.ok(steps.filter(({ threads }) => threads === 8).length > 170);
    assert.deepEqual([...new Set(steps.map(({ threads }) => threads))].sort(), [1, 4, 8]);
  });

  test('uses one thread while another process takes the cores, and all of them again within seconds when it is gone', () => {
    for (const threadsMax of [2, 8]) {
      const tuner = new PromptBatchTuner(threadsMax, 512);
      const free = (threads: number, tokens: number) => (tokens * 10) / threads;
      const crowded = (threads: number, tokens: number) => tokens * 12 + (threads === 1 ? 0 : 1500);
      assert.ok(play(tuner, 50, free, alone).filter(({ threads }) => threads === threadsMax).length >= 40);
      const hard = playFor(tuner, 3_600_000, crowded, alone);
      const one = hard.filter(({ threads }) => threads === 1);
      const took = (steps: readonly Played[]): number => steps.reduce((sum, { elapsedMs }) => sum + elapsedMs, 0);
      assert.ok(took(one) > took(hard) * 0.7, `${took(one)} of ${took(hard)} ms with one thread`);
      assert.ok(hard.slice(-4).filter(({ threads }) => threads === 1).length >= 3, 'but for a trial');
      // Each of the others has its turn within eight seconds.
      const seconds = threadsMax === 2 ? 10 : 20;
      const again = playFor(tuner, seconds * 1000, free, alone);
      assert.ok(again.slice(-4).filter(({ threads }) => threads === threadsMax).length >= 2, 'but for a trial');
    }
  });

  test('what a deep prompt took does not count against all threads at the next beginning', () => {
    const tuner = new PromptBatchTuner(2, 512);
    const cost = (depth: number) => (threads: number, tokens: number) => (tokens * (10 + depth / 200)) / threads;
    for (let depth = 0; depth < 6000; depth += 192) play(tuner, 1, cost(depth), { waits: 'nobody', depth });
    const steps = play(tuner, 20, cost(0), alone);
    assert.ok(steps.filter(({ threads }) => threads === 2).length >= 12);
  });

  test('expects of a step of few tokens what the quickest of the latest three took, and never more than one of 32', () => {
    const tuner = new PromptBatchTuner(1, 512);
    const expected = (tokens: number) => tuner.next(busy).expectedMs(tokens);
    const observe = (tokens: number, elapsedMs: number) => tuner.observe({ threads: 1, tokens, depth: 0 }, elapsedMs);
    assert.equal(expected(10), Infinity);
    for (const elapsedMs of [50, 300, 200]) observe(10, elapsedMs);
    assert.equal(expected(10), 50);
    assert.equal(expected(20), 100);
    assert.equal(expected(32), Infinity);
    observe(10, 100);
    assert.equal(expected(10), 100);
    // A step of few tokens says nothing of how large steps should be.
    assert.equal(tuner.next(busy).tokens, 32);
    observe(64, 128);
    assert.deepEqual([expected(5), expected(10), expected(100)], [50, 64, 200]);
    // Nor does the end of a prompt whose beginning was in the cache.
    tuner.observe({ threads: 1, tokens: 40, depth: 3000 }, 4000);
    assert.equal(expected(100), 200);
  });

  test('stays within its bounds for clocks that show nothing', () => {
    const tuner = new PromptBatchTuner(4, 128);
    for (const { tokens } of play(tuner, 100, () => 0)) assert.ok(tokens >= 32 && tokens <= 128);
  });
});
