const microcentsPerCent = 1_000_000n;

/** Microcents → whole cents, up: what is asked for must cover. */
export const ceiledCents = (microcents: bigint): number =>
  Number((microcents + microcentsPerCent - 1n) / microcentsPerCent);

/** Microcents → whole cents, down: what is there must be there. */
export const flooredCents = (microcents: bigint): number =>
  Number(
    microcents >= 0n ? microcents / microcentsPerCent : -((-microcents + microcentsPerCent - 1n) / microcentsPerCent),
  );
