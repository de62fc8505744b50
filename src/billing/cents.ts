const microcentsPerCent = 1_000_000n;

/** Microcents → whole cents, rounded up: a price must cover the amount. */
export const ceiledCents = (microcents: bigint): number =>
  Number((microcents + microcentsPerCent - 1n) / microcentsPerCent);

/** Microcents → whole cents, rounded down, so that a displayed balance never exceeds the real one. */
export const flooredCents = (microcents: bigint): number =>
  Number(microcents / microcentsPerCent - (microcents % microcentsPerCent < 0n ? 1n : 0n));
