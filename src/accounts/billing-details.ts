import type { BillingDetails } from '../store/repositories/accounts.ts';
import { isCountry } from '../tax/countries.ts';
import { taxStatuses } from '../tax/tax.ts';
import { isMailAddress } from './mail-address.ts';
import { checkedText, OperationError } from './operation.ts';

export const addressLinesMax = 6;
const lineLengthMax = 100;

type Changed = { readonly [Detail in keyof BillingDetails]?: BillingDetails[Detail] | undefined };

/** Checks the invoice recipient's details, which are printed on invoices. Throws OperationError. */
export function checkedBilling(details: Changed): Changed {
  const { legalName, addressLines, country, taxId, taxStatus, invoiceEmail } = details;
  if (legalName !== undefined && legalName !== null)
    checkedText(legalName, 'A legal name', lineLengthMax, 'legal_name');
  if (addressLines !== undefined && addressLines !== null) {
    if (addressLines.length === 0 || addressLines.length > addressLinesMax)
      throw new OperationError(`An address must have 1 to ${addressLinesMax} lines.`);
    for (const line of addressLines) checkedText(line, 'A line of an address', lineLengthMax, 'address_lines');
  }
  if (country !== undefined && country !== null && !isCountry(country))
    throw new OperationError(
      'A country must be a two-letter ISO 3166-1 code in capitals, such as DE; the United Kingdom is GB.',
    );
  if (taxStatus !== undefined && !taxStatuses.includes(taxStatus))
    throw new OperationError(`A tax status must be one of ${taxStatuses.join(', ')}.`);
  if (taxId !== undefined && taxId !== null && !/^[A-Za-z0-9][A-Za-z0-9 ./-]{1,39}$/.test(taxId))
    throw new OperationError('A tax id must have 2 to 40 characters: letters, digits, spaces, and . / -');
  if (invoiceEmail !== undefined && invoiceEmail !== null && !isMailAddress(invoiceEmail))
    throw new OperationError('This is not an e-mail address; write for example accounts@example.com.');
  return details;
}
