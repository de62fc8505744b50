/** Months of a time zone. Times are milliseconds since 1970. */
import { dateAt, startOfZoneMonth } from './time-zone.ts';

const dayMs = 86_400_000;
/** Minimum time between two month ends, even when the zone is replaced in between. */
const halfMonthMs = 15 * dayMs;

/** The year and the month, 1 to 12, in a zone at a time. */
export interface Month {
  readonly year: number;
  readonly month: number;
}

export function monthOf(ms: number, timeZone: string): Month {
  const parts = formatOf(timeZone).formatToParts(ms);
  const part = (type: string): number => Number(parts.find((one) => one.type === type)!.value);
  return { year: part('year'), month: part('month') };
}

/** The first moment of a month in UTC, `later` months after that of a time. */
export function startOfUtcMonth(ms: number, later = 0): number {
  const date = new Date(ms);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later);
}

/** `2026-10`. */
export const monthText = ({ year, month }: Month): string => `${year}-${String(month).padStart(2, '0')}`;

/** The first moment of a month in a zone. */
export const startOfMonthIn = ({ year, month }: Month, timeZone: string): number =>
  startOfZoneMonth(timeZone, year, month);

/**
 * The end of a period that begins at `start`: the end of a month of the zone that is at least half a month later, so that a change
 * of the zone makes one period longer or shorter by hours, but never only hours long.
 */
export function endOfPeriod(start: number, timeZone: string): number {
  const { year, month } = monthOf(start + halfMonthMs, timeZone);
  return startOfMonthIn(month === 12 ? { year: year + 1, month: 1 } : { year, month: month + 1 }, timeZone);
}

/** `2026-10-31`, in a zone. */
export const dateText = (ms: number, timeZone: string): string => dateAt(timeZone, ms);

const formatOf = (timeZone: string): Intl.DateTimeFormat =>
  new Intl.DateTimeFormat('en-US', { timeZone, year: 'numeric', month: 'numeric', calendar: 'gregory' });

/** Whether this computer knows the rules of a zone. */
export function isTimeZone(name: string): boolean {
  try {
    formatOf(name);
    return true;
  } catch {
    return false;
  }
}
