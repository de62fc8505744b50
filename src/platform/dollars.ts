/** Microcents → dollars for display, exactly: `$10.00`, `$1,250.00`, `$0.0000022`, `-$1.50`. */
export function dollars(microcents: bigint): string {
  const [, sign, whole, fraction] = /^(-?)(.*)\.(.*)$/.exec(dollarDecimal(microcents))!;
  return `${sign}$${whole!.replace(/\B(?=(\d{3})+$)/g, ',')}.${fraction}`;
}

/** Cents → dollars for display: `$12.35`. */
export const centsText = (cents: number): string => dollars(BigInt(cents) * 1_000_000n);

/** Microcents → dollars for programs, exactly, with at least two decimals: `1250.00`, `-0.000125`. */
export function dollarDecimal(microcents: bigint): string {
  const digits = String(microcents).replace('-', '').padStart(9, '0');
  const fraction = digits.slice(-8).replace(/0{1,6}$/, '');
  return `${microcents < 0n ? '-' : ''}${digits.slice(0, -8)}.${fraction}`;
}
