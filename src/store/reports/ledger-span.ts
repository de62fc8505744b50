/** Everything that moved the balance of an account in a period: the figures of its statement. */
import { sql, type Kysely } from 'kysely';
import { systemAccounts } from '../ledger.ts';
import type { TransferKind } from '../ledger.ts';
import { receiptsSince } from '../repositories/receipts.ts';
import type { Row, Rows } from '../schema/codec.ts';
import { inMonthsOf } from './usage-months.ts';

type Db = Kysely<Rows>;
type Tier = NonNullable<Row<'usage'>['tier']>;

/**
 * Requests of one model in one service tier at the same prices, in microcents per million tokens. `plan` is the plan that covered them; null:
 * paid from credit.
 */
export type LedgerUsage = Pick<
  Row<'usage'>,
  | 'modelId'
  | 'plan'
  | 'inputPrice'
  | 'outputPrice'
  | 'cacheReadPrice'
  | 'promptTokens'
  | 'cachedTokens'
  | 'completionTokens'
  | 'costMicrocents'
  | 'priceMultiple'
> & { readonly requests: number; readonly tier: Tier };

/** Transfers of one kind and direction. */
export interface LedgerMovement {
  readonly kind: TransferKind;
  /** Whether the counterparty is the operator's revenue: refunds of requests, corrections. */
  readonly ofRevenue: boolean;
  readonly count: number;
  /** Negative if it was taken from the account. */
  readonly microcents: bigint;
}

export interface LedgerPayment {
  readonly at: number;
  readonly microcents: bigint;
  readonly reference: string | null;
  /** The number of its receipt, and the payment method; null: no receipt, or not yet. */
  readonly receipt: string | null;
  readonly method: string | null;
}

/** A refund of a request. */
export interface LedgerRefund {
  readonly at: number;
  readonly microcents: bigint;
  /** When the request ended; null: the refund does not identify a known request. */
  readonly requestEndedAt: number | null;
  readonly publicId: string | null;
}

/** Everything that moved the balance of an account in a period. */
export interface LedgerSpan {
  readonly usage: readonly LedgerUsage[];
  readonly movements: readonly LedgerMovement[];
  /** Payments, oldest first; the first `paymentsMax` of them. */
  readonly payments: readonly LedgerPayment[];
  /** The sum of payments from before receipts were introduced. */
  readonly receiptlessMicrocents: bigint;
  /** Refunds of requests only, oldest first; all of them. */
  readonly refunds: readonly LedgerRefund[];
}

const paymentsMax = 200;
const refundsAtOnce = 500;

interface Span {
  readonly accountId: string;
  /** Inclusive. */
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

/** Reads the ledger's figures of an account between two times. Exact once nothing more is recorded in that span. */
export async function readLedgerSpan(db: Db, span: Span): Promise<LedgerSpan> {
  return await db
    .transaction()
    .setAccessMode('read only')
    .setIsolationLevel('repeatable read')
    .execute(async (transaction) => ({
      usage: await usageByPrice(transaction, span),
      movements: await movements(transaction, span),
      payments: await payments(transaction, span),
      receiptlessMicrocents: await receiptless(transaction, span),
      refunds: await refunds(transaction, span),
    }));
}

async function usageByPrice(db: Db, { accountId, from, to }: Span): Promise<readonly LedgerUsage[]> {
  const price = ['modelId', 'plan', 'inputPrice', 'outputPrice', 'cacheReadPrice', 'priceMultiple'] as const;
  // Rows from before there were tiers have none.
  const tier = sql<Tier>`coalesce(tier, 'default')`;
  return await db
    .selectFrom('usage')
    .where('accountId', '=', accountId)
    .where('endedAt', '>=', from)
    .where('endedAt', '<', to)
    .where(inMonthsOf(db, { from, to }))
    // What was not charged is not billed, except for what a plan has covered.
    .where((is) => is.or([is('costMicrocents', '>', 0n), is('plan', 'is not', null)]))
    .select(price)
    .select([
      tier.as('tier'),
      sql<number>`count(*)`.as('requests'),
      sql<number>`sum(prompt_tokens)`.as('promptTokens'),
      sql<number>`sum(cached_tokens)`.as('cachedTokens'),
      sql<number>`sum(completion_tokens)`.as('completionTokens'),
      sql<bigint>`sum(cost)`.as('costMicrocents'),
    ])
    .groupBy(price)
    .groupBy(tier)
    .execute();
}

async function movements(db: Db, { accountId, from, to }: Span): Promise<readonly LedgerMovement[]> {
  const side = async (own: 'debitAccount' | 'creditAccount', other: 'debitAccount' | 'creditAccount') => {
    const rows = await db
      .selectFrom('transfer')
      .where(own, '=', accountId)
      .where('at', '>=', from)
      .where('at', '<', to)
      .select(['kind', other])
      .select((of) => [of.fn.countAll<bigint>().as('count'), of.fn.sum<bigint>('amountMicrocents').as('sum')])
      .groupBy(['kind', other])
      .execute();
    return rows.map((row): LedgerMovement => ({
      kind: row.kind,
      ofRevenue: row[other] === systemAccounts.revenue,
      count: Number(row.count),
      microcents: own === 'creditAccount' ? row.sum : -row.sum,
    }));
  };
  const all = [...(await side('creditAccount', 'debitAccount')), ...(await side('debitAccount', 'creditAccount'))];
  return all.sort((a, b) => compare(a.kind, b.kind) || compare(b.microcents, a.microcents));
}

const compare = <Value extends string | bigint>(a: Value, b: Value): number => (a < b ? -1 : a > b ? 1 : 0);

async function payments(db: Db, { accountId, from, to }: Span): Promise<readonly LedgerPayment[]> {
  return await db
    .selectFrom('transfer')
    .leftJoin('receipt', 'receipt.transferId', 'transfer.id')
    .where('transfer.creditAccount', '=', accountId)
    .where('transfer.kind', '=', 'topup')
    .where('transfer.at', '>=', from)
    .where('transfer.at', '<', to)
    .select(['transfer.at', 'transfer.amountMicrocents as microcents', 'transfer.reference'])
    .select(['receipt.number as receipt', 'receipt.method'])
    .orderBy('transfer.at')
    .orderBy('transfer.id')
    .limit(paymentsMax)
    .execute();
}

async function receiptless(db: Db, { accountId, from, to }: Span): Promise<bigint> {
  const { sum } = await db
    .selectFrom('transfer')
    .where('creditAccount', '=', accountId)
    .where('kind', '=', 'topup')
    .where('at', '>=', from)
    .where('at', '<', Math.min(to, await receiptsSince(db, {})))
    .select((of) => of.fn.sum<bigint | null>('amountMicrocents').as('sum'))
    .executeTakeFirstOrThrow();
  return sum ?? 0n;
}

/** A refund's idempotency key contains its request (`accounts/operations/credit.ts`, `billing/repair.ts`). */
async function refunds(db: Db, { accountId, from, to }: Span): Promise<readonly LedgerRefund[]> {
  const found: LedgerRefund[] = [];
  let last: { readonly at: number; readonly id: Uint8Array } | undefined;
  for (;;) {
    let query = db
      .selectFrom('transfer')
      .where('creditAccount', '=', accountId)
      .where('debitAccount', '=', systemAccounts.revenue)
      .where('kind', '=', 'refund')
      .where('at', '>=', from)
      .where('at', '<', to)
      .select(['id', 'at', 'amountMicrocents', 'idempotencyKey'])
      .orderBy('at')
      .orderBy('id')
      .limit(refundsAtOnce);
    if (last !== undefined) {
      const { at, id } = last;
      query = query.where((is) => is(is.refTuple('at', 'id'), '>', is.tuple(at, id)));
    }
    const rows = await query.execute();
    const named = rows.map((row) => /^refund:([0-9a-f]{32})$/.exec(row.idempotencyKey)?.[1]);
    const requests = await requestsOf(
      db,
      accountId,
      named.filter((id) => id !== undefined),
    );
    for (const [index, { at, amountMicrocents: microcents }] of rows.entries()) {
      const { endedAt, publicId } = requests.get(named[index] ?? '') ?? { endedAt: null, publicId: null };
      found.push({ at, microcents, requestEndedAt: endedAt, publicId });
    }
    last = rows.at(-1);
    if (rows.length < refundsAtOnce || last === undefined) return found;
  }
}

/** Finds requests by id, in hex. */
async function requestsOf(db: Db, accountId: string, ids: readonly string[]) {
  if (ids.length === 0) return new Map<string, { readonly endedAt: number; readonly publicId: string }>();
  const rows = await db
    .selectFrom('usage')
    .where(
      'requestId',
      'in',
      ids.map((id) => Uint8Array.from(Buffer.from(id, 'hex'))),
    )
    .where('accountId', '=', accountId)
    .select(['requestId', 'endedAt', 'publicId'])
    .execute();
  return new Map(rows.map(({ requestId, ...request }) => [Buffer.from(requestId).toString('hex'), request]));
}

/** Credits less debits of an account before a time. The cost of its requests is not included. */
export async function transferredBefore(
  db: Db,
  { accountId, before }: { readonly accountId: string; readonly before: number },
): Promise<bigint> {
  const side = async (own: 'debitAccount' | 'creditAccount'): Promise<bigint> => {
    const { sum } = await db
      .selectFrom('transfer')
      .where(own, '=', accountId)
      .where('at', '<', before)
      .select((of) => of.fn.sum<bigint | null>('amountMicrocents').as('sum'))
      .executeTakeFirstOrThrow();
    return sum ?? 0n;
  };
  return (await side('creditAccount')) - (await side('debitAccount'));
}
