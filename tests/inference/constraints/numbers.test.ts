import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { Expression } from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import {
  bothRanges,
  decimalNumbers,
  inRange,
  isEmptyRange,
  wholeNumbers,
  type NumberRange,
} from '../../../src/inference/constraints/numbers.ts';
import { expressionFollower, follower } from './follower.ts';

const matcher = (expression: Expression | undefined): ((text: string) => boolean) =>
  expression === undefined ? () => false : expressionFollower(expression);

const range = (bounds: Partial<NumberRange>): NumberRange => ({
  min: undefined,
  max: undefined,
  minExcluded: false,
  maxExcluded: false,
  ...bounds,
});

/** Whether a number is in the range, said in another way than the source does. */
const isWithin = (value: number, { min, max, minExcluded, maxExcluded }: NumberRange): boolean =>
  (min === undefined || value > min || (value === min && !minExcluded)) &&
  (max === undefined || value < max || (value === max && !maxExcluded));

const bounds = [undefined, -101, -100, -20, -9, -1.5, -1, -0.25, 0, 0.25, 1, 1.5, 9, 10, 99, 100, 101];
const ranges = bounds.flatMap((min) =>
  bounds.flatMap((max) =>
    [false, true].flatMap((minExcluded) =>
      [false, true].map((maxExcluded) => range({ min, max, minExcluded, maxExcluded })),
    ),
  ),
);
const whole = Array.from({ length: 223 }, (_, i) => i - 111);
const quarters = [
  -101.25, -100.25, -100, -99.75, -20, -9.25, -2, -1.75, -1.5, -1.25, -1, -0.75, -0.25, -0.2, 0,
].flatMap((value) => [value, -value]);
const said = (bounds: NumberRange): string => JSON.stringify(bounds);

describe('numbers of a range', () => {
  it('whole ones, one by one', () => {
    for (const bounds of ranges.filter((_, index) => index % 3 === 0)) {
      const matches = matcher(wholeNumbers(bounds));
      for (const value of whole)
        assert.equal(matches(String(value)), isWithin(value, bounds), `${value} ${said(bounds)}`);
      for (const text of ['', '-', '-0', '00', '-00', '01', '-01', '1.0', '+1', '1e1']) assert.ok(!matches(text), text);
    }
  });

  it('decimals, and what is empty', () => {
    for (const bounds of ranges) {
      const matches = matcher(decimalNumbers(bounds));
      for (const value of quarters) {
        const isIn = isWithin(value, bounds);
        assert.equal(inRange(value, bounds), isIn, `${value} ${said(bounds)}`);
        assert.equal(matches(String(value)), isIn, `${value} ${said(bounds)}`);
        if (!String(value).includes('.')) assert.equal(matches(`${value}.00`), isIn, `${value}.00 ${said(bounds)}`);
      }
      for (const text of ['', '-', '00', '-00.5', '01', '1.', '.5', '-.5', '+1', '1e1'])
        assert.ok(!matches(text), text);
      const isEmptyOf = (values: readonly number[]): boolean => !values.some((value) => isWithin(value, bounds));
      assert.equal(isEmptyRange(bounds, true), isEmptyOf([...whole, -1e9, 1e9]), said(bounds));
      const between =
        bounds.min !== undefined && bounds.max !== undefined ? [(bounds.min + bounds.max) / 2] : [-1e9, 1e9];
      assert.equal(isEmptyRange(bounds, false), isEmptyOf(between), said(bounds));
    }
  });

  it('of two ranges', () => {
    const few = ranges.filter(({ min, max }) => [undefined, 0, 1].includes(min) && [undefined, 0, 1].includes(max));
    for (const left of few) {
      for (const right of few) {
        const both = bothRanges(left, right);
        for (const value of [-1, 0, 0.5, 1, 2]) {
          const isBoth = isWithin(value, left) && isWithin(value, right);
          assert.equal(isWithin(value, both), isBoth, `${value} ${said(left)} ${said(right)}`);
        }
      }
    }
  });

  const nines = (count: number): string => '9'.repeat(count);
  const rows: readonly (readonly [
    what: string,
    Expression | undefined,
    accepted: readonly string[],
    refused: readonly string[],
  ])[] = [
    [
      '18 digits of whole numbers',
      wholeNumbers(range({ min: 5 })),
      [nines(18), '5', '10', `1${'0'.repeat(17)}`],
      [nines(19), '4', '-5'],
    ],
    ['18 digits below', wholeNumbers(range({ max: -5 })), [`-${nines(18)}`, '-5'], [`-${nines(19)}`, '-4', '0', '-0']],
    [
      'bounds beyond 18 digits',
      wholeNumbers(range({ min: -1e30, max: 1e30 })),
      [nines(18), `-${nines(18)}`],
      [nines(19), `-${nines(19)}`],
    ],
    ['nothing beyond 18 digits', wholeNumbers(range({ min: 1e18 })), [], [`1${'0'.repeat(18)}`, nines(18)]],
    ['nothing below 18 digits', wholeNumbers(range({ max: -1e18 })), [], [`-1${'0'.repeat(18)}`, `-${nines(18)}`]],
    [
      'the last with 18 digits',
      wholeNumbers(range({ min: 999999999999999872 })),
      ['999999999999999872', nines(18)],
      ['999999999999999871'],
    ],
    [
      'the bounds of doubles',
      wholeNumbers(range({ min: 9007199254740990, max: 9007199254740991 })),
      ['9007199254740990', '9007199254740991'],
      ['9007199254740989', '9007199254740992'],
    ],
    ['between two whole numbers', wholeNumbers(range({ min: 0.25, max: 0.75 })), [], ['0', '1']],
    [
      'an excluded fraction',
      wholeNumbers(range({ min: 0.5, minExcluded: true, max: 2.5, maxExcluded: true })),
      ['1', '2'],
      ['0', '3'],
    ],
    ['zero alone', wholeNumbers(range({ min: 0, max: 0 })), ['0'], ['-0', '1']],
    [
      '18 and 17 digits of decimals',
      decimalNumbers(range({ min: 0 })),
      [`${nines(18)}.${nines(17)}`, '0', '0.0', `0.${'0'.repeat(16)}1`],
      [nines(19), `0.${'0'.repeat(17)}1`, '-0.1'],
    ],
    [
      '18 and 17 digits below',
      decimalNumbers(range({ max: 0 })),
      [`-${nines(18)}.${nines(17)}`, '0', '-0', '-0.0', '-0.1'],
      [`-${nines(19)}`, '0.1'],
    ],
    [
      'bounds of many digits',
      decimalNumbers(range({ min: -1e30, max: 1e30 })),
      [nines(18), `-${nines(18)}.${nines(17)}`],
      [nines(19)],
    ],
    ['nothing above', decimalNumbers(range({ min: 1e18 })), [], [`1${'0'.repeat(18)}`, nines(18)]],
    ['nothing below', decimalNumbers(range({ max: -1e18 })), [], [`-1${'0'.repeat(18)}`]],
    [
      'tiny',
      decimalNumbers(range({ min: 1e-17, max: 3e-17 })),
      ['0.00000000000000001', '0.00000000000000003'],
      ['0', '0.00000000000000004'],
    ],
    [
      'tiny, without its ends',
      decimalNumbers(range({ min: 1e-17, minExcluded: true, max: 3e-17, maxExcluded: true })),
      ['0.00000000000000002'],
      ['0.00000000000000001', '0.00000000000000003'],
    ],
    [
      'a bound of more digits, above zero',
      decimalNumbers(range({ min: 1.5e-17, max: 3.5e-17 })),
      ['0.00000000000000002', '0.00000000000000003'],
      ['0.00000000000000001', '0.00000000000000004'],
    ],
    [
      'a bound of more digits, below zero',
      decimalNumbers(range({ min: -3.5e-17, max: -1.5e-17 })),
      ['-0.00000000000000002', '-0.00000000000000003'],
      ['-0.00000000000000001', '-0.00000000000000004'],
    ],
    [
      'an excluded bound of more digits',
      decimalNumbers(range({ min: 1.5e-17, minExcluded: true, max: 2.5e-17, maxExcluded: true })),
      ['0.00000000000000002'],
      ['0.00000000000000001', '0.00000000000000003'],
    ],
    ['too tiny', decimalNumbers(range({ min: 1e-30, max: 2e-30 })), [], ['0', '0.00000000000000001']],
    [
      'a large bound with an exponent',
      decimalNumbers(range({ min: 1.25e17, max: 1.25e17 })),
      ['125000000000000000', '125000000000000000.0'],
      ['125000000000000001', '12500000000000000'],
    ],
    [
      'only the ends of digits',
      decimalNumbers(range({ min: 0.19, max: 0.91 })),
      ['0.19', '0.2', '0.9', '0.91', '0.9100', '0.555'],
      ['0.18', '0.189', '0.92', '0.911', '0.1', '0.0'],
    ],
    [
      'whole parts that differ by one',
      decimalNumbers(range({ min: 1.5, max: 2.5 })),
      ['1.5', '1.99', '2', '2.5', '2.50'],
      ['1', '1.49', '2.51', '3'],
    ],
  ];
  for (const [what, expression, accepted, refused] of rows) {
    it(what, () => {
      const matches = matcher(expression);
      for (const text of accepted) assert.ok(matches(text), text);
      for (const text of refused) assert.ok(!matches(text), text);
    });
  }

  it('of a schema, at random', () => {
    const value = fc.oneof(
      fc.integer({ min: -2000, max: 2000 }),
      fc.integer({ min: -200000, max: 200000 }).map((n) => n / 100),
    );
    fc.assert(
      fc.property(
        value,
        value,
        fc.boolean(),
        fc.boolean(),
        fc.array(value, { minLength: 10, maxLength: 20 }),
        (a, b, low, high, samples) => {
          const [min, max] = [Math.min(a, b), Math.max(a, b) + 1];
          const schema = {
            type: 'number',
            [low ? 'exclusiveMinimum' : 'minimum']: min,
            [high ? 'exclusiveMaximum' : 'maximum']: max,
          };
          const matches = follower(jsonSchemaGrammar(schema, 'schema'));
          for (const sample of [...samples, min, max]) {
            const isIn = (low ? sample > min : sample >= min) && (high ? sample < max : sample <= max);
            assert.equal(matches(JSON.stringify(sample)), isIn, `${sample} in ${JSON.stringify(schema)}`);
          }
        },
      ),
      { numRuns: 100 },
    );
  });
});
