import { isVatId } from './vat-id.ts';

/**
 * How a customer is taxed: `standard`: at the rate of their country; `exempt`: not at all; `reverse_charge`: they account for the tax
 * themselves.
 */
export const taxStatuses = ['standard', 'exempt', 'reverse_charge'] as const;
export type TaxStatus = (typeof taxStatuses)[number];

export interface TaxRate {
  /** Such as `VAT`. */
  readonly name: string;
  readonly ratePerMille: number;
}

/** The seller's tax settings. Prices include taxes. */
export interface TaxRules {
  /** An ISO 3166-1 code; null: unknown, and every customer with the status has reverse charge. */
  readonly sellerCountry: string | null;
  /** The rate for countries not in `byCountry`; null: no tax is shown. */
  readonly rate: TaxRate | null;
  readonly byCountry: readonly (TaxRate & { readonly country: string })[];
  readonly notes: TaxNotes;
}

/** The note a document must carry when it shows no tax. */
export interface TaxNotes {
  readonly exempt: string;
  readonly reverseCharge: string;
}

export const defaultTaxNotes: TaxNotes = {
  exempt: 'Exempt from tax.',
  reverseCharge:
    'Reverse charge: VAT is accounted for by the recipient, Article 196 of Directive 2006/112/EC (and the laws that carry it out).',
};

export interface TaxPayer {
  readonly country: string | null;
  readonly taxId: string | null;
  readonly taxStatus: TaxStatus;
}

/** The tax included in a sale to a customer. */
export interface AppliedTax extends TaxRate {
  readonly treatment: TaxStatus;
  /** A note that the document must carry. */
  readonly note: string | null;
}

/** Returns the tax of a sale to this payer; null: no tax is shown. */
export function taxFor({ sellerCountry, rate, byCountry, notes }: TaxRules, payer: TaxPayer): AppliedTax | null {
  const { country, taxId, taxStatus } = payer;
  const own = byCountry.find((one) => one.country === country);
  const { name, ratePerMille } = own ?? rate ?? { name: null, ratePerMille: 0 };
  if (taxStatus === 'exempt') return { name: name ?? 'Tax', ratePerMille: 0, treatment: 'exempt', note: notes.exempt };
  // For a domestic customer, or one without a tax registration, the seller accounts for the tax regardless of the status.
  if (taxStatus === 'reverse_charge' && taxId !== null && country !== null && country !== sellerCountry)
    return { name: name ?? 'Tax', ratePerMille: 0, treatment: 'reverse_charge', note: notes.reverseCharge };
  return name === null ? null : { name, ratePerMille, treatment: 'standard', note: null };
}

/** Why a customer cannot have reverse charge; undefined: they can. */
export function reverseChargeFault(
  payer: Omit<TaxPayer, 'taxStatus'>,
  sellerCountry: string | null,
): string | undefined {
  const { country, taxId } = payer;
  if (country === null || taxId === null) return 'Reverse charge needs a country and a tax id.';
  if (country === sellerCountry) return 'Reverse charge is for customers in another country than the seller.';
  return undefined;
}

/** The same for customers who claim it themselves, without verified proof. */
export function ownReverseChargeFault(
  payer: Omit<TaxPayer, 'taxStatus'>,
  sellerCountry: string | null,
): string | undefined {
  const fault = reverseChargeFault(payer, sellerCountry);
  if (fault !== undefined) return fault;
  return isVatId(payer.taxId!, payer.country!)
    ? undefined
    : 'Reverse charge needs a VAT identification number of the country, with its prefix, such as DE123456789.';
}

/** Returns the tax included in an amount: amount × rate ÷ (1 + rate), rounded half up, away from zero. */
export function taxWithin(cents: number, ratePerMille: number): number {
  const size = BigInt(Math.abs(cents));
  const whole = 1_000n + BigInt(ratePerMille);
  const tax = Number((2n * size * BigInt(ratePerMille) + whole) / (2n * whole));
  return cents < 0 ? 0 - tax : tax;
}
