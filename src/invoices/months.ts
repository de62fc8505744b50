/** Months as a time zone has them. Times are milliseconds since 1970. */

const dayMs = 86_400_000;
/** No zone is further from UTC. */
const offsetMaxMs = 15 * 3_600_000;
/** Two ends of months are never closer, whatever the zone is changed to between them. */
const halfMonthMs = 15 * dayMs;

/** The year and the month, 1 to 12, that a zone has at a time. */
export interface Month {
  readonly year: number;
  readonly month: number;
}

export const monthOf = (ms: number, timeZone: string): Month => monthBy(formatOf(timeZone), ms);

function monthBy(format: Intl.DateTimeFormat, ms: number): Month {
  const parts = format.formatToParts(ms);
  const part = (type: string): number => Number(parts.find((one) => one.type === type)!.value);
  return { year: part('year'), month: part('month') };
}

/** `2026-10`. */
export const monthText = ({ year, month }: Month): string => `${year}-${String(month).padStart(2, '0')}`;

/**
 * The first moment that a zone counts to a month, found by halving: some zones have no midnight on the day when their
 * summer time begins.
 */
export function startOfMonthIn({ year, month }: Month, timeZone: string): number {
  const about = Date.UTC(year, month - 1, 1);
  const format = formatOf(timeZone);
  const wanted = year * 12 + month;
  let before = about - offsetMaxMs;
  let after = about + offsetMaxMs;
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    const found = monthBy(format, middle);
    if (found.year * 12 + found.month >= wanted) after = middle;
    else before = middle;
  }
  return after;
}

/**
 * When a period ends that begins at `start`: with the month of the zone, at least half a month later, so that a change of the
 * zone makes one period longer or shorter by hours, and never one of hours.
 */
export function endOfPeriod(start: number, timeZone: string): number {
  const { year, month } = monthOf(start + halfMonthMs, timeZone);
  return startOfMonthIn(month === 12 ? { year: year + 1, month: 1 } : { year, month: month + 1 }, timeZone);
}

/** `2026-10-31`, of a zone. */
export const dateText = (ms: number, timeZone: string): string =>
  new Intl.DateTimeFormat('en-CA', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' }).format(ms);

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
