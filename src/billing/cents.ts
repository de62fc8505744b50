const microcentsPerCent = 1_000_000n;

/** Microcents → whole cents, up: what is asked for must cover. */
export const ceiledCents = (microcents: bigint): number =>
  Number((microcents + microcentsPerCent - 1n) / microcentsPerCent);

/** Microcents → whole cents, down: what is there must be there. */
export const flooredCents = (microcents: bigint): number =>
  Number(
    microcents >= 0n ? microcents / microcentsPerCent : -((-microcents + microcentsPerCent - 1n) / microcentsPerCent),
  );

/** Microcents → dollars, exactly: `$10.00`, `$0.000125`, `-$1.50`. */
export function dollars(microcents: bigint): string {
  const digits = String(microcents < 0n ? -microcents : microcents).padStart(9, '0');
  const fraction = digits.slice(-8).replace(/0{1,6}$/, '');
  return `${microcents < 0n ? '-' : ''}$${digits.slice(0, -8)}.${fraction}`;
}
