/** Reports of one account: its usage totals, in buckets of its time zone (docs/usage.md). */
import type { Kysely, Selectable } from 'kysely';
import type { Database } from '../database.ts';
import { placesOf, timeZoneOf } from './account-usage.ts';
import { inOneMoment } from '../one-moment.ts';
import { addSums, listOf, type Sums } from './usage-expressions.ts';
import { sumBuckets, type BucketSum, type SumDimension, type SumFilter } from './usage-sums.ts';

type Db = Kysely<Database>;

export type ReportDimension = SumDimension | 'user';

/** The sums of a bucket for a model, a key, a user, a label, a tier, an ending, as requested; dimensions that were not requested are null. */
export interface ReportRow extends BucketSum {
  /** Also null for a key without a user. */
  readonly user: string | null;
}

export interface ReportRequest extends SumFilter {
  /** The time zone of the days, by which `bounds` are cut. */
  readonly timeZone: string;
  /** As returned by `bucketBounds`. */
  readonly bounds: readonly number[];
  readonly by: readonly ReportDimension[];
}

/**
 * Sums usage in buckets, ordered by bucket, model, key, user, label, tier and ending; empty groups are omitted. A request with several labels counts
 * under each, one without labels under none. Rejects with `invalid` if there are too many groups.
 */
export async function reportUsage(db: Db, request: ReportRequest): Promise<readonly ReportRow[]> {
  if (request.bounds.length < 2) return [];
  return await inOneMoment(db, async (moment) => {
    const { timeZone, bounds, by } = request;
    const byUser = by.includes('user');
    const dimensions = [...new Set(by.map((one) => (one === 'user' ? 'key' : one)))];
    const places = await placesOf(moment, request.accountId, timeZone);
    const sums = await sumBuckets(moment, request, { bounds, by: dimensions, places });
    if (!byUser) return sums.map((sum) => ({ ...sum, user: null }));
    return ofUsers(sums, await ownersOf(moment, request.accountId), by.includes('key'));
  });
}

/** The part of a bucket's charges that was refunded, grouped by the charged requests. */
export interface RefundSum extends Pick<ReportRow, 'bucket' | 'model' | 'key' | 'user' | 'tag' | 'tier' | 'ending'> {
  readonly amountMicrocents: bigint;
}

/** Like `reportUsage`, for refunds by the time at which they were made. */
export async function reportRefunds(db: Db, request: ReportRequest): Promise<readonly RefundSum[]> {
  const { accountId, bounds, by } = request;
  if (bounds.length < 2) return [];
  return await inOneMoment(db, async (moment) => {
    const refunds = await refundsBetween(moment, { accountId, from: bounds[0]!, to: bounds.at(-1)! });
    if (refunds.length === 0) return [];
    const charged = await usageOf(
      moment,
      accountId,
      refunds.map(({ requestId }) => requestId),
    );
    const owners = await ownersOf(moment, accountId);
    const sums = new Map<string, RefundSum>();
    for (const { requestId, amountMicrocents, at } of refunds) {
      const row = charged.get(Buffer.from(requestId).toString('hex'));
      if (row === undefined) continue; // not a charge to this account
      const user = owners.get(row.key_id) ?? null;
      const tags = row.tags === null ? [] : listOf(row.tags)!;
      if (request.modelId !== undefined && request.modelId !== row.model_id) continue;
      if (request.keyId !== undefined && request.keyId !== row.key_id) continue;
      if (request.userId !== undefined && request.userId !== user) continue;
      if (request.ownerId !== undefined && (request.ownerId !== user || !owners.has(row.key_id))) continue;
      if (request.tier !== undefined && request.tier !== row.tier) continue;
      if (request.ending !== undefined && request.ending !== row.ending) continue;
      if (request.tag !== undefined && !tags.includes(request.tag)) continue;
      const bucket = bounds.findLastIndex((bound) => bound <= at);
      const shown = request.tag === undefined ? tags : [request.tag];
      for (const tag of by.includes('tag') ? shown : [null]) {
        const group = {
          bucket,
          model: by.includes('model') ? row.model_id : null,
          key: by.includes('key') ? row.key_id : null,
          user: by.includes('user') ? user : null,
          tag,
          tier: by.includes('tier') ? row.tier : null,
          ending: by.includes('ending') ? row.ending : null,
        };
        const name = JSON.stringify(group);
        const sum = sums.get(name)?.amountMicrocents ?? 0n;
        sums.set(name, { ...group, amountMicrocents: sum + amountMicrocents });
      }
    }
    return [...sums.values()];
  });
}

const requestsAtOnce = 500;

type ChargedRow = Pick<Selectable<Database['usage']>, 'model_id' | 'key_id' | 'tags' | 'tier' | 'ending'>;

async function usageOf(db: Db, accountId: string, requestIds: readonly Uint8Array[]) {
  const found = new Map<string, ChargedRow>();
  for (let at = 0; at < requestIds.length; at += requestsAtOnce) {
    const rows = await db
      .selectFrom('usage')
      .select(['request_id', 'model_id', 'key_id', 'tags', 'tier', 'ending'])
      .where('request_id', 'in', requestIds.slice(at, at + requestsAtOnce))
      .where('account_id', '=', accountId)
      .execute();
    for (const { request_id: id, ...row } of rows) found.set(Buffer.from(id).toString('hex'), row);
  }
  return found;
}

/** What was charged since a time, by the account, key, user or tag charged. */
export interface SpendRequest {
  readonly accountId: string;
  /** When requests ended, in milliseconds since 1970: `from` is inclusive, `to` exclusive. */
  readonly from: number;
  readonly to: number;
  /** `user`: by all keys of a user. `id` is omitted for the whole account. */
  readonly by: 'account' | 'key' | 'user' | 'tag';
  readonly id?: string;
}

/** Microcents charged for requests; refunds are not subtracted. */
export async function spendSince(db: Db, { accountId, from, to, by, id = '' }: SpendRequest): Promise<bigint> {
  if (from >= to) return 0n;
  return await inOneMoment(db, async (moment) => {
    const timeZone = await timeZoneOf(moment, accountId);
    const filter = {
      accountId,
      ...(by === 'key' ? { keyId: id } : {}),
      ...(by === 'user' ? { userId: id } : {}),
      ...(by === 'tag' ? { tag: id } : {}),
    };
    const places = await placesOf(moment, accountId, timeZone);
    const [sum] = await sumBuckets(moment, filter, { bounds: [from, to], by: [], places });
    return sum?.cost ?? 0n;
  });
}

/** What keys of an account were charged since each of several times; keys without a charge are omitted. */
export async function spendOfKeys(
  db: Db,
  request: {
    readonly accountId: string;
    /** One key; omitted: all. */
    readonly keyId?: string;
    readonly since: readonly number[];
    readonly to: number;
  },
): Promise<readonly ReadonlyMap<string, bigint>[]> {
  const { since, to, ...filter } = request;
  return await inOneMoment(db, async (moment) => {
    const places = await placesOf(moment, filter.accountId, await timeZoneOf(moment, filter.accountId));
    const spends: ReadonlyMap<string, bigint>[] = [];
    for (const from of since) {
      const sums = await sumBuckets(moment, filter, { bounds: [from, to], by: ['key'], places });
      spends.push(new Map(sums.map(({ key, cost }) => [key!, cost])));
    }
    return spends;
  });
}

/** A charge, or part of one, that was refunded. */
export interface Refund {
  /** The id of the ledger's row. */
  readonly transferId: Uint8Array;
  /** The id of the charged request. */
  readonly requestId: Uint8Array;
  readonly amountMicrocents: bigint;
  readonly at: number;
  readonly reference: string | null;
}

/** Prefix of the request's id in hex; together they form its refund's idempotency key. */
export const refundKey = 'refund:';
const pageRows = 1000;

/** All refunds of requests between two times, oldest first. */
export async function refundsBetween(
  db: Db,
  { accountId, from, to }: { readonly accountId: string; readonly from: number; readonly to: number },
): Promise<readonly Refund[]> {
  const refunds: Refund[] = [];
  for (let last: { readonly at: bigint; readonly id: Uint8Array } | undefined; ;) {
    let query = db
      .selectFrom('transfer')
      .select(['id', 'idempotency_key', 'amount', 'at', 'reference'])
      .where('credit_account', '=', accountId)
      .where('kind', '=', 'refund')
      .where('at', '>=', BigInt(from))
      .where('at', '<', BigInt(to))
      .where('idempotency_key', 'like', `${refundKey}%`)
      .orderBy('at')
      .orderBy('id')
      .limit(pageRows);
    if (last !== undefined) {
      const { at, id } = last;
      query = query.where((is) => is(is.refTuple('at', 'id'), '>', is.tuple(at, id)));
    }
    const rows = await query.execute();
    refunds.push(...rows.map(toRefund));
    if (rows.length < pageRows) return refunds;
    const row = rows.at(-1)!;
    last = { at: row.at, id: row.id };
  }
}

/** The refunds of these requests. */
export async function refundsOf(
  db: Db,
  { accountId, requestIds }: { readonly accountId: string; readonly requestIds: readonly Uint8Array[] },
): Promise<readonly Refund[]> {
  if (requestIds.length === 0) return [];
  const rows = await db
    .selectFrom('transfer')
    .select(['id', 'idempotency_key', 'amount', 'at', 'reference'])
    .where(
      'idempotency_key',
      'in',
      requestIds.map((id) => `${refundKey}${Buffer.from(id).toString('hex')}`),
    )
    .where('credit_account', '=', accountId)
    .execute();
  return rows.map(toRefund);
}

const toRefund = (row: {
  readonly id: Uint8Array;
  readonly idempotency_key: string;
  readonly amount: bigint;
  readonly at: bigint;
  readonly reference: string | null;
}): Refund => ({
  transferId: row.id,
  requestId: Uint8Array.from(Buffer.from(row.idempotency_key.slice(refundKey.length), 'hex')),
  amountMicrocents: row.amount,
  at: Number(row.at),
  reference: row.reference,
});

export async function ownersOf(db: Db, accountId: string): Promise<ReadonlyMap<string, string | null>> {
  const keys = await db.selectFrom('api_key').select(['id', 'user_id']).where('account_id', '=', accountId).execute();
  return new Map(keys.map(({ id, user_id: user }) => [id, user]));
}

function ofUsers(
  sums: readonly BucketSum[],
  owners: ReadonlyMap<string, string | null>,
  byKey: boolean,
): readonly ReportRow[] {
  const rows = new Map<string, ReportRow & Sums>();
  for (const sum of sums) {
    const row = { ...sum, user: owners.get(sum.key!) ?? null, key: byKey ? sum.key : null };
    const name = JSON.stringify([row.bucket, row.model, row.key, row.user, row.tag, row.tier, row.ending]);
    const there = rows.get(name);
    rows.set(name, there === undefined ? row : addSums(there, row));
  }
  return [...rows.values()];
}
