/** Which requests are meant: in the URL, in the fields above a list, and as the API is asked for them. */
import { oneOf, text, whole } from '../../app/filters.ts';
import type { Read, SearchOf } from '../../app/filters.ts';
import { endingNames } from '../../components/endings.ts';
import { formatDay, formatHour, startOfDay, startOfMonth } from '../../format/date.ts';
import { figures, groupingNames } from './groupings.ts';

export const periods = ['today', '7d', '30d', '90d', 'month'] as const;
export type Period = (typeof periods)[number];
export const usualPeriod: Period = '30d';

/** What the API takes, and a calendar has. */
const secondsMax = 100_000_000_000;
const moment: Read<number> = (written) => {
  const seconds = whole(written);
  return seconds === undefined || seconds < 0 || seconds > secondsMax ? undefined : seconds;
};

/** Those that serve. */
export const tiers = ['priority', 'default', 'flex', 'batch'] as const;
export type Tier = (typeof tiers)[number];

/** `from` and `to`, in unix seconds, count instead of `since` where one of them is there. */
const reportFilters = {
  since: oneOf(periods),
  from: moment,
  to: moment,
  model: text,
  key: text,
  user: text,
  tag: text,
  tier: oneOf(tiers),
};
/** Refused requests are in no sum. */
export const states = [...endingNames, 'refused'] as const;
export type State = (typeof states)[number];
export const requestFilters = { ...reportFilters, ending: oneOf(states), error: text };
export type RequestFilter = SearchOf<typeof requestFilters>;
/** `by`: what the report is divided by. `show`: the figure that is drawn. */
export const usageFilters = {
  ...reportFilters,
  ending: oneOf(states),
  by: oneOf(groupingNames),
  show: oneOf(figures),
};
export type UsageFilter = SearchOf<typeof usageFilters>;

export interface Span {
  readonly start: number | undefined;
  /** undefined: until now. */
  readonly end: number | undefined;
}

const daysEarlier: Readonly<Record<Exclude<Period, 'month'>, number>> = { today: 0, '7d': 6, '30d': 29, '90d': 89 };

/** Periods are whole days of the account's zone, the last of them today; all times in unix seconds. */
export function spanOf({ since = usualPeriod, from, to }: RequestFilter, now: number, zone: string): Span {
  if (from !== undefined || to !== undefined) return { start: from, end: to };
  const start = since === 'month' ? startOfMonth(now, zone) : startOfDay(now, zone, daysEarlier[since]);
  return { start, end: undefined };
}

/** As long as a span, and just before it: the same part of the day, the days or the month before. Undefined: a span has no beginning. */
export function spanBefore(
  { since = usualPeriod, from, to }: RequestFilter,
  { start, end }: Span,
  now: number,
  zone: string,
): Span | undefined {
  if (start === undefined) return undefined;
  const until = end ?? now;
  const isOwn = from !== undefined || to !== undefined;
  if (isOwn) return start * 2 < until ? undefined : { start: start * 2 - until, end: start };
  const back = since === 'month' ? startOfMonth(start - 1, zone) : startOfDay(start, zone, daysEarlier[since] + 1);
  return { start: back, end: Math.min(start, back + until - start) };
}

/** As reports are asked. */
export function reportQuery(filter: RequestFilter, { start, end }: Span) {
  const { model, key, user, tag, tier, ending } = filter;
  return {
    ...(start === undefined ? {} : { start_time: start }),
    ...(end === undefined ? {} : { end_time: end }),
    ...(model === undefined ? {} : { model }),
    ...(key === undefined ? {} : { api_key_id: key }),
    ...(user === undefined ? {} : { user_id: user }),
    ...(tag === undefined ? {} : { tag }),
    ...(tier === undefined ? {} : { service_tier: tier }),
    // Refused requests have a list of their own.
    ...(ending === undefined || ending === 'refused' ? {} : { ending }),
  };
}

/** Some sums reach back a number of days only. */
export const isWithin = (days: number, { start, end }: Span, now = Date.now() / 1000): boolean =>
  start !== undefined && (end ?? now) - start <= days * 86_400;

/** Whether there are sums: of labels together with tiers or endings for a month. */
export const hasSums = ({ error, tag, tier, ending }: RequestFilter, span: Span): boolean =>
  error === undefined &&
  isWithin(tag === undefined || (tier === undefined && ending === undefined) ? Infinity : 31, span);

/** As lists of requests are asked. */
export function requestQuery(filter: RequestFilter, span: Span) {
  const { error } = filter;
  return {
    ...reportQuery(filter, span),
    ...(error === undefined ? {} : { error_code: error }),
  };
}

/** Whether only some of the requests of a span are meant: then an empty list does not mean that there are none. */
export const isNarrow = ({ since: _since, from: _from, to: _to, ...others }: RequestFilter): boolean =>
  Object.values(others).some((value) => value !== undefined);

/** Up to two days are shown by the hour. */
const hoursMaxSeconds = 2 * 86_400;
export const widthOf = ({ start, end }: Span, now = Date.now() / 1000): '1h' | '1d' =>
  start !== undefined && (end ?? now) - start <= hoursMaxSeconds ? '1h' : '1d';

/** As many buckets as the API gives at once. */
export const bucketsMax = { '1h': 168, '1d': 366 } as const;

export const bucketLabel = (at: number, width: '1h' | '1d', zone: string): string =>
  width === '1d' ? formatDay(at, zone) : formatHour(at, zone);
