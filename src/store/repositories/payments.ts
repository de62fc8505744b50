/** Top-ups, and what the payment provider has reported about them. What moves money rides with a transfer (recordings.ts). */
import type { Kysely, Selectable } from 'kysely';
import { addNotice } from './notices.ts';
import type { Notice } from './notices.ts';
import type { Database, TopupStatus } from '../database.ts';

type Db = Kysely<Database>;

export interface Topup {
  /** `top_…`, sorts by time. */
  readonly id: string;
  readonly accountId: string;
  readonly amountMicrocents: bigint;
  readonly status: TopupStatus;
  readonly origin: 'checkout' | 'auto';
  readonly provider: string;
  readonly checkoutId: string | null;
  readonly checkoutUrl: string | null;
  readonly paymentId: string | null;
  readonly returnedMicrocents: bigint;
  readonly idempotencyKey: string;
  readonly successUrl: string | null;
  readonly cancelUrl: string | null;
  readonly createdAt: number;
  readonly paidAt: number | null;
  readonly by: string;
}

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
      id: request.id,
      account_id: request.accountId,
      amount: request.amountMicrocents,
      status: 'pending',
      origin: request.origin,
      provider: request.provider,
      checkout_id: null,
      checkout_url: null,
      payment_id: null,
      returned: 0n,
      idempotency_key: request.idempotencyKey,
      success_url: request.successUrl,
      cancel_url: request.cancelUrl,
      created_at: request.createdAt,
      paid_at: null,
      by: request.by,
    })
    .onConflict((on) => on.columns(['account_id', 'idempotency_key']).doNothing())
    .execute();
  const row = await db
    .selectFrom('topup')
    .selectAll()
    .where('account_id', '=', request.accountId)
    .where('idempotency_key', '=', request.idempotencyKey)
    .executeTakeFirstOrThrow();
  return toTopup(row);
}

/** Records where it is paid. The first call wins. */
export async function noteCheckout(
  db: Db,
  request: { readonly id: string; readonly checkoutId: string; readonly checkoutUrl: string },
): Promise<void> {
  await db
    .updateTable('topup')
    .set({ checkout_id: request.checkoutId, checkout_url: request.checkoutUrl })
    .where('id', '=', request.id)
    .where('checkout_id', 'is', null)
    .execute();
}

/** Without an account: of any account. */
export async function getTopup(
  db: Db,
  request: { readonly id: string; readonly accountId?: string },
): Promise<Topup | undefined> {
  let query = db.selectFrom('topup').selectAll().where('id', '=', request.id);
  if (request.accountId !== undefined) query = query.where('account_id', '=', request.accountId);
  const row = await query.executeTakeFirst();
  return row === undefined ? undefined : toTopup(row);
}

/** Newest first. */
export async function listTopups(
  db: Db,
  request: { readonly accountId: string; readonly after?: string; readonly limit: number },
): Promise<readonly Topup[]> {
  let query = db
    .selectFrom('topup')
    .selectAll()
    .where('account_id', '=', request.accountId)
    .orderBy('id', 'desc')
    .limit(request.limit);
  if (request.after !== undefined) query = query.where('id', '<', request.after);
  return (await query.execute()).map(toTopup);
}

export interface PaymentRow {
  readonly id: string;
  readonly topupId: string;
  readonly accountId: string;
  readonly amountMicrocents: bigint;
}

export async function findPayment(
  db: Db,
  request: { readonly provider: string; readonly id: string },
): Promise<PaymentRow | undefined> {
  const row = await db
    .selectFrom('payment')
    .selectAll()
    .where('provider', '=', request.provider)
    .where('id', '=', request.id)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  return { id: row.id, topupId: row.topup_id, accountId: row.account_id, amountMicrocents: row.amount };
}

export interface EventToRecord {
  readonly provider: string;
  readonly id: string;
  readonly kind: string;
  readonly subject: string | null;
  /** `applied`, or why it changed nothing. */
  readonly outcome: string;
  readonly createdAt: number;
  readonly receivedAt: number;
}

/** The outcome of an event that was recorded before. */
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

/** Records an event that moves no money, with its effect on a waiting top-up; a known event changes nothing. */
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

/** False: it was recorded already. */
async function insertEvent(db: Db, event: EventToRecord): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('payment_event')
    .values({
      provider: event.provider,
      id: event.id,
      kind: event.kind,
      subject: event.subject,
      outcome: event.outcome,
      created_at: event.createdAt,
      received_at: event.receivedAt,
    })
    .onConflict((on) => on.columns(['provider', 'id']).doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

/** Not an event: its row says until when missed events have been fetched from the provider. */
const seenRow = 'seen_until';

/** Since when events may have been missed: the last look that found everything, or the first top-up; undefined: neither. */
export async function paymentsSeenUntil(db: Db, request: { readonly provider: string }): Promise<number | undefined> {
  const seen = await db
    .selectFrom('payment_event')
    .select('created_at')
    .where('provider', '=', request.provider)
    .where('id', '=', seenRow)
    .executeTakeFirst();
  if (seen !== undefined) return Number(seen.created_at);
  const first = await db
    .selectFrom('topup')
    .select((of) => of.fn.min('created_at').as('at'))
    .where('provider', '=', request.provider)
    .executeTakeFirst();
  const at = first?.at ?? null;
  return at === null ? undefined : Number(at);
}

export async function notePaymentsSeen(
  db: Db,
  request: { readonly provider: string; readonly at: number },
): Promise<void> {
  const { provider, at } = request;
  await db
    .insertInto('payment_event')
    .values({ provider, id: seenRow, kind: seenRow, subject: null, outcome: seenRow, created_at: at, received_at: at })
    .onConflict((on) => on.columns(['provider', 'id']).doUpdateSet({ created_at: at, received_at: at }))
    .execute();
}

export interface PaymentReturn {
  readonly id: string;
  readonly kind: Database['payment_return']['kind'];
  readonly paymentId: string;
  readonly topupId: string;
  readonly accountId: string;
  readonly amountMicrocents: bigint;
  readonly takenMicrocents: bigint;
  /** When the refund failed or the dispute was won, and everything was given back; null: it stands. */
  readonly undoneAt: number | null;
}

export async function findPaymentReturn(
  db: Db,
  request: { readonly provider: string; readonly id: string },
): Promise<PaymentReturn | undefined> {
  const row = await db
    .selectFrom('payment_return')
    .selectAll()
    .where('provider', '=', request.provider)
    .where('id', '=', request.id)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  return {
    id: row.id,
    kind: row.kind,
    paymentId: row.payment_id,
    topupId: row.topup_id,
    accountId: row.account_id,
    amountMicrocents: row.amount,
    takenMicrocents: row.taken,
    undoneAt: row.undone_at === null ? null : Number(row.undone_at),
  };
}

/**
 * Records that a refund has failed, or that a dispute was won, before it has taken anything, so that it never will. False: its
 * outcome is decided already, and nothing was done.
 */
export async function recordUndoneReturn(
  db: Db,
  request: {
    readonly undone: Omit<PaymentReturn, 'takenMicrocents' | 'undoneAt'> & { readonly provider: string };
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
        provider: undone.provider,
        id: undone.id,
        kind: undone.kind,
        payment_id: undone.paymentId,
        topup_id: undone.topupId,
        account_id: undone.accountId,
        amount: undone.amountMicrocents,
        taken: 0n,
        at,
        undone_at: at,
      })
      .onConflict((on) => on.columns(['provider', 'id']).doNothing())
      .executeTakeFirst();
    if (numInsertedOrUpdatedRows !== 1n) return false;
    await insertEvent(transaction, event);
    if (notice !== null) await addNotice(transaction, notice);
    return true;
  });
}

/** The provider's references of a payment method that may be charged in its owner's absence. */
export interface SavedMethod {
  readonly customerId: string;
  readonly methodId: string;
}

/** The newest one wins. */
export async function savePaymentMethod(
  db: Db,
  request: SavedMethod & { readonly accountId: string; readonly provider: string; readonly savedAt: number },
): Promise<void> {
  const saved = { customer_id: request.customerId, method_id: request.methodId, saved_at: request.savedAt };
  await db
    .insertInto('payment_method')
    .values({ account_id: request.accountId, provider: request.provider, ...saved })
    .onConflict((on) => on.columns(['account_id', 'provider']).doUpdateSet(saved))
    .execute();
}

export async function getPaymentMethod(
  db: Db,
  request: { readonly accountId: string; readonly provider: string },
): Promise<SavedMethod | undefined> {
  const row = await db
    .selectFrom('payment_method')
    .selectAll()
    .where('account_id', '=', request.accountId)
    .where('provider', '=', request.provider)
    .executeTakeFirst();
  return row === undefined ? undefined : { customerId: row.customer_id, methodId: row.method_id };
}

const toTopup = (row: Selectable<Database['topup']>): Topup => ({
  id: row.id,
  accountId: row.account_id,
  amountMicrocents: row.amount,
  status: row.status,
  origin: row.origin,
  provider: row.provider,
  checkoutId: row.checkout_id,
  checkoutUrl: row.checkout_url,
  paymentId: row.payment_id,
  returnedMicrocents: row.returned,
  idempotencyKey: row.idempotency_key,
  successUrl: row.success_url,
  cancelUrl: row.cancel_url,
  createdAt: Number(row.created_at),
  paidAt: row.paid_at === null ? null : Number(row.paid_at),
  by: row.by,
});
