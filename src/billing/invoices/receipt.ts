import { dateText } from '../../platform/calendar/months.ts';
import type { Receipt } from '../../store/repositories/receipts.ts';
import { taxFor, taxWithin } from '../../tax/tax.ts';
import type { TaxRules, TaxStatus } from '../../tax/tax.ts';
import { noteOf, partiesOf, present, totalsOf } from './invoice-document.ts';
import type { Paper } from './paper.ts';
import { roundedCents } from './statement.ts';
import type { Customer, Seller, ShownTax } from './statement.ts';

/** The content of a receipt, besides its number and date; stored verbatim, so that it always prints the same. */
export interface ReceiptData {
  readonly version: 1;
  readonly currency: 'USD';
  readonly timeZone: string;
  readonly seller: Seller | null;
  readonly buyer: Customer;
  readonly account: { readonly id: string; readonly name: string };
  /** When it was paid or returned. */
  readonly paidAt: number;
  /** The payment method, in words. */
  readonly method: string;
  /** `auto`: by automatic top-up; `recorded`: entered by an operator. */
  readonly origin: 'checkout' | 'auto' | 'recorded';
  readonly topupId: string | null;
  /** The provider's id for the payment, or for its return. */
  readonly paymentId: string | null;
  readonly reference: string | null;
  /** A decimal string. */
  readonly totalMicrocents: string;
  /** Rounded half up: the only place where cents are computed. */
  readonly totalCents: number;
  /** The tax included in `totalCents`; null: none is shown. */
  readonly tax: ShownTax | null;
  /** What a credit note or its reversal corrects. */
  readonly corrects: { readonly number: string; readonly why: 'refund' | 'dispute' } | null;
}

/** How the payment was made, according to the provider. */
export interface PaidBy {
  readonly type: string;
  readonly brand: string | null;
  readonly last4: string | null;
}

/** Tax that a provider has computed within the amount. */
export interface ComputedTax {
  readonly cents: number;
  readonly name: string | null;
  readonly percent: string | null;
  readonly treatment: TaxStatus;
}

/** The tax of a payment: the provider's figure, or else what the rules say for the customer. */
export function taxOfPayment(
  totalCents: number,
  computed: ComputedTax | undefined,
  rules: TaxRules,
  customer: Customer,
): ShownTax | null {
  if (computed === undefined) {
    const applied = taxFor(rules, customer);
    if (applied === null) return null;
    const { name, ratePerMille, treatment, note } = applied;
    const percent = String(ratePerMille / 10);
    return { name, ratePerMille, percent, cents: taxWithin(totalCents, ratePerMille), treatment, note };
  }
  const { cents, percent, treatment } = computed;
  const perMille = percent === null ? NaN : Number(percent) * 10;
  const { exempt, reverseCharge } = rules.notes;
  return {
    name: computed.name ?? rules.rate?.name ?? 'Tax',
    ratePerMille: Number.isInteger(perMille) ? perMille : null,
    percent,
    cents,
    treatment,
    note: treatment === 'exempt' ? exempt : treatment === 'reverse_charge' ? reverseCharge : null,
  };
}

/**
 * The tax on a returned part of a payment: its share of the receipt's tax, rounded half up. The sum over several parts may differ from the
 * whole by a cent per part; a return in one piece does not.
 */
export function taxOfPart(tax: ShownTax | null, partCents: number, totalCents: number): ShownTax | null {
  if (tax === null) return null;
  const [cents, part, total] = [BigInt(tax.cents), BigInt(partCents), BigInt(totalCents)];
  return { ...tax, cents: total === 0n ? 0 : Number((2n * cents * part + total) / (2n * total)) };
}

const brands: ReadonlyMap<string, string> = new Map(
  Object.entries({
    visa: 'Visa',
    mastercard: 'Mastercard',
    amex: 'American Express',
    discover: 'Discover',
    diners: 'Diners Club',
    jcb: 'JCB',
    unionpay: 'UnionPay',
  }),
);
const methods: ReadonlyMap<string, string> = new Map(
  Object.entries({
    card: 'Card',
    demo: 'Demonstration: no money has moved',
    sepa_debit: 'SEPA direct debit',
    us_bank_account: 'US bank account',
    link: 'Link',
    cashapp: 'Cash App Pay',
    paypal: 'PayPal',
  }),
);
/** The seller recorded it; no provider handled the payment. */
export const recordedMethod = 'Recorded by the seller';

/** `Visa ending in 4242`. The provider's text is printed only if it has a known form. */
export function methodText({ type, brand, last4 }: PaidBy): string {
  const name = brand === null ? undefined : (brands.get(brand) ?? (type === 'card' ? 'Card' : undefined));
  const text = name ?? methods.get(type) ?? (/^[a-z][a-z0-9_]{0,39}$/.test(type) ? sentence(type) : 'Other');
  return last4 !== null && /^\d{4}$/.test(last4) ? `${text} ending in ${last4}` : text;
}

const sentence = (word: string): string => `${word.charAt(0).toUpperCase()}${word.slice(1).replaceAll('_', ' ')}`;

export const totalCentsOf = (microcents: bigint): number => roundedCents(microcents);

export const readReceipt = ({ data }: Pick<Receipt, 'data'>): ReceiptData => JSON.parse(data) as ReceiptData;

export const receiptNames: Readonly<Record<Receipt['kind'], string>> = {
  receipt: 'Receipt',
  credit_note: 'Credit note',
  credit_note_reversal: 'Reversal of a credit note',
};

/** Renders an issued receipt from the data stored with it and nothing else. */
export function receiptPaper(receipt: Receipt): Paper {
  const data = readReceipt(receipt);
  const { timeZone, seller, account, tax, corrects, origin } = data;
  const day = (ms: number): string => dateText(ms, timeZone);
  const isReceipt = receipt.kind === 'receipt';
  const what =
    receipt.kind === 'receipt'
      ? origin === 'auto'
        ? 'Credit, by automatic top-up'
        : 'Credit'
      : receipt.kind === 'credit_note'
        ? corrects?.why === 'dispute'
          ? 'Payment taken back by the bank'
          : 'Payment refunded'
        : corrects?.why === 'dispute'
          ? 'Payment given back by the bank'
          : 'Refund that has failed';
  return {
    title: `${receiptNames[receipt.kind]} ${receipt.number}`,
    number: receipt.number,
    issuedAt: receipt.issuedAt,
    author: seller?.name ?? null,
    facts: [
      ['Number', receipt.number],
      ['Date', day(receipt.issuedAt)],
      ...(corrects === null ? [] : [['Corrects', corrects.number] as const]),
      [isReceipt ? 'Paid on' : 'Moved on', `${day(data.paidAt)} (${timeZone})`],
      ['Method', data.method],
      ...(data.paymentId === null ? [] : [[isReceipt ? 'Payment' : 'Reference', data.paymentId] as const]),
      ...(data.topupId === null ? [] : [['Top-up', data.topupId] as const]),
      ...(data.reference === null ? [] : [['Reference', data.reference] as const]),
      ['Account', account.id],
    ],
    parties: partiesOf(data),
    tables: [
      {
        caption: isReceipt ? 'Paid' : 'Corrected',
        columns: [
          { head: 'What', kind: 'words' },
          { head: 'Number', kind: 'figure' },
          { head: 'Amount', kind: 'figure' },
        ],
        rows: [[what, '1', totalsOf('', data.totalCents, null)[0]![1]]],
      },
    ],
    totals: totalsOf(
      receipt.kind === 'receipt' ? 'Total paid' : receipt.kind === 'credit_note' ? 'Total returned' : 'Total',
      data.totalCents,
      tax,
    ),
    notes: present([
      ...noteOf(tax),
      isReceipt && seller !== null ? 'This receipt is the invoice for the payment. Prices include tax.' : null,
      isReceipt ? 'There is nothing left to pay.' : null,
    ]),
  };
}
