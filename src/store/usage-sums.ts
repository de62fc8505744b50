/**
 * Adds up the usage of one account between any times: days that are added up come from usage_day, closed hours from
 * usage_hour, and the ends, the open hours, and hours that a bound goes through, from the rows of usage. So the sums are exact
 * for every span and every time zone, and most of a long span is read from few rows.
 */
import { sql, type Kysely, type RawBuilder, type SelectQueryBuilder, type SqlBool } from 'kysely';
import type { Database } from './database.ts';
import { StoreError } from './store-error.ts';
import { hourMs, minuteMs, nextDay, quarterMs, startOfDay } from './time-zone.ts';
import { listOf, sumsOf, tagPattern } from './usage-expressions.ts';
import { inMonthsOf } from './usage-months.ts';

type Db = Kysely<Database>;

/** Whose usage, and which of it. */
export interface SumFilter {
  readonly accountId: string;
  readonly modelId?: string;
  readonly keyId?: string;
  /** By keys of this person. */
  readonly userId?: string;
  /** By keys of this person only, null: of nobody in particular; whoever asks may see no others. */
  readonly ownerId?: string | null;
  readonly tag?: string;
}

export type SumDimension = 'model' | 'key' | 'tag';

export const sumColumns = [
  'requests',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'cost',
  'uncharged',
] as const;
export type Sums = Readonly<Record<(typeof sumColumns)[number], bigint>>;

/** What a bucket has; what was not asked for is null. */
export interface BucketSum extends Sums {
  /** The one that begins at `bounds[bucket]`. */
  readonly bucket: number;
  readonly model: string | null;
  readonly key: string | null;
  readonly tag: string | null;
}

/** What can be read where, of one moment of the database. */
export interface SumPlaces {
  /** Hours before it are in usage_hour, and will not change. */
  readonly closed: number;
  /** Hours before it are not in usage_tag_hour. */
  readonly tagsSince: number;
  /** The days that are in usage_day, all before `until`. */
  readonly days: { readonly timeZone: string; readonly until: number } | undefined;
}

export interface BucketRequest {
  /** Ascending; `bounds[i]` to `bounds[i + 1]` is a bucket. At least two. */
  readonly bounds: readonly number[];
  readonly by: readonly SumDimension[];
  readonly places: SumPlaces;
}

/** More groups than anybody reads; each query and the answer have at most so many. */
const groupsMax = 100_000;

/** Rejects as `invalid` when there are too many groups. */
export async function sumBuckets(
  db: Db,
  filter: SumFilter,
  { bounds, by, places }: BucketRequest,
): Promise<readonly BucketSum[]> {
  const sums = new Map<string, BucketSum>();
  for (const segment of segmentsOf(bounds, filter.tag !== undefined || by.includes('tag'), places)) {
    for (const row of await readSegment(db, filter, segment, { bounds, by })) {
      // Rows are grouped by steps of the clock, which may begin before the span does.
      const bucket = bucketAt(bounds, Math.max(Number(row.at), segment.from));
      const name = JSON.stringify([bucket, row.model, row.key, row.tag]);
      const sum = sums.get(name);
      if (sum === undefined) {
        const { at: _, ...rest } = row;
        sums.set(name, { ...rest, bucket });
      } else sums.set(name, addSums(sum, row));
    }
    if (sums.size > groupsMax) throw tooManyGroups();
  }
  return [...sums.values()].sort(
    (a, b) => a.bucket - b.bucket || compare(a.model, b.model) || compare(a.key, b.key) || compare(a.tag, b.tag),
  );
}

const tooManyGroups = (): StoreError =>
  new StoreError('invalid', `there are more than ${groupsMax} groups: ask for fewer at a time`);

const compare = (a: string | null, b: string | null): number => (a === b ? 0 : (a ?? '') < (b ?? '') ? -1 : 1);

export function addSums<Sum extends Sums>(to: Sum, other: Sums): Sum {
  return { ...to, ...Object.fromEntries(sumColumns.map((column) => [column, to[column] + other[column]])) };
}

/** The last bound that is not behind the time. */
function bucketAt(bounds: readonly number[], at: number): number {
  let low = 0;
  let high = bounds.length - 2;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (bounds[middle]! <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

interface Segment {
  readonly place: 'day' | 'hour' | 'usage';
  readonly from: number;
  readonly to: number;
  /** Starts of hours that are read elsewhere. */
  readonly without: readonly number[];
}

function segmentsOf(
  bounds: readonly number[],
  hasTags: boolean,
  { closed, tagsSince, days }: SumPlaces,
): readonly Segment[] {
  const [from, to] = [bounds[0]!, bounds.at(-1)!];
  if (from >= to) return [];
  const inner = bounds.slice(1, -1);
  const since = hasTags ? tagsSince : 0;
  const segments: Segment[] = [];
  let [daysFrom, daysTo] = [from, from];
  if (days !== undefined && since <= from) {
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
    const hoursFrom = Math.min(Math.ceil(Math.max(restFrom, since) / hourMs) * hourMs, restTo);
    const hoursTo = Math.max(hoursFrom, Math.min(Math.floor(restTo / hourMs) * hourMs, closed));
    const cut = [
      ...new Set(inner.filter((bound) => bound % hourMs !== 0).map((bound) => Math.floor(bound / hourMs) * hourMs)),
    ].filter((hour) => hour >= hoursFrom && hour < hoursTo);
    segments.push(
      { place: 'usage', from: restFrom, to: hoursFrom, without: [] },
      { place: 'hour', from: hoursFrom, to: hoursTo, without: cut },
      ...merged(cut).map((span): Segment => ({ place: 'usage', ...span, without: [] })),
      { place: 'usage', from: hoursTo, to: restTo, without: [] },
    );
  }
  return segments.filter((one) => one.from < one.to && one.without.length * hourMs < one.to - one.from);
}

/** Spans of hours that follow each other. */
function merged(hours: readonly number[]): readonly { readonly from: number; readonly to: number }[] {
  const spans: { from: number; to: number }[] = [];
  for (const hour of hours) {
    const last = spans.at(-1);
    if (last?.to === hour) last.to += hourMs;
    else spans.push({ from: hour, to: hour + hourMs });
  }
  return spans;
}

type SegmentRow = Sums & Pick<BucketSum, 'model' | 'key' | 'tag'> & { readonly at: bigint };

async function readSegment(
  db: Db,
  filter: SumFilter,
  segment: Segment,
  { bounds, by }: Pick<BucketRequest, 'bounds' | 'by'>,
): Promise<readonly SegmentRow[]> {
  const hasTags = filter.tag !== undefined || by.includes('tag');
  if (segment.place === 'usage') return await readUsage(db, filter, segment, { bounds, by });
  const time = segment.place;
  const table = hasTags ? (`usage_tag_${time}` as const) : (`usage_${time}` as const);
  // One query for four tables of the same columns.
  let query = (db as Kysely<Record<string, Record<string, never>>>)
    .selectFrom(table)
    .where('account_id', '=', filter.accountId as never)
    .where(time, '>=', BigInt(segment.from) as never)
    .where(time, '<', BigInt(segment.to) as never)
    .where(conditions(filter));
  if (filter.tag !== undefined) query = query.where('tag', '=', filter.tag as never);
  if (segment.without.length > 0) query = query.where(time, 'not in', segment.without.map(BigInt) as never);
  const at = bounds.length > 2 ? sql<bigint>`${sql.ref(time)}` : undefined;
  return await grouped(
    query as never,
    at,
    by,
    segment.from,
    by.includes('tag') ? sql<string>`tag` : undefined,
    sql`sum(requests)`,
  );
}

async function readUsage(
  db: Db,
  filter: SumFilter,
  { from, to }: Segment,
  { bounds, by }: Pick<BucketRequest, 'bounds' | 'by'>,
): Promise<readonly SegmentRow[]> {
  let query = db
    .selectFrom('usage')
    .where('account_id', '=', filter.accountId)
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where(inMonthsOf(db, { from, to }))
    .where(conditions(filter));
  if (filter.tag !== undefined) query = query.where(sql<SqlBool>`tags like ${tagPattern(filter.tag)} escape '!'`);
  const byTag = by.includes('tag');
  if (byTag) query = query.where('tags', 'is not', null);
  const inner = bounds.slice(1, -1).filter((bound) => bound > from && bound < to);
  const step = [hourMs, quarterMs].find((ms) => inner.every((bound) => bound % ms === 0)) ?? minuteMs;
  const at = bounds.length > 2 ? sql<bigint>`ended_at - ended_at % ${sql.lit(step)}` : undefined;
  const rows = await grouped(query as never, at, by, from, byTag ? sql<string>`tags` : undefined, sql`count(*)`);
  if (!byTag) return rows;
  return rows.flatMap((row) =>
    listOf(row.tag)!
      .filter((tag) => filter.tag === undefined || filter.tag === tag)
      .map((tag) => ({ ...row, tag })),
  );
}

/** Of the columns that usage and its roll-ups share. */
function conditions({ accountId, modelId, keyId, userId, ownerId }: SumFilter): RawBuilder<SqlBool> {
  const all = [sql<SqlBool>`1 = 1`];
  if (modelId !== undefined) all.push(sql`model_id = ${modelId}`);
  if (keyId !== undefined) all.push(sql`key_id = ${keyId}`);
  for (const user of [userId, ownerId]) if (user !== undefined) all.push(isKeyOf(accountId, user));
  return sql`(${sql.join(all, sql` and `)})`;
}

/** `userId` null: of nobody in particular. */
export const isKeyOf = (accountId: string, userId: string | null): RawBuilder<SqlBool> =>
  userId === null
    ? sql`key_id in (select id from api_key where account_id = ${accountId} and user_id is null)`
    : sql`key_id in (select id from api_key where account_id = ${accountId} and user_id = ${userId})`;

async function grouped(
  query: SelectQueryBuilder<Database, 'usage', object>,
  at: RawBuilder<bigint> | undefined,
  by: readonly SumDimension[],
  from: number,
  tag: RawBuilder<string> | undefined,
  requests: RawBuilder<bigint>,
): Promise<readonly SegmentRow[]> {
  const model = by.includes('model') ? sql<string>`model_id` : undefined;
  const key = by.includes('key') ? sql<string>`key_id` : undefined;
  let select = query.select(sumsOf(requests)).limit(groupsMax + 1);
  const named = { at, model, key, tag };
  for (const [name, expression] of Object.entries(named))
    if (expression !== undefined) select = select.select((expression as RawBuilder<string>).as(name)) as never;
  const groups = Object.values(named).filter((one) => one !== undefined);
  if (groups.length > 0) select = select.groupBy(groups);
  const rows = (await select.execute()) as unknown as readonly (Partial<SegmentRow> & {
    readonly requests: bigint | null;
  })[];
  if (rows.length > groupsMax) throw tooManyGroups();
  return rows
    .filter((row) => row.requests !== null && row.requests > 0n) // one row of nothing where nothing is grouped
    .map((row) => ({ at: BigInt(from), model: null, key: null, tag: null, ...row }) as SegmentRow);
}
