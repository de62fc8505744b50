/** What an account has, holds and has spent, and the movements that led to it. */
import { sql, type Kysely, type RawBuilder, type SqlBool } from 'kysely';
import { costsSince, firstEnd, placesOf, timeZoneOf } from '../reports/account-usage.ts';
import type { Database } from '../database.ts';
import type { TransferKind } from '../ledger.ts';
import { inOneMoment } from '../one-moment.ts';
import { leased } from './accounts.ts';
import { bucketBounds, startOfDay } from '../../platform/calendar/time-zone.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { sumBuckets } from '../reports/usage-sums.ts';

type Db = Kysely<Database>;

export interface Held {
  readonly microcents: bigint;
  readonly requests: number;
}

/**
 * What running requests hold, in any process on this ledger, once they have run for a quarter of a second: younger ones are in no table
 * (money.md, "Durability"). Amounts are as of when they were listed, without extensions.
 */
export async function heldOf(db: Db, request: { readonly accountId: string }): Promise<Held> {
  const row = await db
    .selectFrom('open_request')
    .select((of) => [of.fn.sum<bigint | null>('hold').as('hold'), of.fn.countAll<bigint>().as('requests')])
    .where('account_id', '=', request.accountId)
    .executeTakeFirstOrThrow();
  return { microcents: row.hold ?? 0n, requests: Number(row.requests) };
}

export interface CreditSummary {
  /** Credits less returns and usage: the whole balance, held or not. */
  readonly balanceMicrocents: bigint;
  readonly creditLimitMicrocents: bigint;
  /** Everything ever credited, less returns. */
  readonly creditedMicrocents: bigint;
  readonly spentMicrocents: bigint;
  readonly held: Held;
  /** The largest hold of a request in the last 30 days, among the newest thousand. */
  readonly largestHoldMicrocents: bigint;
}

const recentMs = 30 * 86_400_000;
const recentRows = 1000;

/** undefined: there is no such customer. All figures are from one moment. */
export async function creditSummary(
  db: Db,
  request: { readonly accountId: string; readonly now: number },
): Promise<CreditSummary | undefined> {
  const { accountId, now } = request;
  return await inOneMoment(db, async (transaction) => {
    const account = await transaction
      .selectFrom('account')
      .select(['available', 'credit_limit', leased()])
      .where('id', '=', accountId)
      .where('kind', '=', 0n)
      .executeTakeFirst();
    if (account === undefined) return undefined;
    const credited = await netTransfers(transaction, accountId, { newerThan: undefined, upTo: undefined });
    const recent = transaction
      .selectFrom('usage')
      .select('hold')
      .where('account_id', '=', accountId)
      .where('ended_at', '>=', BigInt(now - recentMs))
      .where(inMonthsOf(transaction, { from: now - recentMs }))
      .orderBy('ended_at', 'desc')
      .limit(recentRows);
    const largest = await transaction
      .selectFrom(recent.as('recent'))
      .select((of) => of.fn.max('hold').as('hold'))
      .executeTakeFirst();
    const balanceMicrocents = account.available + account.leased;
    return {
      balanceMicrocents,
      creditLimitMicrocents: account.credit_limit,
      creditedMicrocents: credited,
      // M4: the balance plus usage equals the amount credited.
      spentMicrocents: credited - balanceMicrocents,
      held: await heldOf(transaction, { accountId }),
      largestHoldMicrocents: largest?.hold ?? 0n,
    };
  });
}

/** What these accounts have spent, and how many of their requests are running. All figures are from one moment. */
export async function spentByAccounts(
  db: Db,
  { accountIds }: { readonly accountIds: readonly string[] },
): Promise<readonly { readonly accountId: string; readonly microcents: bigint; readonly heldRequests: number }[]> {
  if (accountIds.length === 0) return [];
  return await inOneMoment(db, async (transaction) => {
    const accounts = await transaction
      .selectFrom('account')
      .select(['id', 'available', leased()])
      .where('id', 'in', accountIds)
      .execute();
    const moved = new Map<string, bigint>();
    for (const [side, sign] of [
      ['credit_account', 1n],
      ['debit_account', -1n],
    ] as const) {
      const sums = await transaction
        .selectFrom('transfer')
        .select([`${side} as id`, sql<bigint>`cast(sum(amount) as bigint)`.as('amount')])
        .where(side, 'in', accountIds)
        .groupBy(side)
        .execute();
      for (const { id, amount } of sums) moved.set(id, (moved.get(id) ?? 0n) + sign * amount);
    }
    const running = await transaction
      .selectFrom('open_request')
      .select((of) => ['account_id', of.fn.countAll<bigint>().as('requests')])
      .where('account_id', 'in', accountIds)
      .groupBy('account_id')
      .execute();
    const requests = new Map(running.map((row) => [row.account_id, Number(row.requests)]));
    return accounts.map(({ id, available, leased: leasedMicrocents }) => ({
      accountId: id,
      // M4: the balance plus usage equals the amount credited.
      microcents: (moved.get(id) ?? 0n) - (available + leasedMicrocents),
      heldRequests: requests.get(id) ?? 0,
    }));
  });
}

export type LedgerEntry =
  | {
      readonly kind: TransferKind;
      readonly id: Uint8Array;
      readonly at: number;
      /** Negative: taken from the account. */
      readonly microcents: bigint;
      readonly balanceAfterMicrocents: bigint;
      readonly reference: string | null;
    }
  | {
      /** The charges of requests that ended between two times, within one day of the account's time zone and between two movements. */
      readonly kind: 'usage';
      readonly from: number;
      readonly to: number;
      readonly microcents: bigint;
      readonly requests: number;
      readonly balanceAfterMicrocents: bigint;
    };

/** Where a page begins: after a movement, or after the usage that begins at a time. */
export type LedgerCursor = { readonly transferId: Uint8Array } | { readonly usageFrom: number };

/**
 * Lists an account's movements with the balance after each, newest first; undefined: the cursor does not belong to this account. Charges of
 * requests are summed up from one movement, or the start of a day, to the next, so that the balance after each movement is what it was
 * then, and every entry except the newest is final. Sums are exact: the newest balance is the account's, and every older one is that less
 * what came after.
 */
export async function listLedger(
  db: Db,
  request: {
    readonly accountId: string;
    readonly after?: LedgerCursor;
    readonly kind?: TransferKind | 'usage';
    readonly limit: number;
    readonly now: number;
  },
): Promise<readonly LedgerEntry[] | undefined> {
  const { accountId, after, kind, limit, now } = request;
  return await inOneMoment(db, async (transaction) => {
    const account = await transaction
      .selectFrom('account')
      .select(['available', leased()])
      .where('id', '=', accountId)
      .executeTakeFirst();
    const start = after === undefined ? undefined : await placeOf(transaction, accountId, after);
    if (account === undefined || (after !== undefined && start === undefined)) return undefined;
    const transfers =
      kind === 'usage'
        ? await transfersBefore(transaction, accountId, start, undefined, undefined)
        : await transfersBefore(transaction, accountId, start, kind, limit);
    const spans =
      kind === undefined || kind === 'usage'
        ? await usageSpans(transaction, { accountId, before: start?.at, transfers, limit, now })
        : [];
    // Beyond the last movement that was read, there may be others between spans.
    const horizon = kind === 'usage' || transfers.length < limit ? -Infinity : transfers.at(-1)!.at;
    const merged = [...transfers.map((row) => ({ row, at: row.at })), ...spans.filter((span) => span.from >= horizon)]
      .sort((one, other) => placeOrder(other) - placeOrder(one))
      .filter((entry) => kind !== 'usage' || !('row' in entry))
      .slice(0, limit);
    // From the newest balance back to each entry, in ledger order.
    let balance = account.available + account.leased;
    const placed = merged.map((entry) => {
      const place: Place = 'row' in entry ? { at: entry.at, id: entry.row.id } : { at: entry.from, id: undefined };
      const upTo: Place = 'row' in entry ? place : { at: entry.to, id: beforeAll };
      return { entry, place, upTo };
    });
    const isComplete = kind === undefined;
    const times = (isComplete ? placed.slice(0, 1) : placed).flatMap(({ place, upTo }) => [place.at, upTo.at]);
    const costSince = await costsSince(transaction, accountId, times);
    let from: Place | undefined;
    const entries: LedgerEntry[] = [];
    for (const { entry, place, upTo } of placed) {
      // If nothing is filtered out, nothing lies between two entries.
      if (!isComplete || from === undefined) {
        const moved = await netTransfers(transaction, accountId, { newerThan: upTo, upTo: from });
        // What came between: credits less debits less charges; for the newest entry, until now.
        balance -= moved - costSince(upTo.at) + (from === undefined ? 0n : costSince(from.at));
      }
      const microcents = 'row' in entry ? entry.row.microcents : -entry.cost;
      entries.push(
        'row' in entry
          ? { ...entry.row, balanceAfterMicrocents: balance }
          : {
              kind: 'usage',
              from: entry.from,
              to: entry.to,
              microcents,
              requests: entry.requests,
              balanceAfterMicrocents: balance,
            },
      );
      balance -= microcents;
      from = place;
    }
    return entries;
  });
}

/** An id that belongs to no movement and sorts before all of them. */
const beforeAll = new Uint8Array(0);

/**
 * A position in the ledger. With an id: just before that movement. Without an id: after the movements of that millisecond, and before its
 * charges.
 */
interface Place {
  readonly at: number;
  readonly id: Uint8Array | undefined;
}

interface Span {
  readonly at: number;
  readonly from: number;
  readonly to: number;
  readonly cost: bigint;
  readonly requests: number;
}

interface MovementRow {
  readonly kind: TransferKind;
  readonly id: Uint8Array;
  readonly at: number;
  readonly microcents: bigint;
  readonly reference: string | null;
}

/** Movements of a millisecond come before its charges; a span sorts by its last millisecond. */
const placeOrder = (entry: { readonly at: number } | Span): number => ('from' in entry ? entry.to - 0.5 : entry.at);

async function placeOf(db: Db, accountId: string, cursor: LedgerCursor): Promise<Place | undefined> {
  if ('usageFrom' in cursor) return { at: cursor.usageFrom, id: undefined };
  const row = await db
    .selectFrom('transfer')
    .select('at')
    .where('id', '=', cursor.transferId)
    .where((is) => is.or([is('debit_account', '=', accountId), is('credit_account', '=', accountId)]))
    .executeTakeFirst();
  return row === undefined ? undefined : { at: Number(row.at), id: cursor.transferId };
}

/** Restricts to movements older than a position. */
function olderThan<Query extends { where(condition: RawBuilder<SqlBool>): Query }>(query: Query, place: Place): Query {
  const at = BigInt(place.at);
  return place.id === undefined
    ? query.where(sql<SqlBool>`at <= ${at}`)
    : query.where(sql<SqlBool>`(at < ${at} or (at = ${at} and id < ${place.id}))`);
}

/** Restricts to movements after a position, exclusive. */
function laterThan<Query extends { where(condition: RawBuilder<SqlBool>): Query }>(query: Query, place: Place): Query {
  const at = BigInt(place.at);
  return place.id === undefined
    ? query.where(sql<SqlBool>`at > ${at}`)
    : query.where(sql<SqlBool>`(at > ${at} or (at = ${at} and id > ${place.id}))`);
}

async function transfersBefore(
  db: Db,
  accountId: string,
  before: Place | undefined,
  kind: TransferKind | undefined,
  limit: number | undefined,
): Promise<readonly MovementRow[]> {
  let query = db
    .selectFrom('transfer')
    .select(['id', 'kind', 'at', 'amount', 'debit_account', 'reference'])
    .where((is) => is.or([is('debit_account', '=', accountId), is('credit_account', '=', accountId)]))
    .orderBy('at', 'desc')
    .orderBy('id', 'desc')
    .limit(limit ?? movementsMax);
  if (kind !== undefined) query = query.where('kind', '=', kind);
  if (before !== undefined) query = olderThan(query, before);
  return (await query.execute()).map((row) => ({
    kind: row.kind,
    id: row.id,
    at: Number(row.at),
    microcents: row.debit_account === accountId ? -row.amount : row.amount,
    reference: row.reference,
  }));
}

/** Maximum movements that spans of usage are cut at when only usage is listed. */
const movementsMax = 10_000;

/** Maximum days without charges that are searched in one step. */
const daysAtOnceMax = 1000;

/** The newest spans of charges, cut at days and at movements; spans without a cost are omitted. */
async function usageSpans(
  db: Db,
  {
    accountId,
    before,
    transfers,
    limit,
    now,
  }: {
    readonly accountId: string;
    readonly before: number | undefined;
    readonly transfers: readonly MovementRow[];
    readonly limit: number;
    readonly now: number;
  },
): Promise<readonly Span[]> {
  const first = await firstEnd(db, accountId);
  if (first === undefined) return [];
  const timeZone = await timeZoneOf(db, accountId);
  const places = await placesOf(db, accountId, timeZone);
  const cuts = transfers.map(({ at }) => at).sort((one, other) => one - other);
  const spans: Span[] = [];
  let daysAtOnce = limit;
  // Requests may end slightly ahead of this clock.
  for (let to = before ?? now + dayMs; to > first && spans.length < limit;) {
    const from = startOfDay(timeZone, Math.max(first, to - daysAtOnce * dayMs));
    const days = bucketBounds(timeZone, '1d', { from, to }, Infinity);
    for (const bounds of runsOfDays(days, cuts).toReversed()) {
      if (spans.length >= limit) break;
      const sums = await sumBuckets(db, { accountId }, { bounds, by: [], places });
      for (const { bucket, cost, requests } of sums.toReversed()) {
        const start = bounds[bucket]!;
        if (cost > 0n)
          spans.push({ at: start, from: start, to: bounds[bucket + 1]!, cost, requests: Number(requests) });
      }
    }
    to = from;
    daysAtOnce = Math.min(4 * daysAtOnce, daysAtOnceMax);
  }
  return spans.slice(0, limit);
}

/** Groups consecutive days into one list of bounds, for which their sums are used; a day with cuts gets a separate list. `cuts` ascend. */
function runsOfDays(days: readonly number[], cuts: readonly number[]): readonly (readonly number[])[] {
  const runs: { readonly isWhole: boolean; readonly bounds: number[] }[] = [];
  let next = 0;
  for (let index = 0; index + 1 < days.length; index++) {
    const [from, to] = [days[index]!, days[index + 1]!];
    const bounds = [from];
    for (; next < cuts.length && cuts[next]! < to; next++) if (cuts[next]! > bounds.at(-1)!) bounds.push(cuts[next]!);
    const isWhole = bounds.length === 1;
    const last = runs.at(-1);
    if (isWhole && last?.isWhole === true) last.bounds.push(to);
    else runs.push({ isWhole, bounds: [...bounds, to] });
  }
  return runs.map(({ bounds }) => bounds);
}

const dayMs = 86_400_000;

/** Net sum of the movements after one position (exclusive) and before another. */
async function netTransfers(
  db: Db,
  accountId: string,
  { newerThan, upTo }: { readonly newerThan: Place | undefined; readonly upTo: Place | undefined },
): Promise<bigint> {
  const sideOf = (side: 'credit_account' | 'debit_account', sign: 1 | -1) => {
    const query = db
      .selectFrom('transfer')
      .select((of) => [of.fn.sum<bigint | null>('amount').as('amount'), sql<number>`${sql.lit(sign)}`.as('sign')])
      .where(side, '=', accountId);
    const newer = newerThan === undefined ? query : laterThan(query, newerThan);
    return upTo === undefined ? newer : olderThan(newer, upTo);
  };
  const sides = await sideOf('credit_account', 1).unionAll(sideOf('debit_account', -1)).execute();
  return sides.reduce((net, { amount, sign }) => net + BigInt(sign) * (amount ?? 0n), 0n);
}
