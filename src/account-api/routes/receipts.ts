import Type from 'typebox';

import { readReceipt, receiptPaper } from '../../billing/invoices/receipt.ts';
import type { Receipt } from '../../store/repositories/receipts.ts';
import { notThere } from '../input.ts';
import { listOf, listSchema, nullable, pageLimit, pageQuery, secondsOf, wholeOf } from '../wire.ts';
import { mayPay, route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { fileReply, pageReply, partyOf, partySchema, shownTax, taxSchema } from './invoices.ts';

const receiptFields = {
  id: Type.String({ description: '`rcpt_…`' }),
  object: Type.Literal('receipt'),
  kind: Type.Enum(['receipt', 'credit_note', 'credit_note_reversal'], {
    description:
      '`credit_note`: a payment was returned, or a part of it. `credit_note_reversal`: that return has failed, or a dispute was won.',
  }),
  number: Type.String({ description: 'From a series of its own without gaps: prefix, `R`, year, sequence.' }),
  corrects: nullable(Type.String({ description: 'Id of the receipt, or of the credit note, that it corrects.' })),
  topup_id: nullable(Type.String({ description: 'null: an operator has recorded the payment.' })),
  origin: Type.Enum(['checkout', 'auto', 'recorded']),
  paid_at: Type.Integer({ description: 'Unix seconds; for a credit note, the time of the return.' }),
  issued_at: Type.Integer({ description: 'Unix seconds.' }),
  method: Type.String({ description: 'Payment method, such as `Visa ending in 4242`.' }),
  currency: Type.Literal('USD'),
  total_cents: Type.Integer({ description: 'The amount paid or returned, tax included.' }),
  total_microcents: Type.Integer(),
  tax: taxSchema,
  html_url: Type.String(),
  pdf_url: Type.String(),
};

const params = Type.Object({ id: Type.String({ pattern: '^rcpt_[0-9A-Za-z]{12}$' }) });

export const receiptRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/receipts',
    operationId: 'listReceipts',
    tag: 'Billing',
    summary: 'List receipts',
    description: 'Receipts of payments and their corrections, newest first.',
    access: mayPay,
    query: Type.Object(pageQuery, { additionalProperties: false }),
    answers: [{ status: 200, description: 'A page of receipts.', schema: listSchema(Type.Object(receiptFields)) }],
    errors: ['http_404'],
    handle: async ({ account, query: { limit: asked, after }, services }) => {
      const limit = pageLimit(asked);
      const rows = await services.operations.repositories.listReceipts({
        accountId: account.id,
        limit: limit + 1,
        ...(after === undefined ? {} : { after }),
      });
      return listOf(
        rows,
        limit,
        (row) => receiptObject(row, services.accountUrl()),
        ({ id }) => id,
      );
    },
  }),
  route({
    method: 'get',
    path: '/v1/receipts/{id}',
    operationId: 'getReceipt',
    tag: 'Billing',
    summary: 'Get a receipt',
    description: 'All its contents, as issued.',
    access: mayPay,
    params,
    answers: [
      {
        status: 200,
        description: 'The receipt.',
        schema: Type.Object({
          ...receiptFields,
          seller: Type.Union([partySchema, Type.Null()]),
          buyer: partySchema,
          payment_id: nullable(Type.String({ description: 'Id of the payment, or of its return, at the provider.' })),
          reference: nullable(
            Type.String({ description: 'The reference of a payment that an operator has recorded.' }),
          ),
        }),
      },
    ],
    errors: ['http_404'],
    handle: async (call) => wholeReceipt(await receiptOf(call, call.params.id), call.services.accountUrl()),
  }),
  route({
    method: 'get',
    path: '/v1/receipts/{id}.html',
    operationId: 'getReceiptPage',
    tag: 'Billing',
    summary: 'Get a receipt as a page',
    description: 'HTML without scripts, to read or print.',
    access: mayPay,
    params,
    answers: [{ status: 200, description: 'The page.', contentType: 'text/html' }],
    errors: ['http_404'],
    handle: async (call) => pageReply(receiptPaper(await receiptOf(call, call.params.id))),
  }),
  route({
    method: 'get',
    path: '/v1/receipts/{id}.pdf',
    operationId: 'getReceiptPdf',
    tag: 'Billing',
    summary: 'Get a receipt as a PDF',
    description: 'Tagged, with searchable text.',
    access: mayPay,
    params,
    answers: [{ status: 200, description: 'The file.', contentType: 'application/pdf' }],
    errors: ['http_404'],
    handle: async (call) => await fileReply(receiptPaper(await receiptOf(call, call.params.id)), call.services),
  }),
];

async function receiptOf({ account, services }: Pick<Call, 'account' | 'services'>, id: string): Promise<Receipt> {
  const receipt = await services.operations.repositories.getReceipt({ accountId: account.id, id });
  if (receipt === undefined) throw notThere();
  return receipt;
}

export function receiptObject(receipt: Receipt, accountUrl: string) {
  const { origin, paidAt, currency, totalCents, tax } = readReceipt(receipt);
  const url = `${accountUrl}/v1/receipts/${receipt.id}`;
  return {
    id: receipt.id,
    object: 'receipt' as const,
    kind: receipt.kind,
    number: receipt.number,
    corrects: receipt.corrects === '' ? null : receipt.corrects,
    topup_id: receipt.topupId,
    origin,
    paid_at: secondsOf(paidAt),
    issued_at: secondsOf(receipt.issuedAt),
    method: receipt.method,
    currency,
    total_cents: totalCents,
    total_microcents: wholeOf(receipt.totalMicrocents),
    tax: shownTax(tax),
    html_url: `${url}.html`,
    pdf_url: `${url}.pdf`,
  };
}

/** A receipt with all its contents. */
export function wholeReceipt(receipt: Receipt, accountUrl: string) {
  const { seller, buyer, paymentId, reference } = readReceipt(receipt);
  return {
    ...receiptObject(receipt, accountUrl),
    seller: seller === null ? null : partyOf(seller),
    buyer: partyOf(buyer),
    payment_id: paymentId,
    reference,
  };
}
