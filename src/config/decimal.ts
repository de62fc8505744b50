/**
 * Reads a plain decimal such as `2.5` as an integer number of its `10^-places` parts, without ever going through a float:
 * `scaledDecimal('2.5', 6)` is `2_500_000n`. `undefined` if the text is not a plain decimal or has more places.
 */
export function scaledDecimal(text: string, places: number): bigint | undefined {
  const match = /^(\d{1,30})(?:\.(\d{1,30}))?$/.exec(text);
  if (match === null) return undefined;
  const fraction = (match[2] ?? '').replace(/0+$/, '');
  if (fraction.length > places) return undefined;
  return BigInt(match[1]! + fraction.padEnd(places, '0'));
}

/** The inverse: `decimalText(2_500_000n, 6)` is `2.5`. For values that are not negative. */
export function decimalText(parts: bigint, places: number): string {
  const digits = String(parts).padStart(places + 1, '0');
  const fraction = digits.slice(digits.length - places).replace(/0+$/, '');
  return digits.slice(0, digits.length - places) + (fraction === '' ? '' : `.${fraction}`);
}
