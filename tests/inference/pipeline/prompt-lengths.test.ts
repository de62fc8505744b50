import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PromptLengths } from '../../../src/inference/pipeline/prompt-lengths.ts';

test('four bytes are a token until a backend has counted a prompt of the account', () => {
  const lengths = new PromptLengths();
  lengths.learn('other', 1000, 500);
  assert.deepEqual([lengths.likely('own', 0), lengths.likely('own', 1), lengths.likely('own', 4001)], [0, 1, 1001]);
});

test('the last prompt that was counted is exact; shorter ones are its part, longer ones have more', () => {
  const lengths = new PromptLengths();
  lengths.learn('own', 100, 100);
  lengths.learn('own', 9000, 3000);
  assert.deepEqual(
    [9000, 4500, 0, 9400].map((bytes) => lengths.likely('own', bytes)),
    [3000, 1500, 0, 3100],
  );
});

test('more bytes are never fewer tokens', () => {
  const lengths = new PromptLengths();
  for (const [bytes, tokens] of [
    [1000, 1000],
    [1000, 10],
    [7, 3],
  ] as const) {
    lengths.learn('own', bytes, tokens);
    let before = 0;
    for (let more = 0; more < 3000; more++) {
      const likely = lengths.likely('own', more);
      assert.ok(Number.isInteger(likely) && likely >= before, `${likely} after ${before}`);
      before = likely;
    }
  }
});

test('what says nothing is not learned', () => {
  const lengths = new PromptLengths();
  lengths.learn('own', 0, 5);
  lengths.learn('own', 100, 0);
  assert.equal(lengths.likely('own', 100), 25);
  // One byte, and one token, say something.
  lengths.learn('own', 1, 3);
  assert.equal(lengths.likely('own', 1), 3);
  lengths.learn('own', 100, 1);
  assert.equal(lengths.likely('own', 100), 1);
});

test('ten thousand accounts are remembered, those that asked last', () => {
  const lengths = new PromptLengths();
  for (let account = 0; account < 10_001; account++) {
    lengths.learn(`account ${account}`, 100, 7);
    lengths.learn('own', 100, 7);
  }
  assert.deepEqual(
    ['account 0', 'account 1', 'account 2', 'account 10000', 'own'].map((account) => lengths.likely(account, 100)),
    [25, 25, 7, 7, 7],
  );
});
