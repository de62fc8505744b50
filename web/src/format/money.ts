import { numberFormat } from './formats.ts';

/** A dollar is 100 cents of a million microcents: 10^8 of them. */
const decimals = 8;

/**
 * How many decimals an amount shows. `cents`: two, and below a cent as many as it needs (`$0.000041`), so that nothing looks like none; for
 * balances and sums. `exact`: all that it has; for prices, which are often parts of a cent. `fixed`: all eight, zeros too, so that the
 * charges of a column can be compared.
 */
export type Precision = 'cents' | 'exact' | 'fixed';

interface MoneyOptions {
  readonly precision?: Precision;
  readonly sign?: boolean;
}

/** Microcents as dollars. */
export function formatMoney(
  microcents: number | bigint,
  { precision = 'cents', sign = false }: MoneyOptions = {},
): string {
  const amount = BigInt(microcents);
  const digits = (amount < 0n ? -amount : amount).toString().padStart(decimals + 1, '0');
  const [whole, fraction] = [digits.slice(0, -decimals), digits.slice(-decimals)];
  const significant = Math.max(2, fraction.replace(/0+$/, '').length);
  // Below a cent: up to the second digit that counts.
  const firstDigit = fraction.search(/[1-9]/);
  const shown = {
    cents: whole === '0' && firstDigit >= 2 ? Math.min(significant, firstDigit + 2) : 2,
    exact: significant,
    fixed: decimals,
  }[precision];
  // A text of digits is formatted without a float in between.
  const text = `${amount < 0n ? '-' : ''}${whole}.${fraction}`;
  return dollarsFormat(shown, sign, precision === 'fixed' ? shown : 2).format(text as never);
}

const dollarsFormat = (decimalsShown: number, sign: boolean, least = 2): Intl.NumberFormat =>
  numberFormat({
    style: 'currency',
    currency: 'USD',
    currencyDisplay: 'narrowSymbol',
    minimumFractionDigits: least,
    maximumFractionDigits: decimalsShown,
    ...(sign ? { signDisplay: 'exceptZero' as const } : {}),
  });

/** Parts of a microcent too, as the lines of a receipt have them (`534.89925`): as many decimals as there are. */
export function formatExact(microcents: string): string {
  const [whole = '', fraction = ''] = microcents.split('.');
  const digits = whole.padStart(decimals + 1, '0');
  const all = (digits.slice(-decimals) + fraction).replace(/0+$/, '');
  return dollarsFormat(Math.max(2, all.length), false).format(`${digits.slice(0, -decimals)}.${all}` as never);
}

export const formatCents = (cents: number): string => formatMoney(BigInt(cents) * 1_000_000n);

/** `12.50` as a person types it, in cents; undefined: not an amount. */
export function centsOf(typed: string): number | undefined {
  const match = /^\$?\s*(\d{1,10})(?:[.,](\d{1,2}))?$/.exec(typed.trim());
  if (match === null) return undefined;
  return Number(match[1]) * 100 + Number((match[2] ?? '').padEnd(2, '0'));
}

/** What `microcentsOf` reads, to the microcent. */
export const exactPattern = String.raw`\$?\s*\d{1,8}([.,]\d{1,8})?`;

/** `0.075` in microcents: rates and budgets may have fractions of a cent. undefined: not one. */
export function microcentsOf(typed: string): number | undefined {
  const match = /^\$?\s*(\d{1,8})(?:[.,](\d{1,8}))?$/.exec(typed.trim());
  if (match === null) return undefined;
  return Number(match[1] + (match[2] ?? '').padEnd(decimals, '0'));
}

/** The other way, for a field: at least two decimals, and as many as it has. */
export function microcentsTyped(microcents: number): string {
  const digits = String(microcents).padStart(decimals + 1, '0');
  const fraction = digits.slice(-decimals).replace(/0+$/, '');
  return `${digits.slice(0, -decimals)}.${fraction.padEnd(2, '0')}`;
}

/** The other way, for a field. */
export const dollarsTyped = (cents: number): string => (cents / 100).toFixed(2);
