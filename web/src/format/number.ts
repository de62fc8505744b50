import { numberFormat } from './formats.ts';

export const formatNumber = (value: number, options: Intl.NumberFormatOptions = {}): string =>
  numberFormat(options).format(value);

/** `12.3K`, for axes and tiles. */
export const formatCompact = (value: number): string =>
  formatNumber(value, { notation: 'compact', maximumFractionDigits: 1 });

export const formatPercent = (share: number): string =>
  formatNumber(share, { style: 'percent', maximumFractionDigits: 1 });

/** Bytes in the decimal units that disks and networks use. */
export function formatBytes(bytes: number): string {
  const units = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte'];
  const at = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  return formatNumber(bytes / 1000 ** at, {
    style: 'unit',
    unit: units[at]!,
    // The short form of bytes has no plural.
    unitDisplay: at === 0 ? 'long' : 'short',
    maximumFractionDigits: 1,
  });
}

export const formatMilliseconds = (ms: number): string =>
  ms < 1000
    ? formatNumber(ms, { style: 'unit', unit: 'millisecond', maximumFractionDigits: 0 })
    : formatNumber(ms / 1000, { style: 'unit', unit: 'second', maximumFractionDigits: ms < 10_000 ? 2 : 1 });
