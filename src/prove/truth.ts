/** Dollars for a million tokens, in microcents (10^-8 dollars). */
export interface Prices {
  readonly input: bigint;
  readonly output: bigint;
}

/** What a right charge is between, in microcents. */
export interface Range {
  readonly least: bigint;
  readonly most: bigint;
}

const million = 1_000_000n;

/** Exact, and rounded up once. */
export function cost(prices: Prices, promptTokens: number, completionTokens: number): bigint {
  const exact = BigInt(promptTokens) * prices.input + BigInt(completionTokens) * prices.output;
  return (exact + million - 1n) / million;
}

export const exactly = (microcents: bigint): Range => ({ least: microcents, most: microcents });

export const sum = (ranges: readonly Range[]): Range =>
  ranges.reduce((all, { least, most }) => ({ least: all.least + least, most: all.most + most }), exactly(0n));

/**
 * What may be charged where nobody reports usage, so that the gateway has to count by itself: half to twice of the prompt, whose
 * template it may not know, and three quarters to five quarters of a text of plain English words.
 */
export function estimated(prices: Prices, promptTokens: number, least: number, most: number): Range {
  return {
    least: cost(prices, Math.floor(promptTokens / 2), Math.floor((least * 3) / 4)),
    most: cost(prices, promptTokens * 2, Math.ceil((most * 5) / 4)),
  };
}

export const isWithin = (charged: bigint, { least, most }: Range): boolean => charged >= least && charged <= most;

/** What of a charge is missing, and what of it nobody has produced. */
export function compare(charged: bigint, { least, most }: Range): { readonly lost: bigint; readonly madeUp: bigint } {
  return { lost: charged < least ? least - charged : 0n, madeUp: charged > most ? charged - most : 0n };
}
