import type { BillingDetails } from '../store/repositories/accounts.ts';
import type { TaxStatus } from '../tax/tax.ts';
import { meantAccount, option } from './command-row.ts';
import type { CommandRow } from './command-row.ts';
import type { Context } from './context.ts';
import { collected, refused } from './option.ts';

interface BillingOptions {
  readonly account?: string;
  readonly name?: string;
  readonly addressLine?: readonly string[];
  readonly country?: string;
  readonly taxId?: string;
  readonly taxStatus?: TaxStatus;
  readonly email?: string;
}

const taxStatuses: readonly TaxStatus[] = ['standard', 'exempt', 'reverse_charge'];

/** Sets the party that documents are made out to, and its tax status. `none` removes a detail; omitted ones stay. */
export const billingRow: CommandRow = {
  name: 'billing',
  about: 'show or change the recipient and the tax of an account’s invoices',
  takes: [
    meantAccount,
    option('--name <name>', 'legal name; none: the name of the account'),
    option('--address-line <line>', 'a line of the address; repeatable; none: no address', collected),
    option('--country <code>', 'ISO 3166-1 code, for example DE, which sets the tax rate; none: unknown'),
    option('--tax-id <id>', 'tax number of the customer; none: unknown'),
    option('--tax-status <status>', 'how it is taxed: exempt needs a proof that you have checked').choices(taxStatuses),
    option('--email <address>', 'address for invoices and receipts; none: they are not sent'),
  ],
  run: async (context: Context, options: BillingOptions) => {
    const [{ billingObject }, { accountMeant }, { reverseChargeFault }, { reading, writing }] = await Promise.all([
      import('../account-api/account-object.ts'),
      import('../accounts/operation.ts'),
      import('../tax/tax.ts'),
      import('./database.ts'),
    ]);
    const { accountId, before } = await reading(context, async ({ repositories }) => {
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
      if (fault !== undefined) throw await refused(`${fault} Correct it, or give --tax-status standard.`);
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
  },
};

const textOf = (text: string | undefined): string | null | undefined => (text === 'none' ? null : text);
