import { currentLocale } from '../i18n/language.ts';

/** Times of the account's own zone; the shell sets it from the account. */
let zone = 'UTC';
export const setTimeZone = (timeZone: string): void => void (zone = timeZone);
export const timeZone = (): string => zone;

type Style = 'date' | 'time' | 'short' | 'full';

const styles: Readonly<Record<Style, Intl.DateTimeFormatOptions>> = {
  date: { dateStyle: 'medium' },
  time: { timeStyle: 'medium' },
  short: { dateStyle: 'short', timeStyle: 'short' },
  full: { dateStyle: 'medium', timeStyle: 'long' },
};

/** `seconds` are unix seconds, as the API has them. */
export const formatDate = (seconds: number, style: Style = 'short'): string =>
  new Intl.DateTimeFormat(currentLocale(), { ...styles[style], timeZone: zone }).format(seconds * 1000);

const steps: readonly (readonly [Intl.RelativeTimeFormatUnit, number])[] = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
];

/** `3 minutes ago`, `in 2 days`. */
export function formatRelative(seconds: number, now = Date.now() / 1000): string {
  const difference = seconds - now;
  const [unit, length] = steps.find(([, length]) => Math.abs(difference) >= length) ?? (['second', 1] as const);
  return new Intl.RelativeTimeFormat(currentLocale(), { numeric: 'auto' }).format(
    Math.trunc(difference / length),
    unit,
  );
}
