import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { firstTokenOptions, FirstTokenTime } from '../../../../src/inference/engines/llama/first-token-time.ts';
import { ReadingPace } from '../../../../src/inference/engines/llama/reading-pace.ts';
import { SlotChoice, type CacheUser } from '../../../../src/inference/engines/llama/slots.ts';
import { piecesOf } from '../../../../src/inference/engines/llama/step-plan.ts';

const ids = (count: number, first = 0): number[] => Array.from({ length: count }, (_, index) => first + index);
const job = (prompt: readonly number[], cacheScope = 'a', retain = true): CacheUser => ({ prompt, cacheScope, retain });

describe('which slot a job gets', () => {
  /** A job that has read this much of its prompt, and then ended or was given up. */
  function read(choice: SlotChoice<object>, { prompt, cacheScope, retain }: CacheUser, tokens = prompt.length): number {
    const place = choice.choose({ prompt, cacheScope, retain });
    assert.ok(place !== undefined);
    const { slot, shared } = place;
    choice.shorten(slot, shared);
    slot.scope = cacheScope;
    slot.run = {};
    slot.tokens.push(...prompt.slice(shared, tokens));
    if (!retain) slot.tokens.length = 0;
    choice.free(slot);
    return shared;
  }

  test('what was read of a long prompt stays for the retry while three times as many short ones come as there are slots', () => {
    const choice = new SlotChoice<object>(4);
    const long = job(ids(4000));
    assert.equal(read(choice, long, 3000), 0);
    for (let index = 0; index < 12; index++)
      assert.equal(read(choice, job([1, 2, 3, ...ids(60, 9000 + 100 * index)], index % 2 === 0 ? 'a' : 'b')), 0);
    assert.equal(read(choice, long), 3000);
  });

  test('and goes when as much as it has was given up after it', () => {
    const choice = new SlotChoice<object>(2);
    const long = job(ids(1000));
    read(choice, long, 800);
    let others = 0;
    while (choice.cachedFor(long) > 0) read(choice, job(ids(100, 5000 + 100 * others++), 'b'));
    assert.ok(others >= 8 && others <= 12, `${others} of 100 tokens`);
  });

  test('is found by the same account alone, and not without retention', () => {
    const choice = new SlotChoice<object>(4);
    const prompt = ids(500);
    read(choice, job(prompt, 'a', false), 400);
    assert.equal(choice.cachedFor(job(prompt)), 0);
    read(choice, job(prompt), 400);
    assert.equal(choice.cachedFor(job(prompt)), 400);
    assert.equal(choice.cachedFor(job(prompt, 'b')), 0);
    assert.equal(choice.cachedFor(job(prompt, 'a', false)), 0);
    assert.equal(choice.cachedFor({ ...job(prompt), scoresPrompt: true }), 0);
  });

  test('instructions that many requests begin with are no reason to give up a longer prompt', () => {
    const choice = new SlotChoice<object>(2);
    const long = job(ids(3000));
    read(choice, long);
    assert.equal(read(choice, job([...ids(100), ...ids(50, 7000)])), 0, 'it reads them in an empty slot');
    assert.equal(choice.cachedFor(long), 2999);
    assert.equal(read(choice, job([...ids(100), ...ids(50, 8000)])), 100, 'where the rest is small, they are shared');
  });

  test('there is none while all are used', () => {
    const choice = new SlotChoice<object>(1);
    choice.slots[0]!.run = {};
    assert.equal(choice.choose(job([1])), undefined);
  });
});

describe('the pieces of a step', () => {
  const reading = (index: number, depth: number, length: number, scoresPrompt = false) => ({
    slot: { index, tokens: ids(depth) },
    run: { job: { prompt: ids(length), scoresPrompt } },
  });
  const tokensOf = (
    readings: readonly ReturnType<typeof reading>[],
    tokens: number,
    writers: readonly number[] = [],
    tokensMax = 512,
  ) => piecesOf(readings, { tokens, tokensMax, writers }).map((piece) => piece.tokens);

  test('are as many tokens as the step has, in their order', () => {
    assert.deepEqual(tokensOf([reading(0, 0, 1000), reading(1, 0, 1000)], 128), [128]);
    assert.deepEqual(tokensOf([reading(0, 0, 50), reading(1, 0, 30), reading(2, 0, 1000)], 128), [50, 30, 48]);
    assert.deepEqual(tokensOf([reading(0, 40, 1000, true), reading(1, 0, 1000)], 128), [16, 112]);
  });

  test('have a rest that is less than a tile, deep in a prompt', () => {
    assert.deepEqual(tokensOf([reading(0, 2000, 2128)], 64), [64]);
    assert.deepEqual(tokensOf([reading(0, 2000, 2127)], 64), [127]);
    assert.deepEqual(tokensOf([reading(0, 2000, 2520)], 512), [512], 'no more than fit');
    assert.deepEqual(
      tokensOf([reading(0, 0, 60)], 32),
      [32],
      'a short prompt is read in the small steps that others need',
    );
  });

  test('have a token more beside an answer, with which llama.cpp computes one of them', () => {
    assert.deepEqual(tokensOf([reading(1, 2000, 4000)], 64, [0]), [65]);
    assert.deepEqual(tokensOf([reading(2, 2000, 4000)], 64, [0]), [64], 'not beside it');
    assert.deepEqual(tokensOf([reading(1, 2000, 4000), reading(2, 0, 20)], 128, [3]), [129]);
    assert.deepEqual(tokensOf([reading(1, 2000, 4000)], 512, [0], 511), [511]);
  });
});

describe('how fast prompts are read', () => {
  test('is the fastest step at each depth, and what is not known takes at least as long as what is before it', () => {
    const pace = new ReadingPace();
    assert.equal(pace.leastMs(0, 8000), 0);
    pace.observe(0, 64, 640);
    pace.observe(0, 64, 6400);
    assert.equal(pace.leastMs(0, 100), 1000);
    assert.equal(pace.leastMs(0, 8000), 80_000);
    pace.observe(1024, 128, 2560);
    assert.equal(pace.leastMs(0, 2048), 1024 * 10 + 1024 * 20);
    assert.equal(pace.leastMs(1000, 2048), 24 * 10 + 1024 * 20, 'what is in the cache takes nothing');
    assert.equal(pace.leastMs(2048, 2048), 0);
  });

  test('says how many tokens fit into a time', () => {
    const pace = new ReadingPace();
    assert.equal(pace.tokensWithin(1000, 8192), 8192);
    pace.observe(0, 64, 640);
    assert.equal(pace.tokensWithin(1000, 8192), 100);
    assert.equal(pace.tokensWithin(1_000_000, 8192), 8192);
    assert.equal(pace.tokensWithin(5, 8192), 0);
  });
});

describe('the time for the first token', () => {
  test('is that of the setting while nothing is read, is put off by what is read, and is five times as long in all', () => {
    const time = new FirstTokenTime(firstTokenOptions(120_000), 1000);
    assert.equal(time.lateAtMs, 121_000);
    time.hasRead(100_000);
    assert.equal(time.lateAtMs, 220_000);
    time.hasRead(590_000);
    assert.equal(time.lateAtMs, 601_000);
  });
});
