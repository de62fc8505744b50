/** Receipts of payments, and the documents that correct them when a payment is returned. */
import type { Kysely } from 'kysely';
import { madeAt } from '../migrations/migrate.ts';
import { addNotice, nobody } from './notices.ts';
import { documentNumber, getDocument, lastSequence, listDocuments } from './numbered-documents.ts';
import { recordedProvider } from '../recordings.ts';
import { storedOn, type Row, type Rows } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';

type Db = Kysely<Rows>;

/** A receipt as issued; its row has further columns. */
export type Receipt = Pick<
  Row<'receipt'>,
  'id' | 'accountId' | 'kind' | 'number' | 'corrects' | 'topupId' | 'issuedAt' | 'totalMicrocents' | 'method' | 'data'
>;

/** A document to be issued; the transaction that creates it assigns its number. */
export type NewReceipt = Omit<Row<'receipt'>, 'number' | 'year' | 'sequence' | 'issuedAt'> & {
  /** Id of its event. */
  readonly noticeId: string;
};

/** Payments from before the database was created, taken by another program, get no receipts. */
export const receiptsSince = (db: Db, _request: object): Promise<number> => madeAt(storedOn(db));

/** A payment that has no receipt yet. */
export interface UnreceiptedPayment {
  readonly transferId: Uint8Array;
  readonly accountId: string;
  readonly accountName: string;
  readonly at: number;
  readonly amountMicrocents: bigint;
  /** The reference of a payment that an operator recorded. */
  readonly reference: string | null;
  /** null: recorded by an operator. */
  readonly topup: {
    readonly id: string;
    readonly provider: string;
    readonly paymentId: string;
    readonly origin: 'checkout' | 'auto';
    readonly checkoutId: string | null;
  } | null;
}

/** Payments of customers since a time without a receipt, oldest first, after a cursor. */
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
    .innerJoin('account', (join) => join.onRef('account.id', '=', 'transfer.creditAccount').on('account.kind', '=', 0))
    .leftJoin('receipt', 'receipt.transferId', 'transfer.id')
    .leftJoin('payment', 'payment.transferId', 'transfer.id')
    .leftJoin('topup', 'topup.id', 'payment.topupId')
    .where('transfer.kind', '=', 'topup')
    .where('transfer.at', '>=', request.since)
    .where('receipt.id', 'is', null)
    .select(['transfer.id', 'transfer.at', 'transfer.amountMicrocents', 'transfer.reference'])
    .select(['account.id as accountId', 'account.name', 'payment.provider', 'payment.id as paymentId'])
    .select(['topup.id as topupId', 'topup.origin', 'topup.checkoutId'])
    .orderBy('transfer.at')
    .orderBy('transfer.id')
    .limit(request.limit);
  if (after !== undefined)
    query = query.where((is) =>
      is(is.refTuple('transfer.at', 'transfer.id'), '>', is.tuple(after.at, after.transferId)),
    );
  return (await query.execute()).map((row) => ({
    transferId: Uint8Array.from(row.id),
    accountId: row.accountId,
    accountName: row.name,
    at: row.at,
    amountMicrocents: row.amountMicrocents,
    reference: row.reference,
    topup:
      row.topupId === null || row.provider === null || row.paymentId === null || row.origin === null
        ? null
        : {
            id: row.topupId,
            provider: row.provider,
            paymentId: row.paymentId,
            origin: row.origin,
            checkoutId: row.origin === 'auto' ? null : row.checkoutId,
          },
  }));
}

/** A refund or dispute of a payment that has a receipt, still without the correction that is due. */
export interface UncorrectedReturn {
  readonly provider: string;
  readonly returnId: string;
  /** Set if an operator recorded it, with this reference. */
  readonly recorded: { readonly reference: string | null } | undefined;
  readonly kind: 'refund' | 'dispute';
  readonly amountMicrocents: bigint;
  readonly at: number;
  /** `credit_note`: money was returned. `credit_note_reversal`: it came back, because the refund failed or the dispute was won. */
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
        .onRef('payment.id', '=', 'payment_return.paymentId'),
    )
    .leftJoin('receipt as note', (join) =>
      join
        .onRef('note.provider', '=', 'payment_return.provider')
        .onRef('note.returnId', '=', 'payment_return.id')
        .on('note.kind', '=', 'credit_note'),
    )
    .select(['payment_return.provider as by', 'payment_return.id as returnedId', 'payment_return.kind as returnKind'])
    .select(['payment_return.amountMicrocents', 'payment_return.at', 'payment_return.undoneAt']);
  const taken = await returns
    .innerJoin('receipt', 'receipt.transferId', 'payment.transferId')
    .where('payment_return.undoneAt', 'is', null)
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
        .onRef('reversal.returnId', '=', 'payment_return.id')
        .on('reversal.kind', '=', 'credit_note_reversal'),
    )
    .where('payment_return.undoneAt', 'is not', null)
    .where('reversal.id', 'is', null)
    .selectAll('receipt')
    .orderBy('payment_return.at')
    .limit(request.limit)
    .execute();
  const toDue =
    (due: UncorrectedReturn['due']) =>
    ({ by, returnedId, returnKind, amountMicrocents, at, undoneAt, ...corrects }: (typeof taken)[number]) => ({
      provider: by,
      returnId: returnedId,
      recorded: undefined,
      kind: returnKind,
      amountMicrocents,
      at: due === 'credit_note' ? at : (undoneAt ?? at),
      due,
      corrects,
    });
  return [
    ...taken.map(toDue('credit_note')),
    ...undone.map(toDue('credit_note_reversal')),
    ...(await uncorrectedRecorded(db, request)),
  ];
}

/** Returns recorded by an operator, which are never undone. */
async function uncorrectedRecorded(db: Db, request: { readonly limit: number }): Promise<readonly UncorrectedReturn[]> {
  const rows = await db
    .selectFrom('payment_return')
    .innerJoin('receipt', 'receipt.id', 'payment_return.paymentId')
    .innerJoin('transfer', 'transfer.idempotencyKey', 'payment_return.id')
    .leftJoin('receipt as note', (join) =>
      join
        .onRef('note.provider', '=', 'payment_return.provider')
        .onRef('note.returnId', '=', 'payment_return.id')
        .on('note.kind', '=', 'credit_note'),
    )
    .where('payment_return.provider', '=', recordedProvider)
    .where('note.id', 'is', null)
    .select(['payment_return.id as returnedId', 'payment_return.kind as returnKind'])
    .select(['payment_return.amountMicrocents', 'payment_return.at', 'transfer.reference'])
    .selectAll('receipt')
    .orderBy('payment_return.at')
    .limit(request.limit)
    .execute();
  return rows.map(({ returnedId, returnKind, amountMicrocents, at, reference, ...corrects }) => ({
    provider: recordedProvider,
    returnId: returnedId,
    recorded: { reference },
    kind: returnKind,
    amountMicrocents,
    at,
    due: 'credit_note',
    corrects,
  }));
}

/** How much of the payment of a receipt, given by id or number, has not been returned. undefined: the account has no such receipt. */
export async function unreturnedOf(
  db: Db,
  request: { readonly accountId: string; readonly id: string },
): Promise<{ readonly id: string; readonly number: string; readonly microcents: bigint } | undefined> {
  const receipt = await getReceipt(db, request);
  if (receipt?.kind !== 'receipt') return undefined;
  const { id, number, topupId, totalMicrocents } = receipt;
  const { sum } = await db
    .selectFrom('payment_return')
    .where('undoneAt', 'is', null)
    .where((is) =>
      is.or([
        ...(topupId === null ? [] : [is('topupId', '=', topupId)]),
        is.and([is('provider', '=', recordedProvider), is('paymentId', '=', id)]),
      ]),
    )
    .select((of) => of.fn.sum<bigint | null>('amountMicrocents').as('sum'))
    .executeTakeFirstOrThrow();
  return { id, number, microcents: totalMicrocents - (sum ?? 0n) };
}

/** Concurrent issuers may take the number intended for this one. */
const numberTriesMax = 50;

/**
 * Issues a receipt with the number that follows the year's last one, and records its event, in one transaction. false: this payment or
 * return already has one, and nothing was done.
 */
export async function issueReceipt(
  db: Db,
  request: { readonly receipt: NewReceipt; readonly year: number; readonly prefix: string; readonly at: number },
): Promise<boolean> {
  const { year, at } = request;
  const { noticeId, ...receipt } = request.receipt;
  for (let tries = 0; tries < numberTriesMax; tries++) {
    const outcome = await db.transaction().execute(async (transaction) => {
      let own = transaction.selectFrom('receipt').select('id');
      own =
        receipt.transferId === null
          ? own
              .where('provider', '=', receipt.provider)
              .where('returnId', '=', receipt.returnId)
              .where('kind', '=', receipt.kind)
          : own.where('transferId', '=', receipt.transferId);
      if ((await own.executeTakeFirst()) !== undefined) return false;
      const sequence = (await lastSequence(transaction, 'receipt', year)) + 1;
      const number = documentNumber(`${request.prefix}R`, year, sequence);
      const { numInsertedOrUpdatedRows } = await transaction
        .insertInto('receipt')
        .values({ ...receipt, number, year, sequence, issuedAt: at })
        .onConflict((conflict) => conflict.doNothing())
        .executeTakeFirst();
      // The number or the document is taken: the next try finds out which.
      if (numInsertedOrUpdatedRows !== 1n) return undefined;
      await addNotice(transaction, {
        id: noticeId,
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

/** Newest first; `after` is the id of the last one seen. Rejects with `not_found` if the account has no such receipt. */
export async function listReceipts(
  db: Db,
  request: { readonly accountId?: string; readonly after?: string; readonly limit: number },
): Promise<readonly Receipt[]> {
  return await listDocuments(db, 'receipt', request, 'Receipt not found.');
}

/** Finds one by its id or number, in one account or any. */
export async function getReceipt(
  db: Db,
  request: { readonly accountId?: string; readonly id: string },
): Promise<Row<'receipt'> | undefined> {
  return await getDocument(db, 'receipt', request);
}

/** Ids of the receipts of top-ups, by top-up; those without a receipt are omitted. */
export async function receiptsOfTopups(
  db: Db,
  request: { readonly accountId: string; readonly topupIds: readonly string[] },
): Promise<readonly { readonly topupId: string; readonly id: string }[]> {
  if (request.topupIds.length === 0) return [];
  const rows = await db
    .selectFrom('receipt')
    .select(['id', 'topupId'])
    .where('accountId', '=', request.accountId)
    .where('kind', '=', 'receipt')
    .where('topupId', 'in', request.topupIds)
    .execute();
  return rows.map(({ id, topupId }) => ({ id, topupId: topupId ?? '' }));
}
