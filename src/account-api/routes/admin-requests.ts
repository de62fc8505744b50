import Type from 'typebox';

import { generationReceipts, receiptSchema } from '../generation-object.ts';
import { route } from '../route.ts';
import { listSchema } from '../wire.ts';
import { notKept } from './usage.ts';

/** For a customer who writes with nothing but the id of a request. */
export const requestOfServerRoute = route({
  method: 'get',
  path: '/v1/admin/requests/{id}',
  operationId: 'getRequestOfServer',
  tag: 'Server',
  summary: 'Get the receipt of a request of any account',
  description: 'Public ids are short, so two accounts may have a request with the same one. What was asked is in none.',
  access: 'operator',
  params: Type.Object({
    id: Type.String({
      minLength: 1,
      maxLength: 200,
      description: '`x-request-id` of the answer (`req_…`), or the id of the ledger.',
    }),
  }),
  answers: [
    {
      status: 200,
      description: 'The receipts, each with its account.',
      schema: listSchema(
        Type.Object({ ...receiptSchema.properties, account_id: Type.String(), account_name: Type.String() }),
      ),
    },
  ],
  handle: async ({ params: { id }, services }) => {
    const { repositories, now } = services.operations;
    const found = [];
    for (const accountId of await repositories.accountsOfRequest({ id, now: now() })) {
      const account = await repositories.getAccount({ accountId });
      const rows = await repositories.findUsage({ accountId, id, now: now() });
      for (const receipt of await generationReceipts(accountId, rows, repositories))
        found.push({ ...receipt, account_id: accountId, account_name: account?.name ?? '' });
    }
    if (found.length === 0) throw notKept((await repositories.retentionOf({})).keptSince);
    return { object: 'list', data: found, has_more: false };
  },
});
