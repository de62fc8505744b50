import { dollars } from '../platform/dollars.ts';
import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { OperationError } from '../accounts/operation.ts';
import { paperOf } from '../billing/invoices/invoice-document.ts';
import { paperPdf, systemFont } from '../billing/invoices/pdf.ts';
import type { Paper } from '../billing/invoices/paper.ts';
import { receiptPaper } from '../billing/invoices/receipt.ts';
import type { Invoice } from '../store/repositories/invoices.ts';
import type { Receipt } from '../store/repositories/receipts.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';
import { askRunning } from './ask-running.ts';

/** The documents issued last. */
export async function listInvoices(
  context: Context,
  { account, limit }: { readonly account?: string; readonly limit: number },
): Promise<number> {
  const invoices = await reading(context, (repositories) =>
    repositories.listInvoices({ limit, ...(account === undefined ? {} : { accountId: account }) }),
  );
  context.print.result(
    invoices.map(jsonOf),
    table(
      ['number', 'issued', 'account', 'kind', 'month', 'total'],
      invoices.map((one) => [
        one.number,
        new Date(one.issuedAt).toISOString().slice(0, 10),
        one.accountId,
        one.kind,
        one.month,
        dollars(one.totalMicrocents),
      ]),
    ),
  );
  return 0;
}

/** One document with all its content, or as a file. */
export async function showInvoice(
  context: Context,
  { pdf }: { readonly pdf?: string },
  id: string | undefined,
): Promise<number> {
  const invoice = await reading(context, (repositories) => repositories.getInvoice({ id: id ?? '' }));
  if (invoice === undefined)
    throw new OperationError(`There is no invoice ${id}. List them with: tokenhouse invoices list`);
  const paper = paperOf(invoice);
  await fileOf(context, paper, pdf);
  context.print.result({ ...jsonOf(invoice), data: JSON.parse(invoice.data) as object }, linesOf(paper));
  return 0;
}

async function fileOf(context: Context, paper: Paper, pdf: string | undefined): Promise<void> {
  if (pdf === undefined) return;
  writeFileSync(
    resolve(context.around.directory, pdf),
    await paperPdf(paper, { font: context.config.invoices.font ?? systemFont() }),
  );
  context.print.say(`${paper.number} is in ${pdf}.`);
}

const linesOf = (paper: Paper): readonly string[] => [
  paper.title,
  ...paper.facts.map(([label, value]) => `${label}: ${value}`),
  ...paper.parties.flatMap(({ heading, lines }) => ['', heading, ...lines]),
  ...paper.tables.flatMap(({ caption, columns, rows }) => [
    '',
    caption,
    ...table(
      columns.map(({ head }) => head),
      rows,
    ),
  ]),
  '',
  ...paper.totals.map(([label, value]) => `${label}: ${value}`),
  ...paper.notes.flatMap((note) => ['', note]),
];

/** Receipts of payments and their corrections, the last ones issued. */
export async function listReceipts(
  context: Context,
  { account, limit }: { readonly account?: string; readonly limit: number },
): Promise<number> {
  const receipts = await reading(context, (repositories) =>
    repositories.listReceipts({ limit, ...(account === undefined ? {} : { accountId: account }) }),
  );
  context.print.result(
    receipts.map(receiptJson),
    table(
      ['number', 'issued', 'account', 'kind', 'method', 'total'],
      receipts.map((one) => [
        one.number,
        new Date(one.issuedAt).toISOString().slice(0, 10),
        one.accountId,
        one.kind,
        one.method,
        dollars(one.totalMicrocents),
      ]),
    ),
  );
  return 0;
}

export async function showReceiptOfPayment(
  context: Context,
  { pdf }: { readonly pdf?: string },
  id: string | undefined,
): Promise<number> {
  const receipt = await reading(context, (repositories) => repositories.getReceipt({ id: id ?? '' }));
  if (receipt === undefined)
    throw new OperationError(`There is no receipt ${id}. List them with: tokenhouse receipts list`);
  const paper = receiptPaper(receipt);
  await fileOf(context, paper, pdf);
  context.print.result({ ...receiptJson(receipt), data: JSON.parse(receipt.data) as object }, linesOf(paper));
  return 0;
}

const receiptJson = (receipt: Receipt) => ({
  id: receipt.id,
  account: receipt.accountId,
  kind: receipt.kind,
  number: receipt.number,
  corrects: receipt.corrects === '' ? null : receipt.corrects,
  topup: receipt.topupId,
  method: receipt.method,
  issued_at: new Date(receipt.issuedAt).toISOString(),
  total_microcents: receipt.totalMicrocents,
});

/** Makes the running service close the months that are over, which it does by itself every ten minutes. */
export const issueInvoices = (context: Context): Promise<number> => askRunning(context, { kind: 'issue_invoices' });

const jsonOf = (invoice: Invoice) => ({
  id: invoice.id,
  account: invoice.accountId,
  kind: invoice.kind,
  number: invoice.number,
  month: invoice.month,
  corrects: invoice.corrects === '' ? null : invoice.corrects,
  issued_at: new Date(invoice.issuedAt).toISOString(),
  total_microcents: invoice.totalMicrocents,
  closing_microcents: invoice.closingMicrocents,
});
