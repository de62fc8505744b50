/** Statements of accounts: the ledger's figures for a period, and the documents issued. */
import { sql, type Kysely, type Selectable } from 'kysely';
import type { Database, InvoiceKind } from '../database.ts';
import { systemAccounts } from '../ledger.ts';
import type { TransferKind } from '../ledger.ts';
import { ranAt } from '../migrations/migrate.ts';
import { addNotice, nobody } from './notices.ts';
import { receiptsSince } from './receipts.ts';
import { rowsOn } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';
import { inMonthsOf } from '../reports/usage-months.ts';

type Db = Kysely<Database>;

/** Requests of one model at the same prices, in microcents per million tokens. */
export interface LedgerUsage {
  readonly modelId: string;
  /** The plan that covered them; null: paid from credit. */
  readonly plan: string | null;
  readonly inputPrice: bigint;
  readonly outputPrice: bigint;
  readonly cacheReadPrice: bigint;
  readonly requests: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly costMicrocents: bigint;
}

/** Transfers of one kind and direction. */
export interface LedgerMovement {
  readonly kind: TransferKind;
  /** Whether the other side is the operator's revenue: refunds of requests, corrections. */
  readonly ofRevenue: boolean;
  readonly count: number;
  /** Below 0 when it was taken from the account. */
  readonly microcents: bigint;
}

export interface LedgerPayment {
  readonly at: number;
  readonly microcents: bigint;
  readonly reference: string | null;
  /** Number of its receipt, and how it was paid; null: no receipt, or none yet. */
  readonly receipt: string | null;
  readonly method: string | null;
}

/** A refund of a request. */
export interface LedgerRefund {
  readonly at: number;
  readonly microcents: bigint;
  /** When the request ended; null: the refund names no known request. */
  readonly requestEndedAt: number | null;
  readonly publicId: string | null;
}

/** Everything that moved the balance of an account in a period. */
export interface LedgerSpan {
  readonly usage: readonly LedgerUsage[];
  readonly movements: readonly LedgerMovement[];
  /** Payments, oldest first; the first `paymentsMax` of them. */
  readonly payments: readonly LedgerPayment[];
  /** The sum of the payments from before payments got receipts. */
  readonly receiptlessMicrocents: bigint;
  /** Refunds of requests only, oldest first; all of them. */
  readonly refunds: readonly LedgerRefund[];
}

export const paymentsMax = 200;
const refundsAtOnce = 500;

interface Span {
  readonly accountId: string;
  /** Inclusive. */
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

/** The ledger's figures of an account between two times. Exact once nothing more is recorded in that span. */
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
  const rows = await db
    .selectFrom('usage')
    .where('account_id', '=', accountId)
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where(inMonthsOf(db, { from, to }))
    // What was not charged is on no bill, except what a plan has covered.
    .where((is) => is.or([is('cost', '>', 0n), is('plan', 'is not', null)]))
    .select(['model_id', 'plan', 'input_price', 'output_price', 'cache_read_price'])
    .select([
      sql<bigint>`count(*)`.as('requests'),
      sql<bigint>`sum(prompt_tokens)`.as('prompt_tokens'),
      sql<bigint>`sum(cached_tokens)`.as('cached_tokens'),
      sql<bigint>`sum(completion_tokens)`.as('completion_tokens'),
      sql<bigint>`sum(cost)`.as('cost'),
    ])
    .groupBy(['model_id', 'plan', 'input_price', 'output_price', 'cache_read_price'])
    .execute();
  return rows.map((row) => ({
    modelId: row.model_id,
    plan: row.plan,
    inputPrice: row.input_price,
    outputPrice: row.output_price,
    cacheReadPrice: row.cache_read_price,
    requests: Number(row.requests),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    costMicrocents: row.cost,
  }));
}

async function movements(db: Db, { accountId, from, to }: Span): Promise<readonly LedgerMovement[]> {
  const side = async (own: 'debit_account' | 'credit_account', other: 'debit_account' | 'credit_account') => {
    const rows = await db
      .selectFrom('transfer')
      .where(own, '=', accountId)
      .where('at', '>=', BigInt(from))
      .where('at', '<', BigInt(to))
      .select(['kind', other])
      .select([sql<bigint>`count(*)`.as('count'), sql<bigint>`sum(amount)`.as('amount')])
      .groupBy(['kind', other])
      .execute();
    return rows.map((row): LedgerMovement => ({
      kind: row.kind as TransferKind,
      ofRevenue: row[other] === systemAccounts.revenue,
      count: Number(row.count),
      microcents: own === 'credit_account' ? row.amount : -row.amount,
    }));
  };
  const all = [...(await side('credit_account', 'debit_account')), ...(await side('debit_account', 'credit_account'))];
  return all.sort((a, b) => compare(a.kind, b.kind) || compare(b.microcents, a.microcents));
}

const compare = <Value extends string | bigint>(a: Value, b: Value): number => (a < b ? -1 : a > b ? 1 : 0);

async function payments(db: Db, { accountId, from, to }: Span): Promise<readonly LedgerPayment[]> {
  const rows = await db
    .selectFrom('transfer')
    .leftJoin('receipt', 'receipt.transfer_id', 'transfer.id')
    .where('transfer.credit_account', '=', accountId)
    .where('transfer.kind', '=', 'topup')
    .where('transfer.at', '>=', BigInt(from))
    .where('transfer.at', '<', BigInt(to))
    .select(['transfer.at', 'transfer.amount', 'transfer.reference', 'receipt.number', 'receipt.method'])
    .orderBy('transfer.at')
    .orderBy('transfer.id')
    .limit(paymentsMax)
    .execute();
  return rows.map((row) => ({
    at: Number(row.at),
    microcents: row.amount,
    reference: row.reference,
    receipt: row.number,
    method: row.method,
  }));
}

async function receiptless(db: Db, { accountId, from, to }: Span): Promise<bigint> {
  const row = await db
    .selectFrom('transfer')
    .where('credit_account', '=', accountId)
    .where('kind', '=', 'topup')
    .where('at', '>=', BigInt(from))
    .where('at', '<', BigInt(Math.min(to, await receiptsSince(db, {}))))
    .select((of) => of.fn.sum<bigint | null>('amount').as('amount'))
    .executeTakeFirstOrThrow();
  return row.amount ?? 0n;
}

/** A refund names its request in its idempotency key (`accounts/operations/credit.ts`, `billing/repair.ts`). */
async function refunds(db: Db, { accountId, from, to }: Span): Promise<readonly LedgerRefund[]> {
  const found: LedgerRefund[] = [];
  let last: { readonly at: bigint; readonly id: Uint8Array } | undefined;
  for (;;) {
    let query = db
      .selectFrom('transfer')
      .where('credit_account', '=', accountId)
      .where('debit_account', '=', systemAccounts.revenue)
      .where('kind', '=', 'refund')
      .where('at', '>=', BigInt(from))
      .where('at', '<', BigInt(to))
      .select(['id', 'at', 'amount', 'idempotency_key'])
      .orderBy('at')
      .orderBy('id')
      .limit(refundsAtOnce);
    if (last !== undefined) {
      const { at, id } = last;
      query = query.where((is) => is(is.refTuple('at', 'id'), '>', is.tuple(at, id)));
    }
    const rows = await query.execute();
    const ids = rows.map((row) => requestOf(row.idempotency_key));
    const requests = await requestsOf(
      db,
      accountId,
      ids.filter((id) => id !== undefined),
    );
    for (const [index, row] of rows.entries()) {
      const id = ids[index];
      const request = id === undefined ? undefined : requests.get(Buffer.from(id).toString('hex'));
      found.push({
        at: Number(row.at),
        microcents: row.amount,
        requestEndedAt: request?.endedAt ?? null,
        publicId: request?.publicId ?? null,
      });
    }
    const end = rows.at(-1);
    if (rows.length < refundsAtOnce || end === undefined) return found;
    last = { at: end.at, id: Uint8Array.from(end.id) };
  }
}

function requestOf(idempotencyKey: string): Uint8Array | undefined {
  const [, hex] = /^refund:([0-9a-f]{32})$/.exec(idempotencyKey) ?? [];
  return hex === undefined ? undefined : Uint8Array.from(Buffer.from(hex, 'hex'));
}

async function requestsOf(db: Db, accountId: string, ids: readonly Uint8Array[]) {
  if (ids.length === 0) return new Map<string, { readonly endedAt: number; readonly publicId: string }>();
  const rows = await db
    .selectFrom('usage')
    .where('request_id', 'in', ids)
    .where('account_id', '=', accountId)
    .select(['request_id', 'ended_at', 'public_id'])
    .execute();
  return new Map(
    rows.map((row) => [
      Buffer.from(row.request_id).toString('hex'),
      { endedAt: Number(row.ended_at), publicId: row.public_id },
    ]),
  );
}

/** Credits less debits of an account before a time. The cost of its requests is not included. */
export async function transferredBefore(
  db: Db,
  { accountId, before }: { readonly accountId: string; readonly before: number },
): Promise<bigint> {
  const side = async (own: 'debit_account' | 'credit_account'): Promise<bigint> => {
    const row = await db
      .selectFrom('transfer')
      .where(own, '=', accountId)
      .where('at', '<', BigInt(before))
      .select((of) => of.fn.sum<bigint | null>('amount').as('amount'))
      .executeTakeFirstOrThrow();
    return row.amount ?? 0n;
  };
  return (await side('credit_account')) - (await side('debit_account'));
}

/** Since when this database has invoices: when it was created, or upgraded from a version without them. */
export async function invoicesSince(db: Db, _request: object): Promise<number> {
  return (await ranAt(db, '021-alerts-and-invoices')) ?? 0;
}

export interface OpenPeriod {
  readonly accountId: string;
  readonly name: string;
  readonly createdAt: number;
  /** Until when they have been closed; null: never. */
  readonly closedUntil: number | null;
}

/** Customers whose books have not been closed after a time, by id. */
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
    .leftJoin('closed_until', 'closed_until.account_id', 'account.id')
    .where('account.kind', '=', 0n)
    .where('account.id', '>', request.after ?? '')
    .where((is) =>
      is.or([is('closed_until.at', 'is', null), is('closed_until.at', '<=', BigInt(request.closedBefore))]),
    )
    .select(['account.id', 'account.name', 'account.created_at', 'closed_until.at'])
    .orderBy('account.id')
    .limit(request.limit);
  if (request.accountId !== undefined) query = query.where('account.id', '=', request.accountId);
  return (await query.execute()).map((row) => ({
    accountId: row.id,
    name: row.name,
    createdAt: Number(row.created_at),
    closedUntil: row.at === null ? null : Number(row.at),
  }));
}

/** A document to be issued; the transaction that makes it gives it its number. */
export interface NewInvoice {
  readonly id: string;
  readonly kind: InvoiceKind;
  readonly month: string;
  /** Id of the statement that it corrects; empty: none. */
  readonly corrects: string;
  readonly periodStart: number;
  readonly periodEnd: number;
  readonly totalMicrocents: bigint;
  readonly closingMicrocents: bigint;
  /** JSON: all that it says, except number and date. */
  readonly data: string;
  /** Id of its event; null: there is no notification. */
  readonly noticeId: string | null;
}

/**
 * Closes the books of an account until a time and issues the due documents, in one transaction: the numbers follow the last one
 * of the year without a gap, and their events are noted. False: they were closed meanwhile, and nothing was done.
 */
export async function closePeriod(
  db: Db,
  request: {
    readonly accountId: string;
    /** Its value when the documents were made. */
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
        .values({ account_id: accountId, at: until })
        .onConflict((conflict) => conflict.doNothing())
        .executeTakeFirst();
      if (numInsertedOrUpdatedRows !== 1n) return false;
    } else {
      const { numUpdatedRows } = await transaction
        .updateTable('closed_until')
        .set({ at: until })
        .where('account_id', '=', accountId)
        .where('at', '=', BigInt(closedUntil))
        .executeTakeFirst();
      if (numUpdatedRows !== 1n) return false;
    }
    if (request.invoices.length === 0) return true;
    const last = await transaction
      .selectFrom('invoice')
      .where('year', '=', BigInt(year))
      .select((of) => of.fn.max('sequence').as('sequence'))
      .executeTakeFirst();
    let sequence = Number(last?.sequence ?? 0n);
    for (const invoice of request.invoices) {
      sequence += 1;
      const number = `${request.prefix}${year}-${String(sequence).padStart(6, '0')}`;
      await transaction
        .insertInto('invoice')
        .values({
          id: invoice.id,
          account_id: accountId,
          kind: invoice.kind,
          number,
          year,
          sequence,
          month: invoice.month,
          corrects: invoice.corrects,
          period_start: invoice.periodStart,
          period_end: invoice.periodEnd,
          issued_at: at,
          total: invoice.totalMicrocents,
          closing: invoice.closingMicrocents,
          data: invoice.data,
        })
        .execute();
      if (invoice.noticeId === null) continue;
      await addNotice(rowsOn(transaction), {
        id: invoice.noticeId,
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

export interface Invoice {
  readonly id: string;
  readonly accountId: string;
  readonly kind: InvoiceKind;
  readonly number: string;
  readonly month: string;
  /** Id of the statement that it corrects; empty: none. */
  readonly corrects: string;
  readonly periodStart: number;
  readonly periodEnd: number;
  readonly issuedAt: number;
  readonly totalMicrocents: bigint;
  readonly closingMicrocents: bigint;
  readonly data: string;
}

/** Newest first; `after` is the id of the last one seen. Rejects as `not_found` when the account has no such document. */
export async function listInvoices(
  db: Db,
  request: { readonly accountId?: string; readonly after?: string; readonly limit: number },
): Promise<readonly Invoice[]> {
  let query = db
    .selectFrom('invoice')
    .selectAll()
    .orderBy('year', 'desc')
    .orderBy('sequence', 'desc')
    .limit(request.limit);
  if (request.accountId !== undefined) query = query.where('account_id', '=', request.accountId);
  if (request.after !== undefined) {
    const after = await getInvoice(db, { ...request, id: request.after });
    if (after === undefined) throw new StoreError('not_found', 'Invoice not found.');
    const { year, sequence } = after;
    query = query.where((is) => is(is.refTuple('year', 'sequence'), '<', is.tuple(BigInt(year), BigInt(sequence))));
  }
  return (await query.execute()).map(toInvoice);
}

/** By its id or its number; of one account, or of any. */
export async function getInvoice(
  db: Db,
  request: { readonly accountId?: string; readonly id: string },
): Promise<(Invoice & { readonly year: number; readonly sequence: number }) | undefined> {
  let query = db
    .selectFrom('invoice')
    .selectAll()
    .where((is) => is.or([is('id', '=', request.id), is('number', '=', request.id)]));
  if (request.accountId !== undefined) query = query.where('account_id', '=', request.accountId);
  const row = await query.executeTakeFirst();
  return row === undefined ? undefined : { ...toInvoice(row), year: Number(row.year), sequence: Number(row.sequence) };
}

/** The statement of an account that a time falls into. */
export async function statementAt(
  db: Db,
  { accountId, at }: { readonly accountId: string; readonly at: number },
): Promise<Invoice | undefined> {
  const row = await db
    .selectFrom('invoice')
    .selectAll()
    .where('account_id', '=', accountId)
    .where('kind', '=', 'statement')
    .where('period_start', '<=', BigInt(at))
    .where('period_end', '>', BigInt(at))
    .executeTakeFirst();
  return row === undefined ? undefined : toInvoice(row);
}

/** Undefined: the account has none. */
export async function lastStatement(
  db: Db,
  { accountId }: { readonly accountId: string },
): Promise<Invoice | undefined> {
  const row = await db
    .selectFrom('invoice')
    .where('account_id', '=', accountId)
    .where('kind', '=', 'statement')
    .orderBy('period_end', 'desc')
    .selectAll()
    .limit(1)
    .executeTakeFirst();
  return row === undefined ? undefined : toInvoice(row);
}

const toInvoice = (row: Selectable<Database['invoice']>): Invoice => ({
  id: row.id,
  accountId: row.account_id,
  kind: row.kind,
  number: row.number,
  month: row.month,
  corrects: row.corrects,
  periodStart: Number(row.period_start),
  periodEnd: Number(row.period_end),
  issuedAt: Number(row.issued_at),
  totalMicrocents: row.total,
  closingMicrocents: row.closing,
  data: row.data,
});
