/** What an account has, holds and has spent, and how it came to that. */
import { sql, type Kysely, type RawBuilder, type SqlBool } from 'kysely';
import type { Database } from './database.ts';
import type { TransferKind } from './ledger.ts';
import { leased } from './queries.ts';
import { hourMs } from './time-zone.ts';
import { closedBefore } from './usage-expressions.ts';
import { inMonthsOf } from './usage-months.ts';

type Db = Kysely<Database>;

export interface Held {
  readonly microcents: bigint;
  readonly requests: number;
}

/**
 * What requests hold that are running now, in any process on these books, and have been for a quarter of a second:
 * younger ones are in no table (money.md, "Durability"). It is what they held when they were listed, without extensions.
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
  /** Credits less what was taken back and what has been used: what there is, held or not. */
  readonly balanceMicrocents: bigint;
  readonly creditLimitMicrocents: bigint;
  /** All that was ever credited, less what was taken back. */
  readonly creditedMicrocents: bigint;
  readonly spentMicrocents: bigint;
  readonly held: Held;
  /** The largest hold of a request of the last 30 days, as far as the newest thousand tell. */
  readonly largestHoldMicrocents: bigint;
}

const recentMs = 30 * 86_400_000;
const recentRows = 1000;

/** Undefined: there is no such customer. All of it is of one moment. */
export async function creditSummary(
  db: Db,
  request: { readonly accountId: string; readonly now: number },
): Promise<CreditSummary | undefined> {
  const { accountId, now } = request;
  return await atOnce(db, async (transaction) => {
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
      // M4: what is there and what was used is what was credited.
      spentMicrocents: credited - balanceMicrocents,
      held: await heldOf(transaction, { accountId }),
      largestHoldMicrocents: largest?.hold ?? 0n,
    };
  });
}

export type LedgerEntry =
  | {
      readonly kind: TransferKind;
      readonly id: Uint8Array;
      readonly at: number;
      /** Below zero: taken from the account. */
      readonly microcents: bigint;
      readonly balanceAfterMicrocents: bigint;
      readonly reference: string | null;
    }
  | {
      /** The charges of the requests that ended between two times, within one day (UTC) and between two movements. */
      readonly kind: 'usage';
      readonly from: number;
      readonly to: number;
      readonly microcents: bigint;
      readonly requests: number;
      readonly balanceAfterMicrocents: bigint;
    };

/** Where a page begins: behind a movement, or behind the usage that begins at a time. */
export type LedgerCursor = { readonly transferId: Uint8Array } | { readonly usageFrom: number };

/**
 * The movements of an account with the balance after each, newest first; undefined: the cursor is none of this account.
 * Charges of requests are summed up from one movement, or the start of a day, to the next, so that the balance after each
 * movement is what it was then, and every entry but the newest stays as it is. Sums are exact: the newest balance is that of
 * the account, and every older one is it less what came after.
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
  return await atOnce(db, async (transaction) => {
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
    // Older than the last movement that was looked at, others may lie between.
    const horizon = kind === 'usage' || transfers.length < limit ? -Infinity : transfers.at(-1)!.at;
    const merged = [...transfers.map((row) => ({ row, at: row.at })), ...spans.filter((span) => span.from >= horizon)]
      .sort((one, other) => placeOrder(other) - placeOrder(one))
      .filter((entry) => kind !== 'usage' || !('row' in entry))
      .slice(0, limit);
    // From the newest balance back to each entry, in the order of the books.
    let balance = account.available + account.leased;
    let from: Place | undefined;
    const entries: LedgerEntry[] = [];
    for (const entry of merged) {
      const place: Place = 'row' in entry ? { at: entry.at, id: entry.row.id } : { at: entry.from, id: undefined };
      const upTo: Place = 'row' in entry ? place : { at: entry.to, id: beforeAll };
      balance -= await netBetween(transaction, accountId, upTo, from);
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

/** Of no movement, and before each. */
const beforeAll = new Uint8Array(0);

/**
 * A place in the books. With an id: just before that movement. Without: before the charges of that millisecond, and after its
 * movements.
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

/** Movements of a millisecond come before its charges; a span counts by its last millisecond. */
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

/** Movements older than a place. */
function olderThan<Query extends { where(condition: RawBuilder<SqlBool>): Query }>(query: Query, place: Place): Query {
  const at = BigInt(place.at);
  return place.id === undefined
    ? query.where(sql<SqlBool>`at <= ${at}`)
    : query.where(sql<SqlBool>`(at < ${at} or (at = ${at} and id < ${place.id}))`);
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
    kind: row.kind as TransferKind,
    id: row.id,
    at: Number(row.at),
    microcents: row.debit_account === accountId ? -row.amount : row.amount,
    reference: row.reference,
  }));
}

/** That spans of usage are cut at, where nothing else is listed. */
const movementsMax = 10_000;

/** The newest spans of charges, cut at days and at movements; those that cost nothing are left out. */
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
  // Requests may end a little ahead of this clock.
  const end = before ?? now + dayMs;
  const spans: Span[] = [];
  for (const day of await chargedDays(db, accountId, end, limit)) {
    const dayEnd = Math.min(day + dayMs, end);
    const cuts = [...new Set(transfers.map(({ at }) => at).filter((at) => at > day && at < dayEnd))];
    const bounds = [dayEnd, ...cuts.sort((one, other) => other - one), day];
    for (let index = 0; index + 1 < bounds.length && spans.length < limit; index++) {
      const [to, from] = [bounds[index]!, bounds[index + 1]!];
      const { cost, requests } = await rawUsageOf(db, accountId, from, to);
      if (cost > 0n) spans.push({ at: from, from, to, cost, requests });
    }
    if (spans.length >= limit) break;
  }
  return spans;
}

const dayMs = 86_400_000;

/** Days with charges before a time, newest first: of closed hours by their sums, of the others by their rows. */
async function chargedDays(db: Db, accountId: string, before: number, limit: number): Promise<readonly number[]> {
  const closed = Math.min(await closedBefore(db), Math.floor(before / hourMs) * hourMs);
  const days = new Set<number>();
  const ofRows = sql<bigint>`ended_at - ended_at % ${sql.lit(dayMs)}`;
  const rows = await db
    .selectFrom('usage')
    .select(ofRows.as('day'))
    .where('account_id', '=', accountId)
    .where('ended_at', '>=', BigInt(closed))
    .where('ended_at', '<', BigInt(before))
    .where(inMonthsOf(db, { from: closed, to: before }))
    .where('cost', '>', 0n)
    .groupBy(ofRows)
    .execute();
  const ofHours = sql<bigint>`hour - hour % ${sql.lit(dayMs)}`;
  const hours = await db
    .selectFrom('usage_hour')
    .select(ofHours.as('day'))
    .where('account_id', '=', accountId)
    .where('hour', '<', BigInt(closed))
    .where('cost', '>', 0n)
    .groupBy(ofHours)
    .orderBy('day', 'desc')
    .limit(limit)
    .execute();
  for (const { day } of [...rows, ...hours]) days.add(Number(day));
  return [...days].sort((one, other) => other - one).slice(0, limit);
}

/** What came between two places, credits less debits less charges; `newer` left out: until now. */
async function netBetween(db: Db, accountId: string, older: Place, newer: Place | undefined): Promise<bigint> {
  const moved = await netTransfers(db, accountId, { newerThan: older, upTo: newer });
  return moved - (await usageCost(db, accountId, older.at, newer?.at));
}

/** Movements behind a place, that one itself left out, and before another. */
async function netTransfers(
  db: Db,
  accountId: string,
  { newerThan, upTo }: { readonly newerThan: Place | undefined; readonly upTo: Place | undefined },
): Promise<bigint> {
  let net = 0n;
  for (const side of ['credit_account', 'debit_account'] as const) {
    let query = db
      .selectFrom('transfer')
      .select((of) => of.fn.sum<bigint | null>('amount').as('amount'))
      .where(side, '=', accountId);
    if (newerThan !== undefined) {
      const at = BigInt(newerThan.at);
      query =
        newerThan.id === undefined
          ? query.where('at', '>', at)
          : query.where(sql<SqlBool>`(at > ${at} or (at = ${at} and id > ${newerThan.id}))`);
    }
    if (upTo !== undefined) query = olderThan(query, upTo);
    const { amount } = await query.executeTakeFirstOrThrow();
    net += (side === 'credit_account' ? 1n : -1n) * (amount ?? 0n);
  }
  return net;
}

/** Whole hours that are closed by their sums, the ends by their rows. */
export async function usageCost(
  db: Db,
  accountId: string,
  from: number,
  to = Number.MAX_SAFE_INTEGER,
): Promise<bigint> {
  if (from >= to) return 0n;
  const closed = await closedBefore(db);
  const hoursFrom = Math.min(Math.ceil(from / hourMs) * hourMs, to);
  const hoursTo = Math.max(hoursFrom, Math.min(Math.floor(to / hourMs) * hourMs, closed));
  const hours = await db
    .selectFrom('usage_hour')
    .select((of) => of.fn.sum<bigint | null>('cost').as('cost'))
    .where('account_id', '=', accountId)
    .where('hour', '>=', BigInt(hoursFrom))
    .where('hour', '<', BigInt(hoursTo))
    .executeTakeFirstOrThrow();
  const head = await rawUsageOf(db, accountId, from, hoursFrom);
  const tail = await rawUsageOf(db, accountId, hoursTo, to);
  return head.cost + (hours.cost ?? 0n) + tail.cost;
}

async function rawUsageOf(
  db: Db,
  accountId: string,
  from: number,
  to: number,
): Promise<{ readonly cost: bigint; readonly requests: number }> {
  if (from >= to) return { cost: 0n, requests: 0 };
  const row = await db
    .selectFrom('usage')
    .select((of) => [of.fn.sum<bigint | null>('cost').as('cost'), of.fn.countAll<bigint>().as('requests')])
    .where('account_id', '=', accountId)
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where(inMonthsOf(db, { from, ...(to === Number.MAX_SAFE_INTEGER ? {} : { to }) }))
    .executeTakeFirstOrThrow();
  return { cost: row.cost ?? 0n, requests: Number(row.requests) };
}

/** One moment for all of it; SQLite has no other kind. */
function atOnce<Value>(db: Db, work: (transaction: Db) => Promise<Value>): Promise<Value> {
  return db.transaction().setAccessMode('read only').setIsolationLevel('repeatable read').execute(work);
}
