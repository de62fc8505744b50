import type { Usage } from '../generation/event.ts';

/**
 * The prices of a model, in integer microcents per million tokens: 1 cent per million tokens = 1 microcent per token = 1,000,000 here.
 * Never a float.
 */
export interface Prices {
  readonly input: bigint;
  /** Generated tokens, reasoning included. */
  readonly output: bigint;
  /** Prompt tokens served from cache; defaults to the input price. */
  readonly cacheRead: bigint;
}

/** A price that is given as a part of another: ten-thousandths. */
export const wholePrice = 10_000n;

/** Rounded up to whole microcents per million tokens: what is printed is what is charged. */
export function timesPrice(prices: Prices, part: bigint): Prices {
  if (part === wholePrice) return prices;
  const of = (price: bigint): bigint => (price * part + wholePrice - 1n) / wholePrice;
  return { input: of(prices.input), output: of(prices.output), cacheRead: of(prices.cacheRead) };
}

const million = 1_000_000n;

/** What has a price: reasoning is a part of the completion. */
export type PricedUsage = Omit<Usage, 'reasoningTokens'>;

/** Microcents: ceil(Σ tokens × price / 10⁶), summed exactly and rounded once. */
export function costMicrocents(usage: PricedUsage, prices: Prices): bigint {
  const sum =
    BigInt(usage.promptTokens - usage.cachedTokens) * prices.input +
    BigInt(usage.cachedTokens) * prices.cacheRead +
    BigInt(usage.completionTokens) * prices.output;
  return (sum + million - 1n) / million;
}

/** Microcents → whole cents, half up; for non-negative amounts. */
export const roundedCents = (microcents: bigint): number => Number((microcents + million / 2n) / million);
