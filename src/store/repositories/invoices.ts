/** Statements of accounts and the credit notes that correct them: until when the books are closed, and the documents issued. */
import type { Kysely } from 'kysely';
import { addNotice, nobody } from './notices.ts';
import { documentNumber, getDocument, lastSequence, listDocuments } from './numbered-documents.ts';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

/** An invoice as issued; its row has further columns. */
export type Invoice = Omit<Row<'invoice'>, 'year' | 'sequence'>;

/** A document to be issued; the transaction that creates it assigns its number. */
export type NewInvoice = Omit<Invoice, 'accountId' | 'number' | 'issuedAt'> & {
  /** Id of its event. */
  readonly noticeId: string;
};

export interface OpenPeriod {
  readonly accountId: string;
  readonly name: string;
  readonly createdAt: number;
  /** Until when the books have been closed; null: never. */
  readonly closedUntil: number | null;
}

/** Customers whose books are not closed beyond a time, by id. */
export async function listOpenPeriods(
  db: Db,
  request: {
    readonly closedBefore: number;
    readonly after?: string;
    readonly limit: number;
    readonly accountId?: string;
  },
): Promise<readonly OpenPeriod[]> {
  let query = db
    .selectFrom('account')
    .leftJoin('closed_until', 'closed_until.accountId', 'account.id')
    .where('account.kind', '=', 0)
    .where('account.id', '>', request.after ?? '')
    .where((is) => is.or([is('closed_until.at', 'is', null), is('closed_until.at', '<=', request.closedBefore)]))
    .select(['account.id as accountId', 'account.name', 'account.createdAt', 'closed_until.at as closedUntil'])
    .orderBy('account.id')
    .limit(request.limit);
  if (request.accountId !== undefined) query = query.where('account.id', '=', request.accountId);
  return await query.execute();
}

/**
 * Closes the books of an account until a time and issues the due documents, in one transaction: the numbers follow the year's last one
 * without a gap, and their events are recorded. false: they were closed meanwhile, and nothing was done.
 */
export async function closePeriod(
  db: Db,
  request: {
    readonly accountId: string;
    /** Its value when the documents were prepared. */
    readonly closedUntil: number | null;
    readonly until: number;
    readonly year: number;
    readonly prefix: string;
    readonly at: number;
    readonly invoices: readonly NewInvoice[];
  },
): Promise<boolean> {
  const { accountId, closedUntil, until, year, at } = request;
  return await db.transaction().execute(async (transaction) => {
    if (closedUntil === null) {
      const { numInsertedOrUpdatedRows } = await transaction
        .insertInto('closed_until')
        .values({ accountId, at: until })
        .onConflict((conflict) => conflict.doNothing())
        .executeTakeFirst();
      if (numInsertedOrUpdatedRows !== 1n) return false;
    } else {
      const { numUpdatedRows } = await transaction
        .updateTable('closed_until')
        .set({ at: until })
        .where('accountId', '=', accountId)
        .where('at', '=', closedUntil)
        .executeTakeFirst();
      if (numUpdatedRows !== 1n) return false;
    }
    if (request.invoices.length === 0) return true;
    let sequence = await lastSequence(transaction, 'invoice', year);
    for (const { noticeId, ...invoice } of request.invoices) {
      sequence += 1;
      const number = documentNumber(request.prefix, year, sequence);
      await transaction
        .insertInto('invoice')
        .values({ ...invoice, accountId, number, year, sequence, issuedAt: at })
        .execute();
      await addNotice(transaction, {
        id: noticeId,
        accountId,
        type: 'invoice.issued',
        data: JSON.stringify({ invoice_id: invoice.id, number, kind: invoice.kind, month: invoice.month }),
        recipients: nobody,
        isWebhook: true,
        at,
      });
    }
    return true;
  });
}

/** Newest first; `after` is the id of the last one seen. Rejects with `not_found` if the account has no such document. */
export async function listInvoices(
  db: Db,
  request: { readonly accountId?: string; readonly after?: string; readonly limit: number },
): Promise<readonly Invoice[]> {
  return await listDocuments(db, 'invoice', request, 'Invoice not found.');
}

/** Finds one by its id or number, in one account or any. */
export async function getInvoice(
  db: Db,
  request: { readonly accountId?: string; readonly id: string },
): Promise<Row<'invoice'> | undefined> {
  return await getDocument(db, 'invoice', request);
}

/** The statement of an account that covers a time. */
export async function statementAt(
  db: Db,
  { accountId, at }: { readonly accountId: string; readonly at: number },
): Promise<Invoice | undefined> {
  return await db
    .selectFrom('invoice')
    .selectAll()
    .where('accountId', '=', accountId)
    .where('kind', '=', 'statement')
    .where('periodStart', '<=', at)
    .where('periodEnd', '>', at)
    .executeTakeFirst();
}

/** undefined: the account has no statement. */
export async function lastStatement(
  db: Db,
  { accountId }: { readonly accountId: string },
): Promise<Invoice | undefined> {
  return await db
    .selectFrom('invoice')
    .selectAll()
    .where('accountId', '=', accountId)
    .where('kind', '=', 'statement')
    .orderBy('periodEnd', 'desc')
    .limit(1)
    .executeTakeFirst();
}
