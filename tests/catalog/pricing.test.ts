import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { ceiledCents, flooredCents } from '../../src/billing/cents.ts';
import { costMicrocents, roundedCents } from '../../src/catalog/pricing.ts';
import type { Prices } from '../../src/catalog/pricing.ts';
import type { Usage } from '../../src/generation/event.ts';

const million = 1_000_000n;

/** Counts up to the largest that a double holds exactly. */
const usage: fc.Arbitrary<Usage> = fc
  .record({
    prompt: fc.maxSafeNat(),
    completion: fc.maxSafeNat(),
    cachedShare: fc.double({ min: 0, max: 1, noNaN: true }),
  })
  .map(({ prompt, completion, cachedShare }) => ({
    promptTokens: prompt,
    cachedTokens: Math.floor(prompt * cachedShare),
    completionTokens: completion,
    reasoningTokens: 0,
  }));
const small: fc.Arbitrary<Usage> = fc
  .record({ prompt: fc.nat(300), cached: fc.nat(), completion: fc.nat(300), reasoning: fc.nat() })
  .map(({ prompt, cached, completion, reasoning }) => ({
    promptTokens: prompt,
    cachedTokens: cached % (prompt + 1),
    completionTokens: completion,
    reasoningTokens: reasoning % (completion + 1),
  }));
const price = fc.bigInt({ min: 0n, max: 10n ** 15n });
const prices: fc.Arbitrary<Prices> = fc.record({ input: price, output: price, cacheRead: price });

test('a cost is the exact sum over all tokens, rounded up once', () => {
  fc.assert(
    fc.property(small, prices, (used, rates) => {
      // Token by token, in millionths of a microcent.
      let sum = 0n;
      for (let at = 0; at < used.promptTokens; at++) sum += at < used.cachedTokens ? rates.cacheRead : rates.input;
      for (let at = 0; at < used.completionTokens; at++) sum += rates.output;
      assertCeiling(costMicrocents(used, rates), sum);
    }),
  );
});

test('it stays exact where doubles are not', () => {
  fc.assert(
    fc.property(usage, prices, (used, rates) => {
      const [prompt, cached, completion] = [used.promptTokens, used.cachedTokens, used.completionTokens].map(
        BigInt,
      ) as [bigint, bigint, bigint];
      assertCeiling(
        costMicrocents(used, rates),
        (prompt - cached) * rates.input + cached * rates.cacheRead + completion * rates.output,
      );
    }),
  );
  // 9,007,199,254,740,991 + 9,007,199,254.740991, up.
  const huge: Usage = {
    promptTokens: Number.MAX_SAFE_INTEGER,
    cachedTokens: 0,
    completionTokens: 0,
    reasoningTokens: 0,
  };
  assert.equal(costMicrocents(huge, { input: 1_000_001n, output: 0n, cacheRead: 0n }), 9_007_208_261_940_246n);
});

test('splitting an answer never makes it cheaper, and costs at most a microcent', () => {
  fc.assert(
    fc.property(small, small, prices, (first, second, rates) => {
      const together = costMicrocents(sumOf(first, second), rates);
      const apart = costMicrocents(first, rates) + costMicrocents(second, rates);
      assert.ok(together <= apart && apart <= together + 1n);
    }),
  );
});

test('more of anything never costs less', () => {
  fc.assert(
    fc.property(small, small, prices, (used, more, rates) => {
      assert.ok(costMicrocents(sumOf(used, more), rates) >= costMicrocents(used, rates));
    }),
  );
});

test('the prices of the specification’s units', () => {
  const rates: Prices = { input: 5_000_000n, output: 20_000_000n, cacheRead: 2_500_000n };
  const cost = (promptTokens: number, cachedTokens: number, completionTokens: number): bigint =>
    costMicrocents({ promptTokens, cachedTokens, completionTokens }, rates);
  // 5 cents per million tokens are 5 microcents per token.
  assert.equal(cost(1, 0, 0), 5n);
  assert.equal(cost(1_000_000, 0, 0), 5n * million);
  assert.equal(cost(0, 0, 3), 60n);
  // Half a microcent of cached prompt is rounded up, once.
  assert.equal(cost(1, 1, 0), 3n);
  assert.equal(cost(2, 2, 0), 5n);
  assert.equal(cost(0, 0, 0), 0n);
  assert.equal(cost(100, 40, 10), 60n * 5n + 100n + 200n);
});

test('reasoning tokens are inside the completion and not paid twice', () => {
  fc.assert(
    fc.property(small, prices, (used, rates) => {
      const unthought = { ...used, reasoningTokens: 0 };
      assert.equal(costMicrocents(used, rates), costMicrocents(unthought, rates));
    }),
  );
});

test('whole cents: what is asked for covers, what is there is there', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 10n ** 20n }), (amount) => {
      assertCeiling(BigInt(ceiledCents(amount)), amount);
      assert.equal(BigInt(flooredCents(amount)), amount / million);
      const rounded = BigInt(roundedCents(amount)) * million;
      assert.ok(2n * (rounded - amount) <= million && 2n * (amount - rounded) < million, 'half goes up');
    }),
  );
  fc.assert(
    fc.property(fc.bigInt({ min: -(10n ** 20n), max: 10n ** 20n }), (amount) => {
      const floored = BigInt(flooredCents(amount)) * million;
      assert.ok(floored <= amount && amount < floored + million);
    }),
  );
});

function assertCeiling(result: bigint, sum: bigint): void {
  assert.ok(result * million >= sum && (result - 1n) * million < sum, `${result} is not ${sum} / 10⁶ rounded up`);
}

const sumOf = (a: Usage, b: Usage): Usage => ({
  promptTokens: a.promptTokens + b.promptTokens,
  cachedTokens: a.cachedTokens + b.cachedTokens,
  completionTokens: a.completionTokens + b.completionTokens,
  reasoningTokens: a.reasoningTokens + b.reasoningTokens,
});
