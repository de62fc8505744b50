import { dollars } from '../../platform/dollars.ts';
import {
  changes,
  filterOf,
  limitOption,
  lists,
  loads,
  meantAccount,
  onlyAccount,
  option,
  word,
} from '../command-row.ts';
import type { CommandRow, Listing } from '../command-row.ts';
import type { Reader } from '../database.ts';
import { timeText } from '../output.ts';

const numberOrId = word('<number>', 'its number or its id');
const pdf = option('--pdf <file>', 'write it to this file too');

export const invoiceCommands: readonly CommandRow[] = [
  lists({
    name: 'list',
    about: 'list them, newest first',
    takes: [onlyAccount, limitOption(100, 20)],
    api: ({ account, limit }: Listing) => ({ path: '/v1/invoices', account, limit }),
    read: async ({ repositories, config }, options: Listing) => {
      const { invoiceObject } = await import('../../account-api/routes/invoices.ts');
      const url = await accountUrl(config);
      return (await repositories.listInvoices(filterOf(options))).map((one) => ({
        account_id: one.accountId,
        ...invoiceObject(one, url),
      }));
    },
    columns: {
      number: ({ number }) => number,
      issued: (one) => issuedOn(one),
      account: ({ account_id: account }) => account,
      kind: ({ kind }) => kind,
      month: ({ month }) => month,
      total: (one) => totalOf(one),
    },
  }),
  loads('show', 'show one with all its contents', [numberOrId, pdf], () =>
    import('../papers.ts').then(({ showInvoice }) => showInvoice),
  ),
  loads('issue', 'make the running service close past months now', [], () =>
    import('../ask-running.ts').then(({ issueInvoices }) => issueInvoices),
  ),
];

export const receiptCommands: readonly CommandRow[] = [
  lists({
    name: 'list',
    about: 'list them, newest first',
    takes: [onlyAccount, limitOption(100, 20)],
    api: ({ account, limit }: Listing) => ({ path: '/v1/receipts', account, limit }),
    read: async ({ repositories, config }, options: Listing) => {
      const { receiptObject } = await import('../../account-api/routes/receipts.ts');
      const url = await accountUrl(config);
      return (await repositories.listReceipts(filterOf(options))).map((one) => ({
        account_id: one.accountId,
        ...receiptObject(one, url),
      }));
    },
    columns: {
      number: ({ number }) => number,
      issued: (one) => issuedOn(one),
      account: ({ account_id: account }) => account,
      kind: ({ kind }) => kind,
      method: ({ method }) => method,
      total: (one) => totalOf(one),
    },
  }),
  loads('show', 'show one with all its contents', [numberOrId, pdf], () =>
    import('../papers.ts').then(({ showReceipt }) => showReceipt),
  ),
  loads(
    'proof',
    'print the proof of what a request was charged, which anybody can check with `verify receipt`',
    [word('<request-id>', 'id of the request: req_…, client_…, or its ledger id'), meantAccount],
    () => import('../proofs.ts').then(({ showProof }) => showProof),
  ),
  changes({
    name: 'rotate-key',
    about: 'let another key sign the days of usage from now on; what the others have signed stays valid',
    takes: [],
    ask: () => ({ kind: 'rotate_signing_key' }),
    done: ({ id, publicKey }) => ({
      json: { id, public_key: publicKey },
      lines: [`Key ${id} signs from now on. It is published at /v1/heads: ${publicKey}`],
    }),
  }),
];

async function accountUrl({ server }: Reader['config']): Promise<string> {
  const { publicUrl } = await import('../../config/public-url.ts');
  return publicUrl(server.account);
}

function issuedOn({ issued_at: at }: { readonly issued_at: number }): string {
  return timeText(at).slice(0, 10);
}

function totalOf({ total_microcents: total }: { readonly total_microcents: number }): string {
  return dollars(BigInt(total));
}
