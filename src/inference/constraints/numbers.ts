import {
  alternatives,
  characters,
  emptyText,
  literal,
  optional,
  repetition,
  sequence,
  type Expression,
} from './grammar.ts';

/** The bounds of a number: doubles as parsed from JSON; `undefined`: unbounded. */
export interface NumberRange {
  readonly min: number | undefined;
  readonly max: number | undefined;
  readonly minExcluded: boolean;
  readonly maxExcluded: boolean;
}

export const everyNumber: NumberRange = { min: undefined, max: undefined, minExcluded: false, maxExcluded: false };

/** Returns the intersection of two ranges. */
export function bothRanges(left: NumberRange, right: NumberRange): NumberRange {
  const [lower, higher] = [tighter(left, right, 'min'), tighter(left, right, 'max')];
  return { min: lower.min, minExcluded: lower.minExcluded, max: higher.max, maxExcluded: higher.maxExcluded };
}

function tighter(left: NumberRange, right: NumberRange, end: 'min' | 'max'): NumberRange {
  const [a, b] = [left[end], right[end]];
  if (a === undefined) return right;
  if (b === undefined) return left;
  if (a === b) return left[`${end}Excluded`] ? left : right;
  return a > b === (end === 'min') ? left : right;
}

export function inRange(value: number, range: NumberRange): boolean {
  if (range.min !== undefined && (range.minExcluded ? value <= range.min : value < range.min)) return false;
  return !(range.max !== undefined && (range.maxExcluded ? value >= range.max : value > range.max));
}

/** Whether the range contains no number, or no whole number. */
export function isEmptyRange(range: NumberRange, whole: boolean): boolean {
  if (whole) {
    const { min, max } = wholeBounds(range);
    return min > max;
  }
  const { min, max } = range;
  if (min === undefined || max === undefined) return false;
  return min > max || (min === max && (range.minExcluded || range.maxExcluded));
}

const digit = (first: number, last: number): Expression =>
  first === last ? literal(String(first)) : characters(`${first}-${last}`);
const anyDigits = (min: number, max: number): Expression => repetition(digit(0, 9), min, max);

/** Whole numbers have at most 18 digits; bounds beyond that have no effect, or leave nothing. */
const wholeMost = 10n ** 18n - 1n;

function wholeBounds(range: NumberRange): { readonly min: bigint; readonly max: bigint } {
  let min = range.min === undefined ? -wholeMost : BigInt(Math.ceil(range.min));
  let max = range.max === undefined ? wholeMost : BigInt(Math.floor(range.max));
  if (range.minExcluded && range.min !== undefined && Number.isInteger(range.min)) min += 1n;
  if (range.maxExcluded && range.max !== undefined && Number.isInteger(range.max)) max -= 1n;
  return { min: min < -wholeMost ? -wholeMost : min, max: max > wholeMost ? wholeMost : max };
}

/** Returns the whole numbers of a range, digit by digit; `undefined`: none of them has at most 18 digits. */
export function wholeNumbers(range: NumberRange): Expression | undefined {
  const { min, max } = wholeBounds(range);
  const forms: Expression[] = [];
  if (min < 0n && max >= min) {
    const smallest = max < 0n ? -max : 1n;
    if (smallest <= -min) forms.push(sequence(literal('-'), naturals(smallest, -min)));
  }
  if (max >= 0n && max >= min) forms.push(naturals(min < 0n ? 0n : min, max));
  return forms.length === 0 ? undefined : alternatives(...forms);
}

/** Returns the numbers from `min` to `max`, 0 ≤ min ≤ max, without leading zeros. */
function naturals(min: bigint, max: bigint): Expression {
  const forms: Expression[] = [];
  for (let length = String(min).length; length <= String(max).length; length++) {
    const low = length === String(min).length ? String(min) : `1${'0'.repeat(length - 1)}`;
    const high = length === String(max).length ? String(max) : '9'.repeat(length);
    // Complete lengths are merged, as in [1-9][0-9]{2,16}: most ranges then fit on one line.
    if (/^10*$/.test(low) && /^9+$/.test(high) && length < String(max).length - 1) {
      let last = length;
      while (last + 1 < String(max).length) last++;
      forms.push(sequence(digit(1, 9), anyDigits(length - 1, last - 1)));
      length = last;
    } else forms.push(sameLength(low, high));
  }
  return alternatives(...forms);
}

/** Returns the numbers from `low` to `high`, which have the same number of digits. */
function sameLength(low: string, high: string): Expression {
  const [first, last] = [Number(low[0]), Number(high[0])];
  const rest = low.length - 1;
  if (rest === 0) return digit(first, last);
  if (first === last) return sequence(digit(first, first), sameLength(low.slice(1), high.slice(1)));
  const [zeros, nines] = ['0'.repeat(rest), '9'.repeat(rest)];
  const forms: Expression[] = [];
  const lowIsWhole = low.slice(1) === zeros;
  const highIsWhole = high.slice(1) === nines;
  if (!lowIsWhole) forms.push(sequence(digit(first, first), sameLength(low.slice(1), nines)));
  const [from, to] = [lowIsWhole ? first : first + 1, highIsWhole ? last : last - 1];
  if (from <= to) forms.push(sequence(digit(from, to), anyDigits(rest, rest)));
  if (!highIsWhole) forms.push(sequence(digit(last, last), sameLength(zeros, high.slice(1))));
  return alternatives(...forms);
}

/** Digits after the point; bounds with more are rounded inwards. */
const fractionDigitsMax = 17;

/**
 * Returns the numbers of a range, as decimals without an exponent, with at most 18 digits before the point and 17 after it. `undefined`:
 * the range contains none of them.
 */
export function decimalNumbers(range: NumberRange): Expression | undefined {
  const min = range.min === undefined ? undefined : scaled(range.min, 'up', range.minExcluded);
  const max = range.max === undefined ? undefined : scaled(range.max, 'down', range.maxExcluded);
  const most = 10n ** BigInt(18 + fractionDigitsMax) - 1n;
  const low = min === undefined || min < -most ? -most : min;
  const high = max === undefined || max > most ? most : max;
  if (low > high) return undefined;
  const forms: Expression[] = [];
  if (low < 0n) {
    const smallest = high < 0n ? -high : 0n;
    forms.push(sequence(literal('-'), magnitudes(smallest, -low)));
  }
  if (high >= 0n) forms.push(magnitudes(low < 0n ? 0n : low, high));
  return alternatives(...forms);
}

/** Converts a bound to units of the last digit after the point. An excluded bound becomes the next unit inside. */
function scaled(bound: number, direction: 'up' | 'down', excluded: boolean): bigint {
  const { whole, fraction, negative } = decimalDigits(bound);
  const kept = fraction.slice(0, fractionDigitsMax).padEnd(fractionDigitsMax, '0');
  const isExact = /^0*$/.test(fraction.slice(fractionDigitsMax));
  const size = BigInt(whole + kept);
  let units = negative ? -size : size;
  // Truncation moved the bound towards zero; if that is outwards here, it is corrected by one unit.
  if (!isExact && negative === (direction === 'down')) units += direction === 'up' ? 1n : -1n;
  if (isExact && excluded) units += direction === 'up' ? 1n : -1n;
  return units;
}

/** Splits a double into digits before and after the point, without an exponent. */
function decimalDigits(value: number): {
  readonly whole: string;
  readonly fraction: string;
  readonly negative: boolean;
} {
  const [mantissa = '0', exponent = '0'] = Math.abs(value).toString().split('e');
  const [before = '0', behind = ''] = mantissa.split('.');
  const shift = Number(exponent);
  if (shift >= 0) {
    return {
      whole: before + behind.slice(0, shift).padEnd(shift, '0'),
      fraction: behind.slice(shift),
      negative: value < 0,
    };
  }
  return { whole: '0', fraction: '0'.repeat(-shift - 1) + before + behind, negative: value < 0 };
}

/** Returns the decimals from `low` to `high` units, 0 ≤ low ≤ high. */
function magnitudes(low: bigint, high: bigint): Expression {
  const unit = 10n ** BigInt(fractionDigitsMax);
  const [lowWhole, highWhole] = [low / unit, high / unit];
  const lowFraction = String(low % unit).padStart(fractionDigitsMax, '0');
  const highFraction = String(high % unit).padStart(fractionDigitsMax, '0');
  const zeros = '0'.repeat(fractionDigitsMax);
  const nines = '9'.repeat(fractionDigitsMax);
  if (lowWhole === highWhole) {
    return sequence(literal(String(lowWhole)), fractions(lowFraction, highFraction));
  }
  const forms: Expression[] = [];
  const lowIsWhole = lowFraction === zeros;
  const highIsWhole = highFraction === nines;
  if (!lowIsWhole) forms.push(sequence(literal(String(lowWhole)), fractions(lowFraction, nines)));
  const [from, to] = [lowIsWhole ? lowWhole : lowWhole + 1n, highIsWhole ? highWhole : highWhole - 1n];
  if (from <= to) forms.push(sequence(naturals(from, to), fractions(zeros, nines)));
  if (!highIsWhole) forms.push(sequence(literal(String(highWhole)), fractions(zeros, highFraction)));
  return alternatives(...forms);
}

/** Returns what may follow the whole part so that the fraction is between `low` and `high`; no digits mean zero. */
function fractions(low: string, high: string): Expression {
  const behindPoint = sequence(literal('.'), fractionDigits(low, high));
  return /^0+$/.test(low) ? optional(behindPoint) : behindPoint;
}

/** Returns one or more digits, at most as many as `low` and `high` have, that are between the two; missing digits are 0. */
function fractionDigits(low: string, high: string): Expression {
  const rest = low.length - 1;
  const [first, last] = [Number(low[0]), Number(high[0])];
  const [lowRest, highRest] = [low.slice(1), high.slice(1)];
  const more = (from: string, to: string): Expression => {
    if (rest === 0) return emptyText;
    if (/^0+$/.test(from) && /^9+$/.test(to)) return anyDigits(0, rest);
    const digits = fractionDigits(from, to);
    return /^0+$/.test(from) ? optional(digits) : digits;
  };
  if (first === last) return sequence(digit(first, first), more(lowRest, highRest));
  const [zeros, nines] = ['0'.repeat(rest), '9'.repeat(rest)];
  const forms: Expression[] = [];
  const lowIsWhole = lowRest === zeros;
  const highIsWhole = highRest === nines;
  if (!lowIsWhole) forms.push(sequence(digit(first, first), more(lowRest, nines)));
  const [from, to] = [lowIsWhole ? first : first + 1, highIsWhole ? last : last - 1];
  if (from <= to) forms.push(sequence(digit(from, to), more(zeros, nines)));
  if (!highIsWhole) forms.push(sequence(digit(last, last), more(zeros, highRest)));
  return alternatives(...forms);
}
