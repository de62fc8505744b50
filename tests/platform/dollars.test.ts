import assert from 'node:assert/strict';
import { test } from 'node:test';

import { centsText, dollarDecimal, dollars } from '../../src/platform/dollars.ts';

/** 1 dollar = 100,000,000 microcents; nothing is rounded. */
const amounts: readonly (readonly [bigint, string, string])[] = [
  [0n, '$0.00', '0.00'],
  [1n, '$0.00000001', '0.00000001'],
  [220n, '$0.0000022', '0.0000022'],
  [12_500_000n, '$0.125', '0.125'],
  [1_000_000_000n, '$10.00', '10.00'],
  [-1n, '-$0.00000001', '-0.00000001'],
  [-150_000_000n, '-$1.50', '-1.50'],
  [99_999_999_999n, '$999.99999999', '999.99999999'],
  [100_000_000_000n, '$1,000.00', '1000.00'],
  [-123_456_789_012_345_678n, '-$1,234,567,890.12345678', '-1234567890.12345678'],
];

for (const [microcents, forPeople, forPrograms] of amounts) {
  test(`${microcents} microcents are ${forPeople}`, () => {
    assert.equal(dollars(microcents), forPeople);
    assert.equal(dollarDecimal(microcents), forPrograms);
  });
}

test('cents are dollars with separators, exactly', () => {
  for (const [cents, text] of [
    [0, '$0.00'],
    [1, '$0.01'],
    [1_235, '$12.35'],
    [125_000, '$1,250.00'],
    [-5, '-$0.05'],
  ] as const)
    assert.equal(centsText(cents), text);
});
