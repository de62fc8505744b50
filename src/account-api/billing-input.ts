import Type from 'typebox';
import type { Static } from 'typebox';

import { addressLinesMax } from '../accounts/billing-details.ts';
import { ApiError } from '../platform/errors.ts';
import type { BillingDetails } from '../store/repositories/accounts.ts';
import { ownReverseChargeFault, reverseChargeFault, taxStatuses } from '../tax/tax.ts';
import { nullable } from './wire.ts';

const line = Type.String({ minLength: 1, maxLength: 100 });

/** The party that documents are made out to, and its tax status. Omitted fields stay; null removes one. */
export const billingInput = Type.Object(
  {
    legal_name: Type.Optional(nullable(line)),
    address_lines: Type.Optional(nullable(Type.Array(line, { minItems: 1, maxItems: addressLinesMax }))),
    country: Type.Optional(nullable(Type.String({ minLength: 2, maxLength: 2 }))),
    tax_id: Type.Optional(nullable(Type.String({ minLength: 2, maxLength: 40 }))),
    tax_status: Type.Optional(Type.Enum([...taxStatuses])),
    invoice_email: Type.Optional(nullable(Type.String({ minLength: 3, maxLength: 254 }))),
  },
  { additionalProperties: false },
);
type BillingInput = Static<typeof billingInput>;

/**
 * The change to an account's billing details, with a matching tax status. Customers may claim reverse charge themselves, with a VAT
 * id; an operator who has seen the proof enters an exemption. Throws ApiError.
 */
export function billingChange(
  input: BillingInput,
  before: BillingDetails,
  { by, sellerCountry }: { readonly by: 'customer' | 'operator'; readonly sellerCountry: string | null },
) {
  const { country = before.country, tax_id: taxId = before.taxId, tax_status: taxStatus = before.taxStatus } = input;
  if (by === 'customer' && input.tax_status === 'exempt' && before.taxStatus !== 'exempt')
    throw new ApiError(
      'http_403',
      'Only the operator of this server can set the exemption from tax: send them the proof.',
      {
        param: 'billing.tax_status',
      },
    );
  const isAsked = input.tax_status !== undefined || input.country !== undefined || input.tax_id !== undefined;
  const faultOf = by === 'customer' ? ownReverseChargeFault : reverseChargeFault;
  const fault = isAsked && taxStatus === 'reverse_charge' ? faultOf({ country, taxId }, sellerCountry) : undefined;
  if (fault !== undefined)
    throw new ApiError('unsupported_value', `${fault} Correct it, or set tax_status to standard.`, {
      param: 'billing.tax_status',
    });
  return {
    legalName: input.legal_name,
    addressLines: input.address_lines,
    country: input.country,
    taxId: input.tax_id,
    taxStatus: input.tax_status,
    invoiceEmail: input.invoice_email,
  };
}
