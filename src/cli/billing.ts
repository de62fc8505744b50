import { billingObject } from '../account-api/account-object.ts';
import { accountMeant, OperationError } from '../accounts/operation.ts';
import type { BillingDetails } from '../store/repositories/accounts.ts';
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
    if (fault !== undefined) throw new OperationError(`${fault} Correct it, or give --tax-status standard.`);
    await writing(context, { kind: 'edit_account', accountId, billing });
  }
  const shown = billingObject(after);
  context.print.result({ account: accountId, ...shown }, [
    `account     ${accountId}`,
    `name        ${shown.legal_name ?? '-'}`,
    `address     ${shown.address_lines?.join(', ') ?? '-'}`,
    `country     ${shown.country ?? '-'}`,
    `tax id      ${shown.tax_id ?? '-'}`,
    `tax status  ${shown.tax_status}`,
    `e-mail      ${shown.invoice_email ?? '-'}`,
  ]);
  return 0;
}

const textOf = (text: string | undefined): string | null | undefined => (text === 'none' ? null : text);
