/**
 * Top-ups, and what the payment provider has reported about them. Money movements are recorded together with a transfer (recordings.ts).
 */
import type { Kysely } from 'kysely';
import { addNotice } from './notices.ts';
import type { Notice } from './notices.ts';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

export type Topup = Row<'topup'>;

export type NewTopup = Pick<
  Topup,
  | 'id'
  | 'accountId'
  | 'amountMicrocents'
  | 'origin'
  | 'provider'
  | 'idempotencyKey'
  | 'successUrl'
  | 'cancelUrl'
  | 'createdAt'
  | 'by'
>;

/** Resolves with the account's top-up of this idempotency key: this one, or the existing one. */
export async function beginTopup(db: Db, request: NewTopup): Promise<Topup> {
  await db
    .insertInto('topup')
    .values({
      ...request,
      status: 'pending',
      checkoutId: null,
      checkoutUrl: null,
      paymentId: null,
      returnedMicrocents: 0n,
      paidAt: null,
    })
    .onConflict((on) => on.columns(['accountId', 'idempotencyKey']).doNothing())
    .execute();
  return await db
    .selectFrom('topup')
    .selectAll()
    .where('accountId', '=', request.accountId)
    .where('idempotencyKey', '=', request.idempotencyKey)
    .executeTakeFirstOrThrow();
}

/** Records the payment page. The first call wins. */
export async function noteCheckout(
  db: Db,
  request: { readonly id: string; readonly checkoutId: string; readonly checkoutUrl: string },
): Promise<void> {
  await db
    .updateTable('topup')
    .set({ checkoutId: request.checkoutId, checkoutUrl: request.checkoutUrl })
    .where('id', '=', request.id)
    .where('checkoutId', 'is', null)
    .execute();
}

/** Without an account, finds it in any account. */
export async function getTopup(
  db: Db,
  request: { readonly id: string; readonly accountId?: string },
): Promise<Topup | undefined> {
  let query = db.selectFrom('topup').selectAll().where('id', '=', request.id);
  if (request.accountId !== undefined) query = query.where('accountId', '=', request.accountId);
  return await query.executeTakeFirst();
}

/** Newest first. */
export async function listTopups(
  db: Db,
  request: { readonly accountId: string; readonly after?: string; readonly limit: number },
): Promise<readonly Topup[]> {
  let query = db
    .selectFrom('topup')
    .selectAll()
    .where('accountId', '=', request.accountId)
    .orderBy('id', 'desc')
    .limit(request.limit);
  if (request.after !== undefined) query = query.where('id', '<', request.after);
  return await query.execute();
}

export type PaymentRow = Row<'payment'>;

export async function findPayment(
  db: Db,
  request: { readonly provider: string; readonly id: string },
): Promise<PaymentRow | undefined> {
  return await db
    .selectFrom('payment')
    .selectAll()
    .where('provider', '=', request.provider)
    .where('id', '=', request.id)
    .executeTakeFirst();
}

export type EventToRecord = Row<'payment_event'>;

/** The outcome of a previously recorded event. */
export async function findPaymentEvent(
  db: Db,
  request: { readonly provider: string; readonly id: string },
): Promise<string | undefined> {
  const row = await db
    .selectFrom('payment_event')
    .select('outcome')
    .where('provider', '=', request.provider)
    .where('id', '=', request.id)
    .executeTakeFirst();
  return row?.outcome;
}

/** Whether an event about a payment of a top-up was refused, so that the payment has credited nothing. */
export async function wasPaymentRefused(
  db: Db,
  request: { readonly provider: string; readonly subject: string; readonly since: number },
): Promise<boolean> {
  const row = await db
    .selectFrom('payment_event')
    .where('provider', '=', request.provider)
    // Event times are whole seconds.
    .where('createdAt', '>=', request.since - 1000)
    .where('subject', '=', request.subject)
    .where('outcome', 'like', 'refused%')
    .select('id')
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Records an event that moves no money, with its effect on a pending top-up; a known event changes nothing. */
export async function recordPaymentEvent(
  db: Db,
  request: EventToRecord & { readonly topup?: { readonly id: string; readonly status: 'failed' | 'expired' } },
): Promise<boolean> {
  const { topup } = request;
  return await db.transaction().execute(async (transaction) => {
    if (!(await insertEvent(transaction, request))) return false;
    if (topup !== undefined)
      await transaction
        .updateTable('topup')
        .set({ status: topup.status })
        .where('id', '=', topup.id)
        .where('status', '=', 'pending')
        .execute();
    return true;
  });
}

/** Returns false if it was already recorded. */
async function insertEvent(
  db: Db,
  { provider, id, kind, subject, outcome, createdAt, receivedAt }: EventToRecord,
): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('payment_event')
    .values({ provider, id, kind, subject, outcome, createdAt, receivedAt })
    .onConflict((on) => on.columns(['provider', 'id']).doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

/** Not an event: its row stores until when missed events have been fetched from the provider. */
const seenRow = 'seen_until';

/** Since when events may have been missed: the last complete poll, or the first top-up; undefined: neither. */
export async function paymentsSeenUntil(db: Db, request: { readonly provider: string }): Promise<number | undefined> {
  const seen = await db
    .selectFrom('payment_event')
    .select('createdAt')
    .where('provider', '=', request.provider)
    .where('id', '=', seenRow)
    .executeTakeFirst();
  if (seen !== undefined) return seen.createdAt;
  const first = await db
    .selectFrom('topup')
    .select((of) => of.fn.min('createdAt').as('at'))
    .where('provider', '=', request.provider)
    .executeTakeFirst();
  return first?.at ?? undefined;
}

export async function notePaymentsSeen(
  db: Db,
  request: { readonly provider: string; readonly at: number },
): Promise<void> {
  const { provider, at } = request;
  await db
    .insertInto('payment_event')
    .values({ provider, id: seenRow, kind: seenRow, subject: null, outcome: seenRow, createdAt: at, receivedAt: at })
    .onConflict((on) => on.columns(['provider', 'id']).doUpdateSet({ createdAt: at, receivedAt: at }))
    .execute();
}

/** `undoneAt`: when the refund failed or the dispute was won, and everything was given back; null: the return stands. */
export type PaymentReturn = Row<'payment_return'>;

export async function findPaymentReturn(
  db: Db,
  request: { readonly provider: string; readonly id: string },
): Promise<PaymentReturn | undefined> {
  return await db
    .selectFrom('payment_return')
    .selectAll()
    .where('provider', '=', request.provider)
    .where('id', '=', request.id)
    .executeTakeFirst();
}

/** Returns still owed by accounts whose running requests hold the required credit, a bounded number. */
export async function owedReturns(
  db: Db,
  { limit }: { readonly limit: number },
): Promise<readonly Pick<PaymentReturn, 'provider' | 'id' | 'accountId' | 'topupId'>[]> {
  return await db
    .selectFrom('payment_return')
    .where('owedMicrocents', '>', 0n)
    .select(['provider', 'id', 'accountId', 'topupId'])
    .limit(limit)
    .execute();
}

/**
 * Records that a refund has failed, or that a dispute was won, before it has taken anything, so that it never will. false: its outcome is
 * already decided, and nothing was done.
 */
export async function recordUndoneReturn(
  db: Db,
  request: {
    readonly undone: Omit<PaymentReturn, 'takenMicrocents' | 'owedMicrocents' | 'beyondMicrocents' | 'at' | 'undoneAt'>;
    readonly event: EventToRecord;
    readonly notice: Notice | null;
    readonly at: number;
  },
): Promise<boolean> {
  const { undone, event, notice, at } = request;
  return await db.transaction().execute(async (transaction) => {
    const { numInsertedOrUpdatedRows } = await transaction
      .insertInto('payment_return')
      .values({
        ...undone,
        takenMicrocents: 0n,
        owedMicrocents: 0n,
        beyondMicrocents: undone.amountMicrocents,
        at,
        undoneAt: at,
      })
      .onConflict((on) => on.columns(['provider', 'id']).doNothing())
      .executeTakeFirst();
    if (numInsertedOrUpdatedRows !== 1n) return false;
    await insertEvent(transaction, event);
    if (notice !== null) await addNotice(transaction, notice);
    return true;
  });
}

/** The provider's references of a payment method that may be charged without its owner present. */
export type SavedMethod = Pick<Row<'payment_method'>, 'customerId' | 'methodId'>;

/** The newest one wins. */
export async function savePaymentMethod(
  db: Db,
  request: SavedMethod & { readonly accountId: string; readonly provider: string; readonly savedAt: number },
): Promise<void> {
  const saved = { customerId: request.customerId, methodId: request.methodId, savedAt: request.savedAt };
  await db
    .insertInto('payment_method')
    .values({ accountId: request.accountId, provider: request.provider, ...saved })
    .onConflict((on) => on.columns(['accountId', 'provider']).doUpdateSet(saved))
    .execute();
}

export async function getPaymentMethod(
  db: Db,
  request: { readonly accountId: string; readonly provider: string },
): Promise<SavedMethod | undefined> {
  return await db
    .selectFrom('payment_method')
    .select(['customerId', 'methodId'])
    .where('accountId', '=', request.accountId)
    .where('provider', '=', request.provider)
    .executeTakeFirst();
}
