import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { decimalText, scaledDecimal } from '../../src/config/decimal.ts';
import { readEnvironment } from '../../src/config/environment.ts';
import { readConfig } from '../../src/config/read.ts';

it('reads decimals exactly', () => {
  const rows: readonly (readonly [string, number, bigint | undefined])[] = [
    ['0', 6, 0n],
    ['5', 6, 5_000_000n],
    ['0.1', 6, 100_000n],
    ['0.10', 6, 100_000n],
    ['0.3', 6, 300_000n], // 0.1 + 0.2 in floats would be 300000.00000000006
    ['1.005', 6, 1_005_000n], // 1.005 * 1e6 in floats is 1004999.9999999999
    ['0.000001', 6, 1n],
    ['0.0000010', 6, 1n],
    ['0.0000001', 6, undefined],
    ['2500000', 0, 2_500_000n],
    ['2.0', 0, 2n],
    ['2.5', 0, undefined],
    ['007', 6, 7_000_000n],
    ['', 6, undefined],
    ['.5', 6, undefined],
    ['5.', 6, undefined],
    ['-1', 6, undefined],
    ['+1', 6, undefined],
    ['1e3', 6, undefined],
    ['0x10', 6, undefined],
    ['1_000', 6, undefined],
    ['1,5', 6, undefined],
    [' 1', 6, undefined],
    ['٣', 6, undefined],
    ['9'.repeat(31), 6, undefined],
  ];
  for (const [text, places, expected] of rows)
    assert.equal(scaledDecimal(text, places), expected, JSON.stringify(text));
});

it('every amount of microcents that is written in cents comes back', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 10n ** 20n }), fc.nat({ max: 5 }), (microcents, zeros) => {
      const digits = microcents.toString().padStart(7, '0');
      const text = `${digits.slice(0, -6)}.${digits.slice(-6)}${'0'.repeat(zeros)}`;
      assert.equal(scaledDecimal(text, 6), microcents);
    }),
  );
});

it('an amount goes to decimal text and back', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 10n ** 20n }), fc.constantFrom(0, 6, 8), (parts, places) => {
      const text = decimalText(parts, places);
      assert.equal(scaledDecimal(text, places), parts);
      assert.doesNotMatch(text, /^0\d|\.$|\.\d*0$/);
    }),
  );
});

it('a price in dollars is the same to the microcent as in cents', () => {
  const environment = readEnvironment({ HOME: '/home/somebody' });
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 10n ** 15n }), fc.bigInt({ min: 0n, max: 10n ** 15n }), (input, output) => {
      const config = readConfig(
        `models:\n  - id: a\n    context_length: 100\n    pricing:\n      input_dollars_per_million: ${decimalText(input, 8)}\n      output_dollars_per_million: ${decimalText(output, 8)}\n      cache_read_dollars_per_million: ${decimalText(input / 2n, 8)}\n    backends: [{ engine: scripted, scripts: [{}] }]\n`,
        { directory: '/', environment },
      );
      assert.deepEqual(config.models[0]?.pricing, {
        input,
        output,
        cacheRead: input / 2n,
      });
    }),
    { numRuns: 200 },
  );
});

it('a price goes from the text of the file to microcents without a float in between', () => {
  const environment = readEnvironment({ HOME: '/home/somebody' });
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 10n ** 15n }), fc.bigInt({ min: 0n, max: 10n ** 15n }), (input, output) => {
      const inCents = (microcents: bigint) =>
        `${microcents / 1_000_000n}.${(microcents % 1_000_000n).toString().padStart(6, '0')}`;
      const config = readConfig(
        `models:\n  - id: a\n    context_length: 100\n    pricing:\n      input_cents_per_million: ${inCents(input)}\n      output_cents_per_million: ${inCents(output)}\n      cache_read_microcents_per_million: ${input / 2n}\n    backends: [{ engine: scripted, scripts: [{}] }]\n`,
        { directory: '/', environment },
      );
      assert.deepEqual(config.models[0]?.pricing, {
        input,
        output,
        cacheRead: input / 2n,
      });
    }),
    { numRuns: 200 },
  );
});
