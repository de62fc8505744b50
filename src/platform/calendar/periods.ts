import { dateAt, startOfDay, startOfZoneMonth } from './time-zone.ts';

const hourMs = 3_600_000;

/** The beginning of the day, the week (from Monday) or the month that a time falls into, in a zone. */
export function startOfPeriod(ms: number, per: 'day' | 'week' | 'month', timeZone: string): number {
  const [year, month, day] = dateAt(timeZone, ms).split('-').map(Number) as [number, number, number];
  switch (per) {
    case 'day':
      return startOfDay(timeZone, ms);
    case 'week': {
      const sinceMonday = (new Date(Date.UTC(year, month - 1, day)).getUTCDay() + 6) % 7;
      // Noon, so that a day of 23 or 25 hours on the way does not matter.
      return startOfDay(timeZone, startOfDay(timeZone, ms) + 12 * hourMs - sinceMonday * 24 * hourMs);
    }
    case 'month':
      return startOfZoneMonth(timeZone, year, month);
  }
}
