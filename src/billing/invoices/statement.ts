import type { LedgerMovement, LedgerPayment, LedgerSpan } from '../../store/reports/ledger-span.ts';
import { taxWithin } from '../../tax/tax.ts';
import type { AppliedTax, TaxPayer } from '../../tax/tax.ts';

/** The seller, from the configuration. */
export interface Seller {
  readonly name: string;
  /** One entry per line. */
  readonly address: readonly string[];
  readonly taxId: string | null;
  readonly email: string | null;
}

/** The buyer, from the account's billing details. */
export interface Buyer {
  readonly name: string;
  readonly address: readonly string[];
  readonly taxId: string | null;
  /** Where invoices are mailed; null: they are not mailed. */
  readonly email: string | null;
}

/** The buyer and its tax status. */
export type Customer = Buyer & TaxPayer;

/** A tax as shown on a document. */
export interface ShownTax {
  readonly name: string;
  /** null: not a whole number per mille, or several rates combined. */
  readonly ratePerMille: number | null;
  readonly cents: number;
  /** A decimal string; null: several rates combined. Omitted: see `ratePerMille`. */
  readonly percent?: string | null;
  /** Omitted in documents from before customers could be taxed differently: `standard`. */
  readonly treatment?: AppliedTax['treatment'];
  readonly note?: string | null;
}

/** The content of a document, besides number and date; stored verbatim, so that it always prints the same. Amounts are strings. */
export interface InvoiceData {
  readonly version: 1;
  readonly currency: 'USD';
  readonly timeZone: string;
  readonly seller: Seller | null;
  readonly buyer: Buyer;
  readonly account: { readonly id: string; readonly name: string };
  /** In microcents; for a credit note, the amount returned. */
  readonly totalMicrocents: string;
  /** The total, rounded half up: the only place where cents are computed. */
  readonly totalCents: number;
  /** The tax included in `totalCents`; null: none is shown. */
  readonly tax: ShownTax | null;
  /**
   * The part of the total paid by credit without a receipt: its sale is on this document, and `tax` is the tax on it. The sale of all other
   * credit is on its receipt. Omitted in documents from before receipts existed: all of it.
   */
  readonly soldMicrocents?: string;
  readonly statement: StatementData | null;
  readonly creditNote: CreditNoteData | null;
}

export interface StatementData {
  readonly openingMicrocents: string;
  /** Recorded for earlier periods after they had been closed; nearly always 0. */
  readonly earlierMicrocents: string;
  readonly lines: readonly StatementLine[];
  readonly usageMicrocents: string;
  /** Refunds of requests of this same period. */
  readonly refundsMicrocents: string;
  readonly movements: readonly { readonly name: string; readonly count: number; readonly microcents: string }[];
  readonly payments: readonly {
    readonly at: number;
    readonly microcents: string;
    readonly reference: string | null;
    readonly receipt?: string | null;
    readonly method?: string | null;
  }[];
  readonly closingMicrocents: string;
  /**
   * At most this much of the closing balance was credit without a receipt. Omitted in documents from before receipts existed: all of it.
   */
  readonly receiptlessMicrocents?: string;
}

/** Prices are microcents per million tokens, as strings; null in the line that sums up the rest. */
export interface StatementLine {
  readonly model: string;
  readonly plan: string | null;
  /** The service tier that served; null: several. Omitted in documents from before there were any, and for `default`. */
  readonly tier?: string | null;
  /** What these prices are of the usual ones because of the tier, in ten-thousandths. Omitted for all of it, and where it was not recorded. */
  readonly priceMultiple?: number;
  readonly inputPrice: string | null;
  readonly outputPrice: string | null;
  readonly cacheReadPrice: string | null;
  readonly requests: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly microcents: string;
}

export interface CreditNoteData {
  /** The statement that it corrects. */
  readonly corrects: { readonly id: string; readonly number: string; readonly month: string };
  /** The first `refundsShownMax` of them. */
  readonly refunds: readonly { readonly at: number; readonly request: string | null; readonly microcents: string }[];
  readonly count: number;
}

/** The parties, in both kinds of document. */
export interface Parties {
  readonly timeZone: string;
  readonly seller: Seller | null;
  readonly buyer: Buyer;
  readonly account: { readonly id: string; readonly name: string };
  readonly tax: AppliedTax | null;
}

export const linesMax = 500;
export const refundsShownMax = 500;

/** Customer-facing names of balance movements other than requests. */
const movementNames: Readonly<Record<LedgerMovement['kind'], string>> = {
  topup: 'Payments',
  grant: 'Promotional credit',
  refund: 'Refunds',
  adjust: 'Corrections',
  chargeback: 'Payments taken back by the bank',
  expiry: 'Promotional credit that ended',
  usage_closed: 'Usage of closed accounts',
};

/** Returns the name of a movement; returned payments, and returns that were undone, are named separately. */
function nameOf({ kind, ofRevenue, microcents }: Pick<LedgerMovement, 'kind' | 'ofRevenue' | 'microcents'>): string {
  if (kind === 'refund' && !ofRevenue) return microcents < 0n ? 'Payments returned' : 'Returns of payments that failed';
  if (kind === 'chargeback' && microcents > 0n) return 'Payments given back by the bank';
  return movementNames[kind];
}

export interface StatementFigures {
  readonly openingMicrocents: bigint;
  readonly earlierMicrocents: bigint;
  /** For requests of this same period. */
  readonly refundsMicrocents: bigint;
  /** Credit without a receipt: the amount left at the beginning, plus refunds that turned back into such credit. */
  readonly receiptlessMicrocents: bigint;
}

/** Builds a monthly statement. It charges the cost of requests, less the refunds of the same requests. */
export function statementData(span: LedgerSpan, figures: StatementFigures, parties: Parties): InvoiceData {
  const usage = sum(span.usage.map((line) => line.costMicrocents));
  const moved = sum(span.movements.map((movement) => movement.microcents));
  const { openingMicrocents, earlierMicrocents, refundsMicrocents } = figures;
  const closing = openingMicrocents + earlierMicrocents - usage + moved;
  const charged = usage - refundsMicrocents;
  // Older credit is used first.
  const receiptless = figures.receiptlessMicrocents + span.receiptlessMicrocents;
  const sold = least(most(charged, 0n), receiptless);
  return {
    ...frame(charged, sold, parties),
    statement: {
      openingMicrocents: String(openingMicrocents),
      earlierMicrocents: String(earlierMicrocents),
      lines: linesOf(span),
      usageMicrocents: String(usage),
      refundsMicrocents: String(refundsMicrocents),
      movements: span.movements.map(({ kind, ofRevenue, count, microcents }) => ({
        name: nameOf({ kind, ofRevenue, microcents }),
        count,
        microcents: String(microcents),
      })),
      payments: span.payments.map(({ at, microcents, reference, receipt, method }: LedgerPayment) => ({
        at,
        microcents: String(microcents),
        reference,
        receipt,
        method,
      })),
      closingMicrocents: String(closing),
      receiptlessMicrocents: String(least(receiptless - sold, most(closing, 0n))),
    },
    creditNote: null,
  };
}

/** The credit without a receipt at the end of a statement. */
export function receiptlessAfter({ statement }: InvoiceData): bigint {
  if (statement === null) return 0n;
  return most(BigInt(statement.receiptlessMicrocents ?? statement.closingMicrocents), 0n);
}

/** The part of a refunded amount that was sold on the statement that charged it rather than on a receipt. */
export const soldOf = (statement: InvoiceData, microcents: bigint): bigint =>
  least(microcents, BigInt(statement.soldMicrocents ?? statement.totalMicrocents));

/** Corrects a statement by the amounts refunded after its period for requests that are on it. */
export function creditNoteData(
  corrects: CreditNoteData['corrects'],
  refunds: LedgerSpan['refunds'],
  soldMicrocents: bigint,
  parties: Parties,
): InvoiceData {
  return {
    ...frame(sum(refunds.map((refund) => refund.microcents)), soldMicrocents, parties),
    statement: null,
    creditNote: {
      corrects,
      refunds: refunds
        .slice(0, refundsShownMax)
        .map(({ at, publicId, microcents }) => ({ at, request: publicId, microcents: String(microcents) })),
      count: refunds.length,
    },
  };
}

function frame(totalMicrocents: bigint, sold: bigint, { timeZone, seller, buyer, account, tax }: Parties) {
  const totalCents = roundedCents(totalMicrocents);
  return {
    version: 1,
    currency: 'USD',
    timeZone,
    seller,
    buyer,
    account,
    totalMicrocents: String(totalMicrocents),
    totalCents,
    tax: tax === null || sold === 0n ? null : { ...tax, cents: taxWithin(roundedCents(sold), tax.ratePerMille) },
    soldMicrocents: String(sold),
  } as const;
}

/** The largest model first, its tiers and prices together; lines beyond the limit are summed up in one. */
function linesOf(span: LedgerSpan): readonly StatementLine[] {
  const ofModels = new Map<string, bigint>();
  for (const { modelId, costMicrocents } of span.usage)
    ofModels.set(modelId, (ofModels.get(modelId) ?? 0n) + costMicrocents);
  const largestFirst = (a: bigint, b: bigint): number => (a > b ? -1 : a < b ? 1 : 0);
  const sorted = [...span.usage].sort(
    (a, b) =>
      largestFirst(ofModels.get(a.modelId)!, ofModels.get(b.modelId)!) ||
      (a.modelId < b.modelId ? -1 : a.modelId > b.modelId ? 1 : 0) ||
      largestFirst(a.costMicrocents, b.costMicrocents) ||
      (a.tier < b.tier ? -1 : a.tier > b.tier ? 1 : 0) ||
      Number(a.inputPrice - b.inputPrice),
  );
  const lines = sorted.slice(0, linesMax).map((line): StatementLine => ({
    model: line.modelId,
    plan: line.plan,
    ...(line.tier !== 'default' && { tier: line.tier }),
    ...(line.priceMultiple !== null && { priceMultiple: line.priceMultiple }),
    inputPrice: String(line.inputPrice),
    outputPrice: String(line.outputPrice),
    cacheReadPrice: String(line.cacheReadPrice),
    requests: line.requests,
    promptTokens: line.promptTokens,
    cachedTokens: line.cachedTokens,
    completionTokens: line.completionTokens,
    microcents: String(line.costMicrocents),
  }));
  const rest = sorted.slice(linesMax);
  if (rest.length === 0) return lines;
  const total = (of: (line: (typeof rest)[number]) => number): number => rest.reduce((all, line) => all + of(line), 0);
  return [
    ...lines,
    {
      model: `${rest.length} further models and prices`,
      plan: null,
      tier: null,
      inputPrice: null,
      outputPrice: null,
      cacheReadPrice: null,
      requests: total((line) => line.requests),
      promptTokens: total((line) => line.promptTokens),
      cachedTokens: total((line) => line.cachedTokens),
      completionTokens: total((line) => line.completionTokens),
      microcents: String(sum(rest.map((line) => line.costMicrocents))),
    },
  ];
}

const microcentsPerCent = 1_000_000n;

/** Rounds half up; below zero, half away from zero. */
export function roundedCents(microcents: bigint): number {
  const size = microcents < 0n ? -microcents : microcents;
  const cents = Number((size + microcentsPerCent / 2n) / microcentsPerCent);
  return microcents < 0n ? -cents : cents;
}

const least = (one: bigint, other: bigint): bigint => (one < other ? one : other);
const most = (one: bigint, other: bigint): bigint => (one > other ? one : other);

export const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((all, one) => all + one, 0n);
