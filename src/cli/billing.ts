import { accountMeant, OperationError } from '../accounts/operation.ts';
import type { BillingDetails } from '../store/repositories/queries.ts';
import { reverseChargeFault } from '../tax/tax.ts';
import type { TaxStatus } from '../tax/tax.ts';
import type { Context } from './context.ts';
import { reading, writing } from './database.ts';

interface BillingOptions {
  readonly account?: string;
  readonly name?: string;
  readonly addressLine?: readonly string[];
  readonly country?: string;
  readonly taxId?: string;
  readonly taxStatus?: TaxStatus;
  readonly email?: string;
}

/** Sets the party that documents are made out to, and its tax status. `none` removes a detail; what is left out stays. */
export async function setBilling(context: Context, options: BillingOptions): Promise<number> {
  const { accountId, before } = await reading(context, async (repositories) => {
    const id = await accountMeant(options.account, repositories);
    return { accountId: id, before: (await repositories.getAccount({ accountId: id }))!.billing };
  });
  const { addressLine: address } = options;
  const billing = {
    legalName: textOf(options.name),
    addressLines: address === undefined ? undefined : address.join() === 'none' ? null : address,
    country: textOf(options.country),
    taxId: textOf(options.taxId),
    taxStatus: options.taxStatus,
    invoiceEmail: textOf(options.email),
  };
  const given = Object.entries(billing).filter(([, value]) => value !== undefined);
  const after: BillingDetails = { ...before, ...Object.fromEntries(given) };
  const { sellerCountry } = context.config.invoices.tax;
  const fault = after.taxStatus === 'reverse_charge' ? reverseChargeFault(after, sellerCountry) : undefined;
  if (given.length > 0) {
    if (fault !== undefined) throw new OperationError(`${fault} Correct it, or say --tax-status standard.`);
    await writing(context, { kind: 'edit_account', accountId, billing });
  }
  const { legalName, addressLines, country, taxId, taxStatus, invoiceEmail } = after;
  context.print.result(
    {
      account: accountId,
      legal_name: legalName,
      address_lines: addressLines,
      country,
      tax_id: taxId,
      tax_status: taxStatus,
      invoice_email: invoiceEmail,
    },
    [
      `account     ${accountId}`,
      `name        ${legalName ?? '-'}`,
      `address     ${addressLines?.join(', ') ?? '-'}`,
      `country     ${country ?? '-'}`,
      `tax id      ${taxId ?? '-'}`,
      `tax status  ${taxStatus}`,
      `e-mail      ${invoiceEmail ?? '-'}`,
    ],
  );
  return 0;
}

const textOf = (text: string | undefined): string | null | undefined => (text === 'none' ? null : text);
