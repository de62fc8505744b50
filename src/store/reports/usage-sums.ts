/**
 * Sums the usage of one account between any times: summed-up days come from usage_day, closed hours and their quarters from usage_hour, and
 * the ends, the open hours, and hours cut by other bounds from the rows of usage. The sums are therefore exact for every span and time
 * zone, and most of a long span is read from few rows.
 */
import { sql, type Kysely, type RawBuilder, type SelectQueryBuilder, type SqlBool } from 'kysely';
import type { Database } from '../database.ts';
import { refuseRemoved } from '../retention/retention.ts';
import { StoreError } from '../store-error.ts';
import { hourMs, quarterMs } from '../../platform/calendar/time-zone.ts';
import {
  addSums,
  listOf,
  quarters,
  sumColumns,
  sumsOf,
  tagPattern,
  tierOfRow,
  type Sums,
} from './usage-expressions.ts';
import { inMonthsOf } from './usage-months.ts';
import { rollUpRange } from './usage-range.ts';
import { runsOf, segmentsOf, type CutHour, type Segment, type SumPlaces } from './usage-segments.ts';

type Db = Kysely<Database>;

/** Selects the usage. */
export interface SumFilter {
  readonly accountId: string;
  readonly modelId?: string;
  readonly keyId?: string;
  /** By keys of this user. */
  readonly userId?: string;
  /** Only by keys of this user, null: by keys without a user; the caller may see no others. */
  readonly ownerId?: string | null;
  readonly tag?: string;
  /** The service tier that served the requests. */
  readonly tier?: string;
  readonly ending?: string;
}

export type SumDimension = 'model' | 'key' | 'tag' | 'tier' | 'ending';

/** The sums of a bucket; dimensions that were not requested are null. */
export interface BucketSum extends Sums {
  /** Index of the bucket, which begins at `bounds[bucket]`. */
  readonly bucket: number;
  readonly model: string | null;
  readonly key: string | null;
  readonly tag: string | null;
  /** Also null where it is not known: from before there were tiers, or of requests whose rows were removed before they were summed by it. */
  readonly tier: string | null;
  readonly ending: string | null;
}

export interface BucketRequest {
  /** Ascending; `bounds[i]` to `bounds[i + 1]` is a bucket. At least two. */
  readonly bounds: readonly number[];
  readonly by: readonly SumDimension[];
  readonly places: SumPlaces;
  /** Whether to include rows whose key lies in an unexpected month: slow. */
  readonly everywhere?: boolean;
}

/** Common parameters for reading each part of a report. */
interface Question {
  readonly filter: SumFilter;
  readonly bounds: readonly number[];
  readonly by: readonly SumDimension[];
  readonly hasTags: boolean;
  readonly hasTiers: boolean;
  readonly everywhere: boolean;
  readonly keptSince: number;
}

/** More groups than anyone reads; the maximum for each query and for the answer. */
const groupsMax = 100_000;

/** Sums usage in buckets. Rejects with `invalid` if there are too many groups, and with `gone` if that would require removed rows. */
export async function sumBuckets(
  db: Db,
  filter: SumFilter,
  { bounds, by, places, everywhere = false }: BucketRequest,
): Promise<readonly BucketSum[]> {
  const hasTags = filter.tag !== undefined || by.includes('tag');
  const hasTiers =
    filter.tier !== undefined || filter.ending !== undefined || by.includes('tier') || by.includes('ending');
  const question: Question = { filter, bounds, by, hasTags, hasTiers, everywhere, keptSince: places.keptSince };
  const sums = new Map<string, BucketSum>();
  const add = (bucket: number, { at: _, ...row }: SegmentRow): void => {
    const name = JSON.stringify([bucket, row.model, row.key, row.tag, row.tier, row.ending]);
    const sum = sums.get(name);
    sums.set(name, sum === undefined ? { ...row, bucket } : addSums(sum, row));
    if (sums.size > groupsMax) throw tooManyGroups();
  };
  const { segments, cuts } = segmentsOf(bounds, {
    ...places,
    // No roll-up has both labels and tiers, and that of tiers has neither days nor quarters.
    ...(hasTiers ? { closed: hasTags ? 0 : (places.tiersClosed ?? 0), days: undefined, hasQuarters: false } : {}),
  });
  for (const segment of segments) {
    // A whole hour counts for the bound that cuts it, until the part before the bound is moved.
    const ends = segment.place === 'hour' ? bounds.map((bound) => Math.floor(bound / hourMs) * hourMs) : bounds;
    for (const row of await readSegment(db, question, segment, ends)) add(bucketAt(ends, Number(row.at)), row);
  }
  for (const firstMs of new Set(cuts.map((cut) => cut.firstMs))) {
    const hours = new Map(cuts.filter((cut) => cut.firstMs === firstMs).map((cut) => [cut.hour, cut]));
    for (const row of await readFirstQuarters(db, question, [...hours.values()], firstMs)) {
      const { hour, isAfter, isBefore } = hours.get(Number(row.at))!;
      if (isBefore) add(bucketAt(bounds, hour), row);
      if (isAfter) add(bucketAt(bounds, hour + firstMs), negative(row));
    }
  }
  return [...sums.values()]
    .filter((sum) => sum.requests > 0n)
    .sort(
      (a, b) =>
        a.bucket - b.bucket || dimensions.map((one) => compare(a[one], b[one])).find((order) => order !== 0) || 0,
    );
}

const dimensions = ['model', 'key', 'tag', 'tier', 'ending'] as const;

export const tooManyGroups = (): StoreError =>
  new StoreError('invalid', `the report has more than ${groupsMax} groups: ask for fewer at a time`);

const compare = (a: string | null, b: string | null): number => (a === b ? 0 : (a ?? '') < (b ?? '') ? -1 : 1);

const negative = (row: SegmentRow): SegmentRow => ({
  ...row,
  ...Object.fromEntries(sumColumns.map((column) => [column, -row[column]])),
});

/** The bucket of the last bound that is not after the time. */
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

type SegmentRow = Sums & Pick<BucketSum, (typeof dimensions)[number]> & { readonly at: bigint };

/** `ends`: the ends of the buckets, rounded to the segment's unit. */
async function readSegment(
  db: Db,
  question: Question,
  segment: Segment,
  ends: readonly number[],
): Promise<readonly SegmentRow[]> {
  const { place, from, to, without } = segment;
  const inner = [...new Set(ends)].filter((end) => end > from && end < to);
  const rows: SegmentRow[] = [];
  for (const run of place === 'day' ? [{ from, to, base: from, step: undefined }] : runsOf([from, ...inner, to])) {
    const column = sql<bigint>`${sql.ref(place === 'usage' ? 'ended_at' : place)}`;
    const { base, step } = run;
    const isWhole = step === undefined || (place === 'hour' && step === hourMs);
    const at = isWhole ? column : sql<bigint>`${column} - (${column} - ${sql.lit(base)}) % ${sql.lit(step)}`;
    const isOne = place === 'day' ? inner.length === 0 : step === undefined;
    const options = { from: run.from, to: run.to, at: isOne ? undefined : at };
    const found =
      place === 'usage'
        ? await readUsage(db, question, options)
        : await readRollUp(db, question, { ...options, place, without });
    // The first step of a run may begin before it, in the bucket of another run.
    for (const row of found) rows.push(Number(row.at) < run.from ? { ...row, at: BigInt(run.from) } : row);
  }
  return rows;
}

async function readRollUp(
  db: Db,
  question: Question,
  {
    place,
    from,
    to,
    without,
    at,
  }: {
    readonly place: 'day' | 'hour';
    readonly from: number;
    readonly to: number;
    readonly without: readonly number[];
    readonly at: RawBuilder<bigint> | undefined;
  },
): Promise<readonly SegmentRow[]> {
  let query = rollUpOf(db, question, place, { from, to });
  const missing = without.filter((hour) => hour >= from && hour < to);
  if (missing.length > 0) query = query.where(place, 'not in', missing.map(BigInt) as never);
  const tag = question.by.includes('tag') ? sql<string>`tag` : undefined;
  return await grouped(query.select(sumsOf(sql`sum(requests)`) as never) as never, question, { from, at, tag });
}

/** One query for tables with the same columns. */
function rollUpOf(
  db: Db,
  { filter, hasTags, hasTiers }: Question,
  place: 'day' | 'hour',
  span: { readonly from: number; readonly to: number; readonly among?: readonly number[] },
) {
  const { accountId, tag } = filter;
  return (db as Kysely<Record<string, Record<string, never>>>)
    .selectFrom(hasTiers ? 'usage_tier_hour' : hasTags ? (`usage_tag_${place}` as const) : (`usage_${place}` as const))
    .where(rollUpRange({ accountId, tag, time: place, ...span }))
    .where(conditions(filter));
}

const hoursAtOnce = 500;

/** The part of some hours that ended in their first `firstMs`, which are whole quarters; `at` is the hour. */
async function readFirstQuarters(
  db: Db,
  question: Question,
  cuts: readonly CutHour[],
  firstMs: number,
): Promise<readonly SegmentRow[]> {
  const chosen = quarters.filter((quarter) => quarter * quarterMs <= firstMs);
  const sums = sumColumns.map((column) => {
    const terms = chosen.map((quarter) => sql`coalesce(sum(${sql.ref(`${column}_q${quarter}`)}), 0)`);
    return sql<bigint>`${sql.join(terms, sql` + `)}`.as(column);
  });
  const rows: SegmentRow[] = [];
  for (let index = 0; index < cuts.length; index += hoursAtOnce) {
    const hours = cuts.slice(index, index + hoursAtOnce).map(({ hour }) => hour);
    const found = await grouped(
      rollUpOf(db, question, 'hour', { from: hours[0]!, to: hours.at(-1)! + hourMs, among: hours }).select(
        sums as never,
      ) as never,
      question,
      {
        from: hours[0]!,
        at: sql<bigint>`hour`,
        tag: question.by.includes('tag') ? sql<string>`tag` : undefined,
        isAlsoEmpty: true,
      },
    );
    rows.push(...found.filter(({ requests }) => requests > 0n));
  }
  return rows;
}

async function readUsage(
  db: Db,
  question: Question,
  {
    from,
    to,
    at,
    firstMs,
  }: {
    readonly from: number;
    readonly to: number;
    readonly at: RawBuilder<bigint> | undefined;
    /** Only the first part of each hour, in milliseconds. */
    readonly firstMs?: number;
  },
): Promise<readonly SegmentRow[]> {
  const { filter, by, everywhere, keptSince } = question;
  await refuseRemoved(db, { accountId: filter.accountId, from, to }, keptSince);
  let query = db
    .selectFrom('usage')
    .where('account_id', '=', filter.accountId)
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where(inMonthsOf(db, everywhere ? {} : { from, to }))
    .where(conditions(filter));
  if (firstMs !== undefined) query = query.where(sql<SqlBool>`ended_at % ${sql.lit(hourMs)} < ${sql.lit(firstMs)}`);
  if (filter.tag !== undefined) query = query.where(sql<SqlBool>`tags like ${tagPattern(filter.tag)} escape '!'`);
  const byTag = by.includes('tag');
  if (byTag) query = query.where('tags', 'is not', null);
  const tag = byTag ? sql<string>`tags` : undefined;
  const rows = await grouped(query.select(sumsOf(sql`count(*)`)) as never, question, { from, at, tag });
  if (!byTag) return rows;
  return rows.flatMap((row) =>
    listOf(row.tag)!
      .filter((tag) => filter.tag === undefined || filter.tag === tag)
      .map((tag) => ({ ...row, tag })),
  );
}

/** Conditions on the columns that usage and its roll-ups share. */
export function conditions({
  accountId,
  modelId,
  keyId,
  userId,
  ownerId,
  tier,
  ending,
}: SumFilter): RawBuilder<SqlBool> {
  const all = [sql<SqlBool>`1 = 1`];
  if (modelId !== undefined) all.push(sql`model_id = ${modelId}`);
  if (keyId !== undefined) all.push(sql`key_id = ${keyId}`);
  if (tier !== undefined) all.push(sql`tier = ${tier}`);
  if (ending !== undefined) all.push(sql`ending = ${ending}`);
  for (const user of [userId, ownerId]) if (user !== undefined) all.push(isKeyOf(accountId, user));
  return sql`(${sql.join(all, sql` and `)})`;
}

/** `userId` null: a key without a user. */
export const isKeyOf = (accountId: string, userId: string | null): RawBuilder<SqlBool> =>
  userId === null
    ? sql`key_id in (select id from api_key where account_id = ${accountId} and user_id is null)`
    : sql`key_id in (select id from api_key where account_id = ${accountId} and user_id = ${userId})`;

/** `at`: distinguishes buckets; undefined: all rows belong to the one at `from`. `isAlsoEmpty`: groups without requests are kept. */
async function grouped<Also extends object = object>(
  query: SelectQueryBuilder<Database, 'usage', object>,
  { by }: Question,
  {
    from,
    at,
    tag,
    isAlsoEmpty = false,
  }: {
    readonly from: number;
    readonly at: RawBuilder<bigint> | undefined;
    readonly tag: RawBuilder<string> | undefined;
    readonly isAlsoEmpty?: boolean;
  },
): Promise<readonly (SegmentRow & Also)[]> {
  const model = by.includes('model') ? sql<string>`model_id` : undefined;
  const key = by.includes('key') ? sql<string>`key_id` : undefined;
  let select = query.limit(groupsMax + 1);
  const tier = by.includes('tier') ? tierOfRow : undefined;
  const ending = by.includes('ending') ? sql<string>`ending` : undefined;
  const named = { at, model, key, tag, tier, ending };
  for (const [name, expression] of Object.entries(named))
    if (expression !== undefined) select = select.select((expression as RawBuilder<string>).as(name)) as never;
  const groups = Object.values(named).filter((one) => one !== undefined);
  if (groups.length > 0) select = select.groupBy(groups);
  const rows = (await select.execute()) as unknown as readonly (Partial<SegmentRow> & {
    readonly requests: bigint | null;
  })[];
  if (rows.length > groupsMax) throw tooManyGroups();
  return rows
    .filter((row) => isAlsoEmpty || (row.requests !== null && row.requests > 0n)) // an empty row if there is no grouping
    .map(
      (row) =>
        ({
          at: BigInt(from),
          model: null,
          key: null,
          tag: null,
          ...row,
          tier: row.tier === '' ? null : (row.tier ?? null),
          ending: row.ending === '' ? null : (row.ending ?? null),
        }) as SegmentRow & Also,
    );
}
