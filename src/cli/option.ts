import { InvalidArgumentError } from 'commander';

/** Readers of the command line's values; their errors are printed with the option's name, exit code 64. */
export function wholeNumber(minimum: number, maximum: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < minimum || value > maximum)
      throw new InvalidArgumentError(`use a whole number from ${minimum} to ${maximum}`);
    return value;
  };
}

export function decimalNumber(minimum: number, maximum: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d{1,9}(\.\d{1,9})?$/.test(text) || value < minimum || value > maximum)
      throw new InvalidArgumentError(`use a number from ${minimum} to ${maximum}`);
    return value;
  };
}

/** Milliseconds. */
export function duration(text: string): number {
  const [, digits, unit] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  const unitMs = { m: 60_000, h: 3_600_000, d: 86_400_000 }[unit ?? ''];
  if (digits === undefined || unitMs === undefined || Number(digits) === 0)
    throw new InvalidArgumentError('use minutes, hours or days: 30m, 12h, 30d');
  return Number(digits) * unitMs;
}

/** Milliseconds, or `never`. */
export const durationOrNever = (text: string): number | 'never' => (text === 'never' ? text : duration(text));

/** The account API shows amounts as JSON numbers of microcents, which are exact up to 90 million dollars. */
const largestDollars = 90_000_000n;
const largestCents = largestDollars * 100n;

/** Decimal text of cents → microcents, never through a float. Reads the option `--cents`. */
export function centsToMicrocents(text: string): bigint {
  const [, whole, fraction = ''] = /^(\d{1,15})(?:\.(\d{1,6}))?$/.exec(text) ?? [];
  if (whole === undefined)
    throw new InvalidArgumentError('use cents with at most six decimals, for example 500 or 0.25');
  const microcents = BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, '0'));
  if (microcents === 0n) throw new InvalidArgumentError('the amount must be more than 0');
  if (microcents > largestCents * 1_000_000n) throw new InvalidArgumentError(`at most ${largestCents} cents at once`);
  return microcents;
}

/** The same, or below 0. */
export const signedCentsToMicrocents = (text: string): bigint =>
  text.startsWith('-') ? -centsToMicrocents(text.slice(1)) : centsToMicrocents(text);

/** The same, or 0. */
export const centsToMicrocentsOrNone = (text: string): bigint =>
  /^0+(\.0{1,6})?$/.test(text) ? 0n : centsToMicrocents(text);

/** Decimal text of dollars → microcents, never through a float; 0 allows nothing that has a cost. */
export function dollarsToMicrocents(text: string): bigint {
  const [, whole, fraction = ''] = /^\$?(\d{1,11})(?:\.(\d{1,8}))?$/.exec(text) ?? [];
  const microcents = BigInt(whole ?? 0) * 100_000_000n + BigInt(fraction.padEnd(8, '0'));
  if (whole === undefined || microcents > largestDollars * 100_000_000n)
    throw new InvalidArgumentError(
      `use dollars, at most ${largestDollars}, with at most eight decimals, for example 10.00`,
    );
  return microcents;
}

/** Decimal text of dollars → whole cents, more than 0. */
export function wholeCents(text: string): number {
  const microcents = dollarsToMicrocents(text);
  if (microcents === 0n || microcents % 1_000_000n !== 0n)
    throw new InvalidArgumentError('use dollars with at most two decimals, more than 0, for example 2.00');
  return Number(microcents / 1_000_000n);
}

/** A movement of credit in dollars → microcents. Reads the option `--dollars`. */
export function movedDollars(text: string): bigint {
  const microcents = dollarsToMicrocents(text);
  if (microcents === 0n) throw new InvalidArgumentError('the amount must be more than 0');
  return microcents;
}

/** The same, or below 0. */
export const signedDollars = (text: string): bigint =>
  text.startsWith('-') ? -movedDollars(text.slice(1)) : movedDollars(text);

const largestPriceCents = 1_000_000_000n;

/** Decimal text of cents or, after a `$`, of dollars for a million tokens → microcents; 0 gives them away. */
export function pricePerMillion(text: string): bigint {
  if (text.startsWith('$')) {
    const [, whole, fraction = ''] = /^\$(\d{1,8})(?:\.(\d{1,8}))?$/.exec(text) ?? [];
    const microcents = BigInt(whole ?? 0) * 100_000_000n + BigInt(fraction.padEnd(8, '0'));
    if (whole === undefined || microcents > largestPriceCents * 1_000_000n)
      throw new InvalidArgumentError(
        'use dollars for a million tokens, at most $10000000, with at most eight decimals, for example $0.125',
      );
    return microcents;
  }
  const [, whole, fraction = ''] = /^(\d{1,10})(?:\.(\d{1,6}))?$/.exec(text) ?? [];
  if (whole === undefined || BigInt(whole) > largestPriceCents)
    throw new InvalidArgumentError(
      `use cents for a million tokens, at most ${largestPriceCents}, with at most six decimals, for example 12.5`,
    );
  return BigInt(whole) * 1_000_000n + BigInt(fraction.padEnd(6, '0'));
}

/** Decimal text of a multiple → ten-thousandths, never through a float. */
export const multiple =
  (minimum: number, maximum: number) =>
  (text: string): number => {
    const [, whole, fraction = ''] = /^(\d{1,4})(?:\.(\d{1,4}))?$/.exec(text) ?? [];
    const parts = Number(whole ?? Number.NaN) * 10_000 + Number(fraction.padEnd(4, '0'));
    if (!(parts >= minimum * 10_000 && parts <= maximum * 10_000))
      throw new InvalidArgumentError(`use a number from ${minimum} to ${maximum} with at most four decimals`);
    return parts;
  };

/** Prices as the configuration has them. */
export interface WrittenPrices {
  readonly input_dollars_per_million: number;
  readonly output_dollars_per_million: number;
}

/** `0.10/0.40`: dollars per million prompt and generated tokens. */
export function pricesOption(text: string): WrittenPrices {
  const [input, output, ...more] = text.split('/').map((side) => side.trim().replace(/^\$/, ''));
  if (input === undefined || output === undefined || more.length > 0)
    throw new InvalidArgumentError('use dollars per million input and output tokens, for example 0.10/0.40');
  for (const side of [input, output]) pricePerMillion(`$${side}`);
  return { input_dollars_per_million: Number(input), output_dollars_per_million: Number(output) };
}

/** A day or a time in UTC → milliseconds since 1970. */
export function moment(text: string): number {
  const time = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?Z)?$/.test(text) ? Date.parse(text) : NaN;
  if (Number.isNaN(time)) throw new InvalidArgumentError('use a UTC day or time: 2027-06-30 or 2027-06-30T12:00:00Z');
  return time;
}

/** A calendar month in UTC → its first millisecond and that of the next. */
export function calendarMonth(text: string): { readonly from: number; readonly to: number } {
  const [, year, month] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(text) ?? [];
  if (year === undefined) throw new InvalidArgumentError('use a month such as 2027-06');
  return { from: Date.UTC(Number(year), Number(month) - 1), to: Date.UTC(Number(year), Number(month)) };
}

/** Collects the values of options that may be repeated. */
export const collected = (text: string, earlier: readonly string[] = []): readonly string[] => [...earlier, text];

/** Base address of an inference host, with or without `/v1`. */
export function serviceUrl(text: string): string {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text))
    throw new InvalidArgumentError('use a URL such as http://localhost:8080');
  return text.replace(/\/+$/, '').replace(/\/v1$/, '');
}

/** An error for what a command refuses. The class is loaded only then, because a declaration does not need it. */
export async function refused(message: string): Promise<Error> {
  const { OperationError } = await import('../accounts/operation.ts');
  return new OperationError(message);
}
