/** Receipts of payments, and the documents that correct them when a payment is returned. */
import type { Kysely, Selectable } from 'kysely';
import type { Database, ReceiptKind } from '../database.ts';
import { ranAt } from '../migrations/migrate.ts';
import { addNotice, nobody } from './notices.ts';
import { rowsOn } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';

type Db = Kysely<Database>;

/** Since when payments get receipts in this database; earlier ones never do. */
export async function receiptsSince(db: Db, _request: object): Promise<number> {
  return (await ranAt(db, '029-receipts')) ?? Number.MAX_SAFE_INTEGER;
}

/** A payment that has no receipt yet. */
export interface UnreceiptedPayment {
  readonly transferId: Uint8Array;
  readonly accountId: string;
  readonly accountName: string;
  readonly at: number;
  readonly amountMicrocents: bigint;
  /** The reference of a payment that an operator has recorded. */
  readonly reference: string | null;
  /** null: an operator has recorded it. */
  readonly topup: {
    readonly id: string;
    readonly provider: string;
    readonly paymentId: string;
    readonly origin: 'checkout' | 'auto';
    readonly checkoutId: string | null;
  } | null;
}

/** Payments of customers since a time without a receipt, the oldest first, after a cursor. */
export async function listUnreceipted(
  db: Db,
  request: {
    readonly since: number;
    readonly after?: { readonly at: number; readonly transferId: Uint8Array };
    readonly limit: number;
  },
): Promise<readonly UnreceiptedPayment[]> {
  const { after } = request;
  let query = db
    .selectFrom('transfer')
    .innerJoin('account', (join) =>
      join.onRef('account.id', '=', 'transfer.credit_account').on('account.kind', '=', 0n),
    )
    .leftJoin('receipt', 'receipt.transfer_id', 'transfer.id')
    .leftJoin('payment', 'payment.transfer_id', 'transfer.id')
    .leftJoin('topup', 'topup.id', 'payment.topup_id')
    .where('transfer.kind', '=', 'topup')
    .where('transfer.at', '>=', BigInt(request.since))
    .where('receipt.id', 'is', null)
    .select(['transfer.id', 'transfer.at', 'transfer.amount', 'transfer.reference', 'account.id as account_id'])
    .select(['account.name', 'payment.provider', 'payment.id as payment_id', 'topup.id as topup_id'])
    .select(['topup.origin', 'topup.checkout_id'])
    .orderBy('transfer.at')
    .orderBy('transfer.id')
    .limit(request.limit);
  if (after !== undefined)
    query = query.where((is) =>
      is(is.refTuple('transfer.at', 'transfer.id'), '>', is.tuple(BigInt(after.at), after.transferId)),
    );
  return (await query.execute()).map((row) => ({
    transferId: Uint8Array.from(row.id),
    accountId: row.account_id,
    accountName: row.name,
    at: Number(row.at),
    amountMicrocents: row.amount,
    reference: row.reference,
    topup:
      row.topup_id === null || row.provider === null || row.payment_id === null || row.origin === null
        ? null
        : {
            id: row.topup_id,
            provider: row.provider,
            paymentId: row.payment_id,
            origin: row.origin,
            checkoutId: row.origin === 'auto' ? null : row.checkout_id,
          },
  }));
}

/** A refund or a dispute of a payment that has a receipt, without the correction that is due. */
export interface UncorrectedReturn {
  readonly provider: string;
  readonly returnId: string;
  readonly kind: 'refund' | 'dispute';
  readonly amountMicrocents: bigint;
  readonly at: number;
  /** `credit_note`: money was returned. `credit_note_reversal`: it came back: the refund failed or the dispute was won. */
  readonly due: 'credit_note' | 'credit_note_reversal';
  /** The document to be corrected: the receipt, or the credit note. */
  readonly corrects: Receipt;
}

export async function listUncorrectedReturns(
  db: Db,
  request: { readonly limit: number },
): Promise<readonly UncorrectedReturn[]> {
  const returns = db
    .selectFrom('payment_return')
    .innerJoin('payment', (join) =>
      join
        .onRef('payment.provider', '=', 'payment_return.provider')
        .onRef('payment.id', '=', 'payment_return.payment_id'),
    )
    .leftJoin('receipt as note', (join) =>
      join
        .onRef('note.provider', '=', 'payment_return.provider')
        .onRef('note.return_id', '=', 'payment_return.id')
        .on('note.kind', '=', 'credit_note'),
    )
    .select(['payment_return.provider as by', 'payment_return.id as returned', 'payment_return.kind as return_kind'])
    .select(['payment_return.amount', 'payment_return.at', 'payment_return.undone_at']);
  const taken = await returns
    .innerJoin('receipt', 'receipt.transfer_id', 'payment.transfer_id')
    .where('payment_return.undone_at', 'is', null)
    .where('note.id', 'is', null)
    .selectAll('receipt')
    .orderBy('payment_return.at')
    .limit(request.limit)
    .execute();
  const undone = await returns
    .innerJoin('receipt', 'receipt.id', 'note.id')
    .leftJoin('receipt as reversal', (join) =>
      join
        .onRef('reversal.provider', '=', 'payment_return.provider')
        .onRef('reversal.return_id', '=', 'payment_return.id')
        .on('reversal.kind', '=', 'credit_note_reversal'),
    )
    .where('payment_return.undone_at', 'is not', null)
    .where('reversal.id', 'is', null)
    .selectAll('receipt')
    .orderBy('payment_return.at')
    .limit(request.limit)
    .execute();
  const toDue =
    (due: UncorrectedReturn['due']) =>
    (row: (typeof taken)[number]): UncorrectedReturn => ({
      provider: row.by,
      returnId: row.returned,
      kind: row.return_kind,
      amountMicrocents: row.amount,
      at: Number(due === 'credit_note' ? row.at : (row.undone_at ?? row.at)),
      due,
      corrects: toReceipt(row),
    });
  return [...taken.map(toDue('credit_note')), ...undone.map(toDue('credit_note_reversal'))];
}

/** A document to be issued; the transaction that makes it gives it its number. */
export interface NewReceipt {
  readonly id: string;
  readonly accountId: string;
  readonly kind: ReceiptKind;
  readonly transferId: Uint8Array | null;
  readonly provider: string | null;
  readonly returnId: string | null;
  readonly corrects: string;
  readonly topupId: string | null;
  readonly totalMicrocents: bigint;
  readonly method: string;
  readonly data: string;
  /** Id of its event. */
  readonly noticeId: string;
}

/** Concurrent issuers may take the number that was meant for this one. */
const numberTriesMax = 50;

/**
 * Issues a receipt with the number that follows the last one of the year, and notes its event, in one transaction. False: this
 * payment or return already has one, and nothing was done.
 */
export async function issueReceipt(
  db: Db,
  request: { readonly receipt: NewReceipt; readonly year: number; readonly prefix: string; readonly at: number },
): Promise<boolean> {
  const { receipt, year, at } = request;
  for (let tries = 0; tries < numberTriesMax; tries++) {
    const outcome = await db.transaction().execute(async (transaction) => {
      let own = transaction.selectFrom('receipt').select('id');
      own =
        receipt.transferId === null
          ? own
              .where('provider', '=', receipt.provider)
              .where('return_id', '=', receipt.returnId)
              .where('kind', '=', receipt.kind)
          : own.where('transfer_id', '=', receipt.transferId);
      if ((await own.executeTakeFirst()) !== undefined) return false;
      const last = await transaction
        .selectFrom('receipt')
        .where('year', '=', BigInt(year))
        .select((of) => of.fn.max('sequence').as('sequence'))
        .executeTakeFirst();
      const sequence = Number(last?.sequence ?? 0n) + 1;
      const number = `${request.prefix}R${year}-${String(sequence).padStart(6, '0')}`;
      const { numInsertedOrUpdatedRows } = await transaction
        .insertInto('receipt')
        .values({
          id: receipt.id,
          account_id: receipt.accountId,
          kind: receipt.kind,
          number,
          year,
          sequence,
          transfer_id: receipt.transferId,
          provider: receipt.provider,
          return_id: receipt.returnId,
          corrects: receipt.corrects,
          topup_id: receipt.topupId,
          issued_at: at,
          total: receipt.totalMicrocents,
          method: receipt.method,
          data: receipt.data,
        })
        .onConflict((conflict) => conflict.doNothing())
        .executeTakeFirst();
      // The number or the document is taken: the next look tells which.
      if (numInsertedOrUpdatedRows !== 1n) return undefined;
      await addNotice(rowsOn(transaction), {
        id: receipt.noticeId,
        accountId: receipt.accountId,
        type: 'receipt.issued',
        data: JSON.stringify({
          receipt_id: receipt.id,
          number,
          kind: receipt.kind,
          topup_id: receipt.topupId,
        }),
        recipients: nobody,
        isWebhook: true,
        at,
      });
      return true;
    });
    if (outcome !== undefined) return outcome;
  }
  throw new StoreError('busy', 'too many receipts are issued at once');
}

export interface Receipt {
  readonly id: string;
  readonly accountId: string;
  readonly kind: ReceiptKind;
  readonly number: string;
  /** Id of the document that it corrects; empty: none. */
  readonly corrects: string;
  readonly topupId: string | null;
  readonly issuedAt: number;
  readonly totalMicrocents: bigint;
  /** How it was paid, in words. */
  readonly method: string;
  /** JSON: all that it says, except number and date. */
  readonly data: string;
}

/** Newest first; `after` is the id of the last one seen. Rejects as `not_found` when the account has no such receipt. */
export async function listReceipts(
  db: Db,
  request: { readonly accountId?: string; readonly after?: string; readonly limit: number },
): Promise<readonly Receipt[]> {
  let query = db
    .selectFrom('receipt')
    .selectAll()
    .orderBy('year', 'desc')
    .orderBy('sequence', 'desc')
    .limit(request.limit);
  if (request.accountId !== undefined) query = query.where('account_id', '=', request.accountId);
  if (request.after !== undefined) {
    const after = await rowOf(db, { ...request, id: request.after });
    if (after === undefined) throw new StoreError('not_found', 'Receipt not found.');
    const { year, sequence } = after;
    query = query.where((is) => is(is.refTuple('year', 'sequence'), '<', is.tuple(year, sequence)));
  }
  return (await query.execute()).map(toReceipt);
}

/** By its id or its number; of one account, or of any. */
export async function getReceipt(
  db: Db,
  request: { readonly accountId?: string; readonly id: string },
): Promise<Receipt | undefined> {
  const row = await rowOf(db, request);
  return row === undefined ? undefined : toReceipt(row);
}

/** Ids of the receipts of top-ups, by the top-up; those without a receipt are left out. */
export async function receiptsOfTopups(
  db: Db,
  request: { readonly accountId: string; readonly topupIds: readonly string[] },
): Promise<readonly { readonly topupId: string; readonly id: string }[]> {
  if (request.topupIds.length === 0) return [];
  const rows = await db
    .selectFrom('receipt')
    .select(['id', 'topup_id'])
    .where('account_id', '=', request.accountId)
    .where('kind', '=', 'receipt')
    .where('topup_id', 'in', request.topupIds)
    .execute();
  return rows.map((row) => ({ topupId: row.topup_id ?? '', id: row.id }));
}

async function rowOf(
  db: Db,
  request: { readonly accountId?: string; readonly id: string },
): Promise<Selectable<Database['receipt']> | undefined> {
  let query = db
    .selectFrom('receipt')
    .selectAll()
    .where((is) => is.or([is('id', '=', request.id), is('number', '=', request.id)]));
  if (request.accountId !== undefined) query = query.where('account_id', '=', request.accountId);
  return await query.executeTakeFirst();
}

const toReceipt = (
  row: Pick<
    Selectable<Database['receipt']>,
    'id' | 'account_id' | 'kind' | 'number' | 'corrects' | 'topup_id' | 'issued_at' | 'total' | 'method' | 'data'
  >,
): Receipt => ({
  id: row.id,
  accountId: row.account_id,
  kind: row.kind,
  number: row.number,
  corrects: row.corrects,
  topupId: row.topup_id,
  issuedAt: Number(row.issued_at),
  totalMicrocents: row.total,
  method: row.method,
  data: row.data,
});
