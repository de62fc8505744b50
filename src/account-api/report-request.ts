import Type from 'typebox';
import type { Static } from 'typebox';

import { tierNames } from '../accounts/key-limits.ts';
import { ApiError } from '../platform/errors.ts';
import type { Ending } from '../store/ledger.ts';
import type { ReportDimension, ReportRequest } from '../store/reports/reports.ts';
import { bucketBounds, bucketWidths, hourMs, startOfDay } from '../platform/calendar/time-zone.ts';
import { notThere } from './input.ts';
import type { Call } from './route.ts';
import { visibleUsage } from './visible-usage.ts';

const dayMs = 24 * hourMs;
/** Buckets of a page: the default and the maximum. */
export const pages = { '1m': [60, 1440], '1h': [24, 168], '1d': [31, 366] } as const;

const dimensions = {
  model: 'model',
  api_key_id: 'key',
  user_id: 'user',
  tag: 'tag',
  service_tier: 'tier',
  ending: 'ending',
} as const satisfies Readonly<Record<string, ReportDimension>>;

export const endings = [
  'finished',
  'credit',
  'client_left',
  'reader_stalled',
  'revoked',
  'failed',
  'deadline',
  'drained',
  'cancelled',
  'lost',
  'crashed',
] as const satisfies readonly Ending[];

const servedTiers = [...tierNames, 'batch'] as const;

export const filterQuery = {
  model: Type.Optional(Type.String({ minLength: 1, maxLength: 128, description: 'Only requests to this model.' })),
  api_key_id: Type.Optional(Type.String({ minLength: 1, maxLength: 100, description: 'Only requests of this key.' })),
  user_id: Type.Optional(
    Type.String({ minLength: 1, maxLength: 100, description: 'Only requests of this person’s keys.' }),
  ),
  tag: Type.Optional(Type.String({ minLength: 1, maxLength: 32, description: 'With this label only.' })),
  service_tier: Type.Optional(Type.Enum([...servedTiers], { description: 'Only requests that this tier served.' })),
  ending: Type.Optional(Type.Enum([...endings], { description: 'Only requests that ended so.' })),
};

const seconds = (description: string) =>
  Type.Optional(Type.Integer({ minimum: 0, maximum: 100_000_000_000, description }));

export const spanQuery = {
  start_time: seconds('Unix seconds; requests that ended at this time or later.'),
  end_time: seconds('Unix seconds; requests that ended before this time. Now, when left out.'),
};

export const reportQuery = Type.Object({
  ...spanQuery,
  bucket_width: Type.Optional(
    Type.Enum([...bucketWidths, 'all'], {
      description:
        'Minutes, hours or days of the time zone of the account; minutes for a day at most. `all`: the whole span in one.',
      default: '1d',
    }),
  ),
  group_by: Type.Optional(
    Type.Array(Type.Enum(Object.keys(dimensions) as (keyof typeof dimensions)[]), {
      maxItems: 6,
      description:
        'One result per group of these together. A request with several tags counts under each of them, a request without tags under none. Tags and tiers or endings at once: for 32 days at most.',
    }),
  ),
  ...filterQuery,
  limit: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 1440,
      description: 'Buckets of a page: 1440 minutes, 168 hours or 366 days at most.',
    }),
  ),
  page: Type.Optional(Type.String({ pattern: '^[0-9]{1,11}$', description: '`next_page` of the page before.' })),
});
export type ReportQuery = Static<typeof reportQuery>;

const { tag: _tag, ...untaggedFilter } = filterQuery;
const { tag: _label, ...untagged } = dimensions;

export const latencyQuery = Type.Object({
  ...spanQuery,
  ...untaggedFilter,
  group_by: Type.Optional(
    Type.Array(Type.Enum(Object.keys(untagged) as (keyof typeof untagged)[]), {
      maxItems: 5,
      description: 'One result per group of these together.',
    }),
  ),
});

export const latencyDimensions = (names: readonly (keyof typeof untagged)[] = []) =>
  [...new Set(names)].map((name) => untagged[name]);

const latencyDaysMax = 366;

/** The last seven days, when left out. Throws `unsupported_value` if the span is empty or longer than a year. */
export function askedSpan({
  query,
  services,
}: {
  readonly query: Pick<Static<typeof latencyQuery>, 'start_time' | 'end_time'>;
  readonly services: Call['services'];
}): { readonly from: number; readonly to: number } {
  const to = query.end_time === undefined ? services.operations.now() + 1 : query.end_time * 1000;
  const from = query.start_time === undefined ? to - 7 * dayMs : query.start_time * 1000;
  const fault =
    from >= to
      ? 'start_time must be before end_time.'
      : to - from > latencyDaysMax * dayMs
        ? `Latencies are reported for ${latencyDaysMax} days at most.`
        : undefined;
  if (fault !== undefined) throw new ApiError('unsupported_value', fault, { param: 'start_time' });
  return { from, to };
}

/** A report within the sender's rights, from the first bucket of the page. */
export interface AskedReport extends ReportRequest {
  /** The start of the next page; undefined on the last one. */
  readonly nextFrom: number | undefined;
}

type Asked = Pick<Call, 'account' | 'principal' | 'services'> & { readonly query: ReportQuery };

/** Throws `unsupported_value` if the span is empty or too long for its buckets. */
export async function askedReport(call: Asked): Promise<AskedReport> {
  const by = [...new Set(call.query.group_by ?? [])].map((name) => dimensions[name]);
  const filter = filterOf(call, by);
  const buckets = await askedBuckets(call);
  const hasTags = filter.tag !== undefined || by.includes('tag');
  const hasTiers =
    filter.tier !== undefined || filter.ending !== undefined || by.includes('tier') || by.includes('ending');
  // No sums are kept of both, so rows are read.
  if (hasTags && hasTiers && buckets.bounds.at(-1)! - buckets.bounds[0]! > rowDaysMax * dayMs)
    throw new ApiError(
      'unsupported_value',
      `Tags together with tiers or endings are reported for ${rowDaysMax} days at most: ask for a shorter time.`,
      { param: 'start_time' },
    );
  return { ...filter, ...buckets, by };
}

const rowDaysMax = 32;

/** The buckets of a page; of `all` there is one, however long the span. Throws like `askedReport`. */
export async function askedBuckets(call: {
  readonly account: Call['account'];
  readonly services: Call['services'];
  readonly query: Omit<ReportQuery, 'group_by'>;
}): Promise<Pick<AskedReport, 'timeZone' | 'bounds' | 'nextFrom'>> {
  const { query } = call;
  const width = query.bucket_width ?? '1d';
  const timeZone = await timeZoneOf(call);
  const now = call.services.operations.now();
  const to = query.end_time === undefined ? Math.ceil((now + 1) / 1000) * 1000 : query.end_time * 1000;
  const start =
    query.start_time === undefined ? usualStart(timeZone, width === 'all' ? '1d' : width, to) : query.start_time * 1000;
  if (start >= to)
    throw new ApiError('unsupported_value', 'start_time must be before end_time.', { param: 'start_time' });
  if (width === '1m' && to - start > dayMs)
    throw new ApiError(
      'unsupported_value',
      'Buckets of a minute cover a day at most: ask for a shorter time, or for hours.',
      {
        param: 'bucket_width',
      },
    );
  const from = query.page === undefined ? start : Number(query.page) * 1000;
  if (from < start || from >= to)
    throw new ApiError('unsupported_value', 'This report has no such page.', { param: 'page' });
  if (width === 'all') return { timeZone, bounds: [from, to], nextFrom: undefined };
  const [usual, most] = pages[width];
  const bounds = bucketBounds(timeZone, width, { from, to }, Math.min(query.limit ?? usual, most));
  const end = bounds.at(-1)!;
  return { timeZone, bounds, nextFrom: end < to ? end : undefined };
}

/** The usage that a sender may request, limited to visible keys and users. */
export function filterOf(
  call: Pick<Call, 'account' | 'principal'> & {
    readonly query: Pick<ReportQuery, keyof typeof filterQuery>;
  },
  by: readonly string[],
) {
  const { model, api_key_id: keyId, user_id: userId, tag, service_tier: tier, ending } = call.query;
  const isPersonal = keyId !== undefined || userId !== undefined || by.includes('key') || by.includes('user');
  return {
    accountId: call.account.id,
    ...(model === undefined ? {} : { modelId: model }),
    ...(keyId === undefined ? {} : { keyId }),
    ...(userId === undefined ? {} : { userId }),
    ...(tag === undefined ? {} : { tag }),
    ...(tier === undefined ? {} : { tier }),
    ...(ending === undefined ? {} : { ending }),
    ...(isPersonal ? visibleUsage(call) : {}),
  };
}

/** The time zone of an account's reports. */
export async function timeZoneOf({ account, services }: Pick<Call, 'account' | 'services'>): Promise<string> {
  const found = await services.operations.repositories.getAccount({ accountId: account.id });
  if (found === undefined) throw notThere();
  return found.timeZone;
}

function usualStart(timeZone: string, width: keyof typeof pages, to: number): number {
  switch (width) {
    case '1m':
      return to - hourMs;
    case '1h':
      return to - dayMs;
    case '1d':
      return startOfDay(timeZone, to - 7 * dayMs);
  }
}
