/** Chooses where to read the usage of a time span, so that few rows are read: decision 016. Times are ms since 1970. */
import { hourMs, nextDay, quarterMs, startOfDay } from '../../platform/calendar/time-zone.ts';

/** What can be read where, at one moment of the database. */
export interface SumPlaces {
  /** Earlier hours are in usage_hour and final. */
  readonly closed: number;
  /** The same of usage_tier_hour; omitted: nothing is read from it. */
  readonly tiersClosed?: number;
  /** The days in usage_day, all before `until`. */
  readonly days: { readonly timeZone: string; readonly until: number } | undefined;
  /** Rows that ended earlier may be removed. */
  readonly keptSince: number;
}

/** A part of the span. `hour`: whole hours; one that a bound cuts counts for the bucket after that bound. */
export interface Segment {
  readonly place: 'day' | 'hour' | 'usage';
  readonly from: number;
  readonly to: number;
  /** Starts of hours that are read elsewhere. */
  readonly without: readonly number[];
}

/** A bound at a quarter of an hour in usage_hour: the quarters before it belong to the preceding bucket. */
export interface CutHour {
  readonly hour: number;
  /** Time from the start of the hour to the bound. */
  readonly firstMs: number;
  /** Whether the bucket after the bound has the whole hour, and the one before it is missing its part. Not at both ends of a span. */
  readonly isAfter: boolean;
  readonly isBefore: boolean;
}

const startOfHour = (ms: number): number => Math.floor(ms / hourMs) * hourMs;
const isHour = (ms: number): boolean => ms % hourMs === 0;

/** Splits a span into segments. `bounds`: ascending, the ends of buckets. */
export function segmentsOf(
  bounds: readonly number[],
  { closed, days, hasQuarters = true }: Omit<SumPlaces, 'keptSince'> & { readonly hasQuarters?: boolean },
): { readonly segments: readonly Segment[]; readonly cuts: readonly CutHour[] } {
  const [from, to] = [bounds[0]!, bounds.at(-1)!];
  if (from >= to) return { segments: [], cuts: [] };
  const inner = bounds.slice(1, -1);
  const segments: Segment[] = [];
  const cuts: CutHour[] = [];
  let [daysFrom, daysTo] = [from, from];
  if (days !== undefined) {
    const { timeZone, until } = days;
    if (inner.every((bound) => startOfDay(timeZone, bound) === bound)) {
      daysFrom = Math.min(startOfDay(timeZone, from) === from ? from : nextDay(timeZone, from), to);
      daysTo = Math.max(daysFrom, Math.min(startOfDay(timeZone, to), until));
      if (daysFrom < daysTo) segments.push({ place: 'day', from: daysFrom, to: daysTo, without: [] });
      else daysFrom = daysTo = from;
    }
  }
  for (const [restFrom, restTo] of [
    [from, daysFrom],
    [daysTo, to],
  ] as const) {
    if (restFrom >= restTo) continue;
    const rest = hoursBetween(restFrom, restTo, { inner, closed, hasQuarters });
    segments.push(...rest.segments);
    cuts.push(...rest.cuts);
  }
  return { segments: segments.filter((one) => one.from < one.to), cuts };
}

/** Reads closed hours from usage_hour, and the rest from rows. */
function hoursBetween(
  from: number,
  to: number,
  {
    inner,
    closed,
    hasQuarters,
  }: { readonly inner: readonly number[]; readonly closed: number; readonly hasQuarters: boolean },
): { readonly segments: readonly Segment[]; readonly cuts: readonly CutHour[] } {
  const cutting = new Map<number, number[]>();
  for (const bound of [from, ...inner.filter((one) => one > from && one < to), to])
    if (!isHour(bound)) {
      const hour = startOfHour(bound);
      cutting.set(hour, [...(cutting.get(hour) ?? []), bound]);
    }
  // An hour with several bounds, as in reports by the minute, or with a bound that is not at a quarter, needs its rows.
  const cuts = [...cutting].flatMap(([hour, [bound, ...others]]) =>
    hasQuarters && others.length === 0 && bound! % quarterMs === 0 && hour < closed
      ? [{ hour, firstMs: bound! - hour, isAfter: bound! < to, isBefore: bound! > from }]
      : [],
  );
  const isCut = (bound: number): boolean => cuts.some(({ hour }) => hour === startOfHour(bound));
  const hoursFrom = Math.min(isHour(from) || isCut(from) ? startOfHour(from) : startOfHour(from) + hourMs, to);
  const hoursTo = Math.max(hoursFrom, Math.min(startOfHour(to), closed));
  const cutHours = new Set(cuts.map(({ hour }) => hour));
  const byRows = [...cutting.keys()].filter((hour) => !cutHours.has(hour) && hour >= hoursFrom && hour < hoursTo);
  return {
    segments: [
      { place: 'usage', from, to: hoursFrom, without: [] },
      ...(byRows.length * hourMs < hoursTo - hoursFrom
        ? [{ place: 'hour', from: hoursFrom, to: hoursTo, without: byRows } as const]
        : []),
      ...mergedHours(byRows).map((span): Segment => ({ place: 'usage', ...span, without: [] })),
      { place: 'usage', from: hoursTo, to: isCut(to) ? hoursTo : to, without: [] },
    ],
    cuts,
  };
}

/** Merges consecutive hours into spans. */
export function mergedHours(hours: readonly number[]): readonly { readonly from: number; readonly to: number }[] {
  const spans: { from: number; to: number }[] = [];
  for (const hour of hours) {
    const last = spans.at(-1);
    if (last?.to === hour) last.to += hourMs;
    else spans.push({ from: hour, to: hour + hourMs });
  }
  return spans;
}

/** Buckets of equal length, except for a shorter first and last one; `at - (at - base) % step` distinguishes them. */
export interface Run {
  readonly from: number;
  readonly to: number;
  readonly base: number;
  /** undefined: a single bucket. */
  readonly step: number | undefined;
}

/** Groups the buckets between these ends in as few runs as possible: a day without 24 hours ends one. */
export function runsOf(ends: readonly number[]): readonly Run[] {
  const runs: Run[] = [];
  const length = (index: number): number => ends[index + 1]! - ends[index]!;
  const last = ends.length - 2;
  for (let first = 0; first <= last;) {
    const [from, base] = [ends[first]!, ends[first + 1]!];
    let end = first;
    let step: number | undefined;
    if (first + 1 === last) {
      step = Math.max(length(first), length(last));
      end = last;
    } else if (first < last && length(first) <= length(first + 1)) {
      step = length(first + 1);
      end = first + 1;
      while (end < last && length(end + 1) === step) end += 1;
      if (end < last && length(end + 1) < step) end += 1;
    }
    runs.push({ from, to: ends[end + 1]!, base: step === undefined ? from : base - step, step });
    first = end + 1;
  }
  return runs;
}
