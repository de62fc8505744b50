import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { wholeInvoice } from '../account-api/routes/invoices.ts';
import { wholeReceipt } from '../account-api/routes/receipts.ts';
import { OperationError } from '../accounts/operation.ts';
import { paperOf } from '../billing/invoices/invoice-document.ts';
import type { Paper } from '../billing/invoices/paper.ts';
import { paperPdf, systemFont } from '../billing/invoices/pdf.ts';
import { receiptPaper } from '../billing/invoices/receipt.ts';
import { publicUrl } from '../config/public-url.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';
import type { Line } from './output.ts';

interface ShowOptions {
  readonly pdf?: string;
}

/** Shows one document with all its content, in the form of GET /v1/invoices/{id}, or writes it to a file. */
export async function showInvoice(context: Context, options: ShowOptions, id: string): Promise<number> {
  const invoice = await reading(context, ({ repositories }) => repositories.getInvoice({ id }));
  if (invoice === undefined)
    throw new OperationError(`There is no invoice ${id}. List them with: tokenhouse invoices list`);
  const whole = wholeInvoice(invoice, publicUrl(context.config.server.account));
  return await show(context, options, { account_id: invoice.accountId, ...whole }, paperOf(invoice));
}

export async function showReceipt(context: Context, options: ShowOptions, id: string): Promise<number> {
  const receipt = await reading(context, ({ repositories }) => repositories.getReceipt({ id }));
  if (receipt === undefined)
    throw new OperationError(`There is no receipt ${id}. List them with: tokenhouse receipts list`);
  const whole = wholeReceipt(receipt, publicUrl(context.config.server.account));
  return await show(context, options, { account_id: receipt.accountId, ...whole }, receiptPaper(receipt));
}

async function show(
  { config, print, around }: Context,
  { pdf }: ShowOptions,
  json: object,
  paper: Paper,
): Promise<number> {
  if (pdf !== undefined) {
    const file = await paperPdf(paper, { font: config.invoices.font ?? systemFont() });
    writeFileSync(resolve(around.directory, pdf), file);
    print.say(`${paper.number} is in ${pdf}.`);
  }
  print.result(json, linesOf(paper));
  return 0;
}

const linesOf = (paper: Paper): readonly Line[] => [
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
