/**
 * Days, hours and minutes of a time zone by its IANA name (`Europe/Berlin`), as `Intl` knows it. Times are milliseconds since
 * 1970. A day begins with the first moment that has its date, so it has 23, 24 or 25 hours, or as many as its zone defines.
 */

export const bucketWidths = ['1m', '1h', '1d'] as const;
export type BucketWidth = (typeof bucketWidths)[number];

export const minuteMs = 60_000;
export const quarterMs = 15 * minuteMs;
export const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

const nameLengthMax = 64;

/** The name in `Intl`'s spelling; undefined for an unknown zone. Offsets such as `+05:30` are not names. */
export function timeZoneNamed(name: string): string | undefined {
  if (name.length > nameLengthMax || !/^[A-Za-z][A-Za-z0-9_+/-]*$/.test(name)) return undefined;
  try {
    return new Intl.DateTimeFormat('en-US', { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    return undefined;
  }
}

/** How far the clocks of a zone are ahead of UTC at a time. */
export function offsetAt(zone: string, ms: number): number {
  if (zone === 'UTC') return 0;
  const { year, month, day, hour, minute, second } = Object.fromEntries(
    formatOf(zone)
      .formatToParts(ms)
      .map(({ type, value }) => [type, Number(value)]),
  ) as Readonly<Record<'year' | 'month' | 'day' | 'hour' | 'minute' | 'second', number>>;
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1000) * 1000;
}

const formatsMax = 1000;
const formats = new Map<string, Intl.DateTimeFormat>();

/** Creating one costs a hundred times as much as using it; there are fewer zones than this. */
function formatOf(zone: string): Intl.DateTimeFormat {
  let format = formats.get(zone);
  if (format === undefined) {
    const number = 'numeric';
    format = new Intl.DateTimeFormat('en-US', {
      timeZone: zone,
      calendar: 'gregory',
      numberingSystem: 'latn',
      hourCycle: 'h23',
      year: number,
      month: number,
      day: number,
      hour: number,
      minute: number,
      second: number,
    });
    if (formats.size < formatsMax) formats.set(zone, format);
  }
  return format;
}

/** `2026-11-22`: the date in a zone. */
export const dateAt = (zone: string, ms: number): string =>
  new Date(ms + offsetAt(zone, ms)).toISOString().slice(0, 10);

/** `2026-11-22T14:03:00.000+05:30` */
export function localText(zone: string, ms: number): string {
  const offset = offsetAt(zone, ms);
  const minutes = Math.round(Math.abs(offset) / minuteMs);
  const two = (value: number): string => String(value).padStart(2, '0');
  const local = new Date(ms + offset).toISOString().slice(0, -1);
  return `${local}${offset < 0 ? '-' : '+'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

/** The first moment of the day that a time is in. */
export function startOfDay(zone: string, ms: number): number {
  const local = ms + offsetAt(zone, ms);
  return startOfDate(zone, Math.floor(local / dayMs) * dayMs);
}

/** The first moment of the next day that exists: a zone may have skipped one. */
export function nextDay(zone: string, ms: number): number {
  const local = ms + offsetAt(zone, ms);
  return startOfDate(zone, (Math.floor(local / dayMs) + 1) * dayMs);
}

/** The first moment of a calendar month; `month` counts from 1 and may be 13. */
export const startOfZoneMonth = (zone: string, year: number, month: number): number =>
  startOfDate(zone, Date.UTC(year, month - 1));

/** The first moment of a date. `midnight`: its 00:00, as if in UTC. */
export function startOfDate(zone: string, midnight: number): number {
  if (zone === 'UTC') return midnight;
  const likely = midnight - offsetAt(zone, midnight - offsetAt(zone, midnight));
  const shown = (ms: number): number => ms + offsetAt(zone, ms);
  if (shown(likely) === midnight && shown(likely - 1) === midnight - 1) return likely;
  // The clocks change at that very midnight: the first moment that shows the date or a later one.
  let before = midnight - dayMs;
  let at = midnight + dayMs;
  while (at - before > minuteMs) {
    const middle = before + Math.floor((at - before) / 2 / minuteMs) * minuteMs;
    if (shown(middle) >= midnight) at = middle;
    else before = middle;
  }
  return at;
}

/** The beginning of the bucket that a time is in. */
function startOfBucket(zone: string, width: BucketWidth, ms: number): number {
  switch (width) {
    case '1m':
      return Math.floor(ms / minuteMs) * minuteMs;
    case '1h': {
      const offset = offsetAt(zone, ms);
      return Math.floor((ms + offset) / hourMs) * hourMs - offset;
    }
    case '1d':
      return startOfDay(zone, ms);
  }
}

/** The beginning of the next bucket. */
export function nextBucket(zone: string, width: BucketWidth, ms: number): number {
  switch (width) {
    case '1m':
      return startOfBucket(zone, '1m', ms) + minuteMs;
    case '1h': {
      const next = startOfBucket(zone, '1h', ms) + hourMs;
      if (offsetAt(zone, next) === offsetAt(zone, ms)) return next;
      // The clocks change in between: when they next show a whole hour, possibly one and a half hours later.
      let at = Math.floor(ms / quarterMs) * quarterMs + quarterMs;
      while ((at + offsetAt(zone, at)) % hourMs !== 0) at += quarterMs;
      return at;
    }
    case '1d':
      return nextDay(zone, ms);
  }
}

/**
 * The ends of the buckets between two times: `bounds[i]` to `bounds[i + 1]` is one. The first begins at `from`, the last ends
 * at `to`, or where `bucketsMax` of them end.
 */
export function bucketBounds(
  zone: string,
  width: BucketWidth,
  { from, to }: { readonly from: number; readonly to: number },
  bucketsMax: number,
): readonly number[] {
  const bounds = [from];
  for (let at = from; at < to && bounds.length <= bucketsMax;) {
    at = Math.min(nextBucket(zone, width, at), to);
    bounds.push(at);
  }
  return bounds;
}
