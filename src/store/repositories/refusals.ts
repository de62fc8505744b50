/** Requests that ended with an error: their numbers, and the last refused ones of each account. */
import { sql, type Kysely } from 'kysely';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import type { Database } from '../database.ts';
import type { SumFilter } from '../reports/usage-sums.ts';
import type { Row, Rows } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';
import { isKeyOf } from '../reports/usage-sums.ts';

/** Requests of one minute that ended with one error. */
export type ErrorCount = Row<'error_count'>;
export type RefusedRequest = Row<'refused_request'>;

/** Refused requests that are kept of an account. */
export const refusedKept = 100;
/** Minutes are kept for this long, then their hour. */
const minutesKeptMs = 48 * hourMs;
const hoursKeptMs = 92 * 24 * hourMs;

/** The keys behind hashes of presented keys, whether or not they work; hashes without a key are omitted. */
export async function keysOfHashes(
  db: Kysely<Rows>,
  { hashes }: { readonly hashes: readonly Uint8Array[] },
): Promise<readonly { readonly hash: Uint8Array; readonly keyId: string; readonly accountId: string }[]> {
  if (hashes.length === 0) return [];
  const found = [];
  for (const column of ['hash', 'previousHash'] as const) {
    const rows = await db
      .selectFrom('api_key')
      .select([column, 'id', 'accountId'])
      .where(column, 'in', hashes)
      .execute();
    found.push(...rows.map(({ [column]: hash, id: keyId, accountId }) => ({ hash: hash!, keyId, accountId })));
  }
  return found;
}

/** Adds to the counts, and keeps the last requests of each account. Of deleted accounts nothing is written. */
export async function addErrors(
  db: Kysely<Rows>,
  request: { readonly counts: readonly ErrorCount[]; readonly refused: readonly RefusedRequest[] },
): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    const named = new Set([...request.counts, ...request.refused].map(({ accountId }) => accountId));
    const there = await transaction
      .selectFrom('account')
      .select('id')
      .where('id', 'in', [...named])
      .where('deletedAt', 'is', null)
      .execute();
    const isThere = new Set(there.map(({ id }) => id));
    // In the order of the keys, so that two processes cannot deadlock.
    const counts = request.counts.filter(({ accountId }) => isThere.has(accountId)).toSorted(byKey);
    await addCounts(transaction, counts);
    const refused = request.refused.filter(({ accountId }) => isThere.has(accountId));
    for (let at = 0; at < refused.length; at += rowsAtOnce)
      await transaction
        .insertInto('refused_request')
        .values(refused.slice(at, at + rowsAtOnce))
        .onConflict((conflict) => conflict.doNothing())
        .execute();
    for (const accountId of [...new Set(refused.map((each) => each.accountId))].toSorted())
      await transaction
        .deleteFrom('refused_request')
        .where('accountId', '=', accountId)
        .where('requestId', '<=', (of) =>
          of
            .selectFrom('refused_request as newer')
            .select('newer.requestId')
            .where('newer.accountId', '=', accountId)
            .orderBy('newer.requestId', 'desc')
            .limit(1)
            .offset(refusedKept),
        )
        .execute();
  });
}

const rowsAtOnce = 500;

async function addCounts(transaction: Kysely<Rows>, counts: readonly ErrorCount[]): Promise<void> {
  for (let at = 0; at < counts.length; at += rowsAtOnce)
    await transaction
      .insertInto('error_count')
      .values(counts.slice(at, at + rowsAtOnce))
      .onConflict((conflict) =>
        conflict.columns(['accountId', 'minute', 'keyId', 'modelId', 'code']).doUpdateSet({
          refusals: sql<number>`error_count.refusals + excluded.refusals`,
          failures: sql<number>`error_count.failures + excluded.failures`,
        }),
      )
      .execute();
}

const keyOf = ({ accountId, minute, keyId, modelId, code }: ErrorCount): string =>
  `${accountId} ${minute} ${keyId} ${modelId} ${code}`;
const byKey = (one: ErrorCount, other: ErrorCount): number => (keyOf(one) < keyOf(other) ? -1 : 1);

/** Selects refused requests. */
export interface RefusedFilter {
  readonly accountId?: string | undefined;
  /** The id of the answer, the one that the client sent, or the ledger's. */
  readonly id?: string | undefined;
  readonly keyId?: string | undefined;
  readonly model?: string | undefined;
  readonly code?: string | undefined;
  /** Only of keys of this user; null: of keys without one. */
  readonly ownerId?: string | null | undefined;
  /** Refused before this one. */
  readonly before?: Uint8Array | undefined;
  readonly limit: number;
}

/** Refused requests, newest first. */
export async function listRefused(
  db: Kysely<Rows>,
  { accountId, id, keyId, model, code, ownerId, before, limit }: RefusedFilter,
): Promise<readonly RefusedRequest[]> {
  let query = db.selectFrom('refused_request').selectAll().orderBy('requestId', 'desc').limit(limit);
  if (accountId !== undefined) query = query.where('accountId', '=', accountId);
  if (id !== undefined) {
    const sent = id.startsWith('client_') ? [id, id.slice('client_'.length)] : [id];
    query = query.where((is) => is.or([is('publicId', '=', id), is('clientId', 'in', sent)]));
  }
  if (keyId !== undefined) query = query.where('keyId', '=', keyId);
  if (model !== undefined) query = query.where('model', '=', model);
  if (code !== undefined) query = query.where('code', '=', code);
  if (accountId !== undefined && ownerId !== undefined) query = query.where(isKeyOf(accountId, ownerId));
  if (before !== undefined) query = query.where('requestId', '<', before);
  return await query.execute();
}

export type ErrorDimension = 'model' | 'key' | 'user' | 'code';

/** The errors of a bucket; dimensions that were not requested are null, and so is what is not known. */
export interface ErrorSum {
  /** Index of the bucket, which begins at `bounds[bucket]`. */
  readonly bucket: number;
  readonly model: string | null;
  readonly key: string | null;
  readonly user: string | null;
  readonly code: string | null;
  readonly refusals: number;
  readonly failures: number;
}

export interface ErrorsRequest extends Omit<SumFilter, 'tag'> {
  readonly code?: string | undefined;
  /** Ascending; `bounds[i]` to `bounds[i + 1]` is a bucket. */
  readonly bounds: readonly number[];
  readonly by: readonly ErrorDimension[];
}

const groupsMax = 100_000;
const columnOf = { model: 'model_id', key: 'key_id', user: 'user_id', code: 'code' } as const;

/** Sums errors in buckets, ordered by bucket; empty groups are omitted. Rejects with `invalid` if there are too many groups. */
export async function sumErrors(db: Kysely<Database>, request: ErrorsRequest): Promise<readonly ErrorSum[]> {
  const { accountId, modelId, keyId, userId, ownerId, code, bounds, by } = request;
  if (bounds.length < 2) return [];
  const buckets = bounds
    .slice(0, -1)
    .map((from, index) => sql`(${sql.lit(index)}, ${whole(from)}, ${whole(bounds[index + 1]!)})`);
  const conditions = [
    ...(modelId === undefined ? [] : [sql`model_id = ${modelId}`]),
    ...(keyId === undefined ? [] : [sql`key_id = ${keyId}`]),
    ...(code === undefined ? [] : [sql`code = ${code}`]),
    ...[userId, ownerId].flatMap((user) => (user === undefined ? [] : [isKeyOf(accountId, user)])),
  ];
  const dimensions = [...new Set(by)];
  const groups = dimensions.map((one) =>
    one === 'user' ? sql`api_key.user_id` : sql.ref(`error_count.${columnOf[one]}`),
  );
  const named = dimensions.map((one, index) => sql`${groups[index]!} as ${sql.ref(one)}`);
  // Each bucket is a range of the key.
  const { rows } = await sql<
    Partial<Record<ErrorDimension, string | null>> & Record<'bucket' | 'refusals' | 'failures', bigint>
  >`
    with bucket(bucket, since, until) as (values ${sql.join(buckets)})
    select ${sql.join([sql`bucket.bucket as bucket`, ...named])},
      cast(sum(refusals) as bigint) as refusals, cast(sum(failures) as bigint) as failures
    from bucket
    join error_count on account_id = ${accountId} and minute >= since and minute < until
    ${by.includes('user') ? sql`left join api_key on api_key.id = error_count.key_id` : sql``}
    ${conditions.length === 0 ? sql`` : sql`where ${sql.join(conditions, sql` and `)}`}
    group by ${sql.join([sql`bucket.bucket`, ...groups])}
    order by bucket.bucket
    limit ${sql.lit(groupsMax + 1)}
  `.execute(db);
  if (rows.length > groupsMax)
    throw new StoreError('invalid', `the report has more than ${groupsMax} groups: ask for fewer at a time`);
  const known = (value: string | null | undefined): string | null =>
    value === undefined || value === '' ? null : value;
  return rows.map(({ bucket, model, key, user, code: of, refusals, failures }) => ({
    bucket: Number(bucket),
    model: known(model),
    key: known(key),
    user: known(user),
    code: known(of),
    refusals: Number(refusals),
    failures: Number(failures),
  }));
}

/** A literal that PostgreSQL takes for a bigint too. */
const whole = (at: number) => sql`cast(${sql.lit(at)} as bigint)`;

const hoursAtOnce = 100;
/** An hour with more rows is summed as soon as no more can come, so that a flood does not fill the store for two days. */
const minuteRowsMax = 600;
/** Late counts, of a process whose clock or database was behind. */
const lateMs = 10 * 60_000;
/** Looked at for hours with too many rows. */
const fullSinceMs = 3 * hourMs;
/** Kinds (key, model, code) that are kept apart in an hour: the most frequent ones. The others are summed by code. */
const kindsOfHourMax = 200;

/** Sums minutes by the hour, and removes old hours and what deleted accounts have left. `isMore`: call it again. */
export async function tidyErrors(
  db: Kysely<Rows>,
  { now }: { readonly now: number },
): Promise<{ readonly isMore: boolean }> {
  await db
    .deleteFrom('error_count')
    .where('minute', '<', now - hoursKeptMs)
    .execute();
  for (const table of ['error_count', 'refused_request'] as const)
    await db
      .deleteFrom(table)
      .where('accountId', 'in', (of) => of.selectFrom('account').select('id').where('deletedAt', 'is not', null))
      .execute();
  const hour = sql<bigint>`minute - minute % ${sql.lit(hourMs)}`;
  const minutes = db
    .selectFrom('error_count')
    .select(['accountId', hour.as('hour')])
    .where(sql<boolean>`minute % ${sql.lit(hourMs)} <> 0`)
    .groupBy(['accountId', hour])
    .limit(hoursAtOnce);
  const old = await minutes.where('minute', '<', hourOf(now - minutesKeptMs)).execute();
  const full = await minutes
    .where('minute', '>=', hourOf(now - fullSinceMs))
    .where('minute', '<', hourOf(now - lateMs))
    .having(sql<boolean>`count(*) > ${sql.lit(minuteRowsMax)}`)
    .execute();
  for (const { accountId, hour: at } of [...old, ...full]) await foldHour(db, accountId, Number(at));
  return { isMore: old.length === hoursAtOnce || full.length === hoursAtOnce };
}

const hourOf = (at: number): number => at - (at % hourMs);

async function foldHour(db: Kysely<Rows>, accountId: string, hour: number): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    const rows = await transaction
      .deleteFrom('error_count')
      .where('accountId', '=', accountId)
      .where('minute', '>=', hour)
      .where('minute', '<', hour + hourMs)
      .returningAll()
      .execute();
    const kinds = summed(rows.map((row) => ({ ...row, minute: hour })));
    kinds.sort((one, other) => other.refusals + other.failures - one.refusals - one.failures);
    const others = kinds.splice(kindsOfHourMax).map((kind) => ({ ...kind, keyId: '', modelId: '' }));
    await addCounts(transaction, summed([...kinds, ...others]));
  });
}

function summed(counts: readonly ErrorCount[]): ErrorCount[] {
  const sums = new Map<string, ErrorCount>();
  for (const count of counts) {
    const { refusals = 0, failures = 0 } = sums.get(keyOf(count)) ?? {};
    sums.set(keyOf(count), {
      ...count,
      refusals: refusals + count.refusals,
      failures: failures + count.failures,
    });
  }
  return [...sums.values()];
}
