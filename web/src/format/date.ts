import { currentLocale } from '../i18n/language.ts';
import { dateFormat } from './formats.ts';

/** Times of the account's own zone; the shell sets it from the account. */
let zone = 'UTC';
export const setTimeZone = (timeZone: string): void => void (zone = timeZone);
export const timeZone = (): string => zone;

type Style = 'date' | 'time' | 'short' | 'full';

const styles: Readonly<Record<Style, Intl.DateTimeFormatOptions>> = {
  date: { dateStyle: 'medium' },
  time: { timeStyle: 'medium' },
  short: { dateStyle: 'short', timeStyle: 'medium' },
  full: { dateStyle: 'medium', timeStyle: 'long' },
};

/** `seconds` are unix seconds, as the API has them. */
export const formatDate = (seconds: number, style: Style = 'short'): string =>
  dateFormat({ ...styles[style], timeZone: zone }).format(seconds * 1000);

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
    Math.round(difference / length),
    unit,
  );
}

/** `Nov 24`, for axes: a day of a zone. */
export const formatDay = (seconds: number, ofZone: string): string =>
  dateFormat({ month: 'short', day: 'numeric', timeZone: ofZone }).format(seconds * 1000);

/** `1:05 PM`, for axes: a minute of the account's zone. */
export const formatMinute = (seconds: number): string =>
  dateFormat({ hour: 'numeric', minute: '2-digit', timeZone: zone }).format(seconds * 1000);

/** `Nov 24, 1 PM`, for axes: an hour of a zone. */
export const formatHour = (seconds: number, ofZone: string): string =>
  dateFormat({ month: 'short', day: 'numeric', hour: 'numeric', timeZone: ofZone }).format(seconds * 1000);

/** `2026-11`: the month of a zone that a time is in. To make a format costs much more than to use it. */
export function monthIn(ofZone: string): (seconds: number) => string {
  const format = new Intl.DateTimeFormat('en-US', { year: 'numeric', month: '2-digit', timeZone: ofZone });
  return (seconds) => {
    const parts = format.formatToParts(seconds * 1000).map(({ type, value }) => [type, value]);
    const { year, month } = Object.fromEntries(parts) as { readonly year: string; readonly month: string };
    return `${year}-${month}`;
  };
}

const wallStyle: Intl.DateTimeFormatOptions = {
  year: 'numeric',
  month: '2-digit',
  day: '2-digit',
  hour: '2-digit',
  minute: '2-digit',
  hourCycle: 'h23',
};

/** `2026-11-24T13:05`: what a clock of a zone shows, as a field of the browser writes it. */
export function wallText(seconds: number, ofZone: string): string {
  const parts = dateFormat({ ...wallStyle, timeZone: ofZone }, 'en-US').formatToParts(seconds * 1000);
  const { year, month, day, hour, minute } = Object.fromEntries(
    parts.map(({ type, value }) => [type, value]),
  ) as Readonly<Record<string, string>>;
  return `${year}-${month}-${day}T${hour}:${minute}`;
}

const daySeconds = 86_400;
const utcOf = (wall: string): number => Date.parse(`${wall}Z`) / 1000;

/**
 * When a clock of a zone shows this for the first time, in unix seconds. Where it never does, because the clocks were put forward,
 * the moment at which they were. NaN: `wall` is no time.
 */
export function wallSeconds(wall: string, ofZone: string): number {
  const asUtc = utcOf(wall);
  if (Number.isNaN(asUtc)) return Number.NaN;
  // A clock differs from UTC by one of two amounts within the days around a change.
  const candidates = [asUtc - daySeconds, asUtc + daySeconds].map(
    (near) => asUtc - (utcOf(wallText(near, ofZone)) - near),
  );
  const shown = candidates.filter((at) => wallText(at, ofZone) === wall);
  return shown.length === 0 ? Math.max(...candidates) : Math.min(...shown);
}

/** Midnight of the day that a moment is in, so many days earlier. */
export function startOfDay(seconds: number, ofZone: string, daysEarlier = 0): number {
  const noon = utcOf(`${wallText(seconds, ofZone).slice(0, 10)}T12:00`) - daysEarlier * daySeconds;
  return wallSeconds(`${new Date(noon * 1000).toISOString().slice(0, 10)}T00:00`, ofZone);
}

export const startOfMonth = (seconds: number, ofZone: string): number =>
  wallSeconds(`${wallText(seconds, ofZone).slice(0, 7)}-01T00:00`, ofZone);
