import { dateText, dayFormat, monthOf, startOfMonthIn } from './months.ts';

const hourMs = 3_600_000;

/** The first moment that a zone counts to the day of a time. */
export function startOfDayIn(ms: number, timeZone: string): number {
  const format = dayFormat(timeZone);
  const day = format.format(ms);
  // No day has more than 25 hours, nor does a change of a zone's rules move it by more than one.
  let before = ms - 50 * hourMs;
  let after = ms;
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (format.format(middle) === day) after = middle;
    else before = middle;
  }
  return after;
}

/** When the day, the week (from Monday) or the month began that a time falls into, in a zone. */
export function startOfPeriod(ms: number, per: 'day' | 'week' | 'month', timeZone: string): number {
  switch (per) {
    case 'day':
      return startOfDayIn(ms, timeZone);
    case 'week': {
      const [year, month, day] = dateText(ms, timeZone).split('-').map(Number) as [number, number, number];
      const sinceMonday = (new Date(Date.UTC(year, month - 1, day)).getUTCDay() + 6) % 7;
      // Noon, so that a day of 23 or 25 hours on the way does not matter.
      return startOfDayIn(startOfDayIn(ms, timeZone) + 12 * hourMs - sinceMonday * 24 * hourMs, timeZone);
    }
    case 'month':
      return startOfMonthIn(monthOf(ms, timeZone), timeZone);
  }
}
