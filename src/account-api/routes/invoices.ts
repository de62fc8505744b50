import Type from 'typebox';

import { paperHtml, paperPolicy } from '../../billing/invoices/html.ts';
import { paperOf, readData, readTax } from '../../billing/invoices/invoice-document.ts';
import { fileNameOf } from '../../billing/invoices/paper.ts';
import type { Paper } from '../../billing/invoices/paper.ts';
import type { Buyer, ShownTax } from '../../billing/invoices/statement.ts';
import type { Invoice } from '../../store/repositories/invoices.ts';
import { taxStatuses } from '../../tax/tax.ts';
import { notThere } from '../input.ts';
import { tierMultipleOf } from '../price-object.ts';
import { wholeOf, pageLimit, listOf, pageQuery, listSchema, secondsOf } from '../wire.ts';
import { mayPay, Reply, route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';

export const partySchema = Type.Object({
  name: Type.String(),
  address: Type.Array(Type.String()),
  tax_id: Type.Union([Type.String(), Type.Null()]),
  email: Type.Union([Type.String(), Type.Null()]),
});
export const taxSchema = Type.Union(
  [
    Type.Object({
      name: Type.String(),
      rate_per_mille: Type.Union([Type.Integer(), Type.Null()], {
        description: 'null: `percent` has more decimals, or there are several rates.',
      }),
      percent: Type.Union([Type.String(), Type.Null()], { description: 'null: several rates together.' }),
      cents: Type.Integer({ description: 'The tax within the total, rounded half up.' }),
      treatment: Type.Enum([...taxStatuses]),
      note: Type.Union([Type.String(), Type.Null()], { description: 'The note on the document.' }),
    }),
    Type.Null(),
  ],
  { description: 'Taxes that the total includes.' },
);
const microcents = (description: string) => Type.Integer({ description: `${description}, in microcents.` });

const invoiceFields = {
  id: Type.String({ description: '`inv_…`' }),
  object: Type.Literal('invoice'),
  kind: Type.Union([Type.Literal('statement'), Type.Literal('credit_note')]),
  number: Type.String({ description: 'From a series without gaps: prefix, year, sequence.' }),
  month: Type.String({ description: '`2026-10`; for a credit note, the month of the refunds.' }),
  corrects: Type.Union([Type.String(), Type.Null()], {
    description: 'Id of the statement that a credit note corrects.',
  }),
  period_start: Type.Integer({ description: 'Unix seconds.' }),
  period_end: Type.Integer({ description: 'Unix seconds, exclusive.' }),
  time_zone: Type.String(),
  issued_at: Type.Integer({ description: 'Unix seconds.' }),
  currency: Type.Literal('USD'),
  total_cents: Type.Integer({
    description: 'The amount charged or refunded: rounded half up from `total_microcents`.',
  }),
  total_microcents: microcents('The amount charged or refunded'),
  sold_microcents: microcents(
    'The part of the total that this document sells, and no receipt does: `tax` is within it',
  ),
  tax: taxSchema,
  html_url: Type.String(),
  pdf_url: Type.String(),
};

const statement = Type.Object({
  opening_microcents: microcents('Credit at the beginning'),
  earlier_microcents: microcents('Late entries of earlier periods'),
  usage_microcents: microcents('Cost of requests'),
  refunds_microcents: microcents('Refunds for requests of this period'),
  closing_microcents: microcents('Credit at the end'),
  lines: Type.Array(
    Type.Object({
      model: Type.String(),
      plan: Type.Union([Type.String(), Type.Null()]),
      service_tier: Type.Union([Type.String(), Type.Null()]),
      price_multiple: Type.Union([Type.Number(), Type.Null()], {
        description: 'What these prices are of the usual ones because of the tier; null: not recorded, or several.',
      }),
      input_price: Type.Union([Type.String(), Type.Null()], { description: 'Microcents per million tokens.' }),
      output_price: Type.Union([Type.String(), Type.Null()]),
      cache_read_price: Type.Union([Type.String(), Type.Null()]),
      requests: Type.Integer(),
      prompt_tokens: Type.Integer(),
      cached_tokens: Type.Integer(),
      completion_tokens: Type.Integer(),
      microcents: Type.Integer(),
    }),
  ),
  movements: Type.Array(Type.Object({ name: Type.String(), count: Type.Integer(), microcents: Type.Integer() })),
  payments: Type.Array(
    Type.Object({
      at: Type.Integer(),
      microcents: Type.Integer(),
      reference: Type.Union([Type.String(), Type.Null()]),
      receipt: Type.Union([Type.String(), Type.Null()], { description: 'Number of its receipt.' }),
      method: Type.Union([Type.String(), Type.Null()]),
    }),
  ),
});

const creditNote = Type.Object({
  corrects_number: Type.String(),
  refunds: Type.Array(
    Type.Object({
      at: Type.Integer(),
      request_id: Type.Union([Type.String(), Type.Null()]),
      microcents: Type.Integer(),
    }),
  ),
});

const params = Type.Object({ id: Type.String({ pattern: '^inv_[0-9A-Za-z]{12}$' }) });

export const invoiceRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/invoices',
    operationId: 'listInvoices',
    tag: 'Billing',
    summary: 'List invoices',
    description:
      'Monthly statements and credit notes of the account, newest first. Payments have receipts (`/v1/receipts`).',
    access: mayPay,
    query: Type.Object(pageQuery, { additionalProperties: false }),
    answers: [{ status: 200, description: 'A page of invoices.', schema: listSchema(Type.Object(invoiceFields)) }],
    errors: ['http_404'],
    handle: async ({ account, query: { limit: asked, after }, services }) => {
      const limit = pageLimit(asked);
      const { repositories } = services.operations;
      const rows = await repositories.listInvoices({
        accountId: account.id,
        limit: limit + 1,
        ...(after === undefined ? {} : { after }),
      });
      return listOf(
        rows,
        limit,
        (row) => invoiceObject(row, services.accountUrl()),
        ({ id }) => id,
      );
    },
  }),
  route({
    method: 'get',
    path: '/v1/invoices/{id}',
    operationId: 'getInvoice',
    tag: 'Billing',
    summary: 'Get an invoice',
    description: 'All its contents, as issued.',
    access: mayPay,
    params,
    answers: [
      {
        status: 200,
        description: 'The invoice.',
        schema: Type.Object({
          ...invoiceFields,
          seller: Type.Union([partySchema, Type.Null()]),
          buyer: partySchema,
          statement: Type.Union([statement, Type.Null()]),
          credit_note: Type.Union([creditNote, Type.Null()]),
        }),
      },
    ],
    errors: ['http_404'],
    handle: async (call) => wholeInvoice(await invoiceOf(call, call.params.id), call.services.accountUrl()),
  }),
  route({
    method: 'get',
    path: '/v1/invoices/{id}.html',
    operationId: 'getInvoicePage',
    tag: 'Billing',
    summary: 'Get an invoice as a page',
    description: 'HTML without scripts, to read or print.',
    access: mayPay,
    params,
    answers: [{ status: 200, description: 'The page.', contentType: 'text/html' }],
    errors: ['http_404'],
    handle: async (call) => pageReply(paperOf(await invoiceOf(call, call.params.id))),
  }),
  route({
    method: 'get',
    path: '/v1/invoices/{id}.pdf',
    operationId: 'getInvoicePdf',
    tag: 'Billing',
    summary: 'Get an invoice as a PDF',
    description: 'Tagged, with searchable text.',
    access: mayPay,
    params,
    answers: [{ status: 200, description: 'The file.', contentType: 'application/pdf' }],
    errors: ['http_404'],
    handle: async (call) => {
      return await fileReply(paperOf(await invoiceOf(call, call.params.id)), call.services);
    },
  }),
];

export const pageReply = (paper: Paper): Reply =>
  new Reply(
    200,
    {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': paperPolicy,
      'x-content-type-options': 'nosniff',
    },
    paperHtml(paper),
  );

export const fileReply = async (paper: Paper, { print }: Pick<Call['services'], 'print'>): Promise<Reply> =>
  new Reply(
    200,
    {
      'content-type': 'application/pdf',
      'content-disposition': `attachment; filename="${fileNameOf(paper)}"`,
      'x-content-type-options': 'nosniff',
    },
    await print(paper),
  );

export const partyOf = ({ name, address, taxId, email }: Buyer) => ({ name, address, tax_id: taxId, email });

async function invoiceOf({ account, services }: Pick<Call, 'account' | 'services'>, id: string): Promise<Invoice> {
  const invoice = await services.operations.repositories.getInvoice({ accountId: account.id, id });
  if (invoice === undefined) throw notThere();
  return invoice;
}

export function invoiceObject(invoice: Invoice, accountUrl: string) {
  const data = readData(invoice);
  const url = `${accountUrl}/v1/invoices/${invoice.id}`;
  return {
    id: invoice.id,
    object: 'invoice' as const,
    kind: invoice.kind,
    number: invoice.number,
    month: invoice.month,
    corrects: invoice.corrects === '' ? null : invoice.corrects,
    period_start: secondsOf(invoice.periodStart),
    period_end: secondsOf(invoice.periodEnd),
    time_zone: data.timeZone,
    issued_at: secondsOf(invoice.issuedAt),
    currency: data.currency,
    total_cents: data.totalCents,
    total_microcents: wholeOf(invoice.totalMicrocents),
    sold_microcents: wholeOf(BigInt(data.soldMicrocents ?? data.totalMicrocents)),
    tax: shownTax(data.tax),
    html_url: `${url}.html`,
    pdf_url: `${url}.pdf`,
  };
}

export function shownTax(tax: ShownTax | null) {
  if (tax === null) return null;
  const { name, ratePerMille, percent, cents, treatment, note } = readTax(tax);
  return { name, rate_per_mille: ratePerMille, percent, cents, treatment, note };
}

/** An invoice with all its contents. */
export function wholeInvoice(invoice: Invoice, accountUrl: string) {
  const data = readData(invoice);
  const { statement: of, creditNote: note, seller, buyer } = data;
  const number = (text: string): number => wholeOf(BigInt(text));
  return {
    ...invoiceObject(invoice, accountUrl),
    seller: seller === null ? null : partyOf(seller),
    buyer: partyOf(buyer),
    statement:
      of === null
        ? null
        : {
            opening_microcents: number(of.openingMicrocents),
            earlier_microcents: number(of.earlierMicrocents),
            usage_microcents: number(of.usageMicrocents),
            refunds_microcents: number(of.refundsMicrocents),
            closing_microcents: number(of.closingMicrocents),
            lines: of.lines.map((line) => ({
              model: line.model,
              plan: line.plan,
              service_tier: line.tier === undefined ? 'default' : line.tier,
              price_multiple: tierMultipleOf(line.tier, line.priceMultiple),
              input_price: line.inputPrice,
              output_price: line.outputPrice,
              cache_read_price: line.cacheReadPrice,
              requests: line.requests,
              prompt_tokens: line.promptTokens,
              cached_tokens: line.cachedTokens,
              completion_tokens: line.completionTokens,
              microcents: number(line.microcents),
            })),
            movements: of.movements.map((movement) => ({ ...movement, microcents: number(movement.microcents) })),
            payments: of.payments.map(({ at, microcents: amount, reference, receipt, method }) => ({
              at: secondsOf(at),
              microcents: number(amount),
              reference,
              receipt: receipt ?? null,
              method: method ?? null,
            })),
          },
    credit_note:
      note === null
        ? null
        : {
            corrects_number: note.corrects.number,
            refunds: note.refunds.map(({ at, request, microcents: amount }) => ({
              at: secondsOf(at),
              request_id: request,
              microcents: number(amount),
            })),
          },
  };
}
