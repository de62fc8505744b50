import Type from 'typebox';

import { monthOf, revenueGroups, revenueOf, type Revenue } from '../revenue.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { nullable, page, wholeListSchema } from '../wire.ts';
import { file } from './export.ts';
import { readable } from './usage.ts';

const count = Type.Integer();
const amount = (description: string) => nullable(Type.Integer({ description }));

const query = Type.Object({
  month: Type.Optional(
    Type.String({
      pattern: '^\\d{4}-(0[1-9]|1[0-2])$',
      description: 'In UTC, such as `2027-06`; this month when left out.',
    }),
  ),
  by: Type.Optional(
    Type.Enum([...revenueGroups], { description: '`month`: the twelve months up to that one.', default: 'model' }),
  ),
});

const revenueSchema = Type.Object({
  object: Type.Literal('revenue'),
  group: Type.String({
    description: 'Id of the model or the account, the service tier (empty where it is not known), or the month.',
  }),
  name: nullable(Type.String({ description: 'Of the account; null of other groups, and where it has none.' })),
  requests: count,
  prompt_tokens: count,
  cached_tokens: count,
  completion_tokens: count,
  revenue_microcents: Type.Integer({ description: 'What was charged; refunds are not subtracted.' }),
  uncharged_microcents: Type.Integer({ description: 'List price of work that was not charged.' }),
  cost_microcents: amount('By the `costs` that the models have now; null if one of them has none.'),
  margin_microcents: amount('What is left.'),
});

const about =
  'Across all accounts, from the same sums as their reports. The cost is that of the tokens at the `costs` of the models in the configuration.';
const columns = {
  group: 'text',
  name: 'text',
  requests: 'sum',
  prompt_tokens: 'sum',
  cached_tokens: 'sum',
  completion_tokens: 'sum',
  revenue_microcents: 'sum',
  uncharged_microcents: 'sum',
  cost_microcents: 'number',
  margin_microcents: 'number',
} as const;

async function rowsOf(call: Call<undefined, typeof query, undefined>): Promise<readonly Revenue[]> {
  const { repositories, now } = call.services.operations;
  const { month, by = 'model' } = call.query;
  const span = monthOf(month === undefined ? now() : Date.parse(`${month}-01T00:00:00Z`));
  return await readable(revenueOf(repositories, call.services.config().models, { ...span, by }));
}

export const revenueRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/admin/revenue',
    operationId: 'getRevenue',
    tag: 'Server',
    summary: 'Revenue, cost and margin',
    description: `${about} The largest revenue first.`,
    access: 'operator',
    query,
    answers: [{ status: 200, description: 'One row per group with usage.', schema: wholeListSchema(revenueSchema) }],
    handle: async (call) => page((await rowsOf(call)).map((row) => ({ object: 'revenue' as const, ...row }))),
  }),
  route({
    method: 'get',
    path: '/v1/admin/revenue.csv',
    operationId: 'exportRevenueCsv',
    tag: 'Server',
    summary: 'Export revenue, cost and margin as CSV',
    description: about,
    access: 'operator',
    query,
    answers: [{ status: 200, description: 'One row per group with usage.', contentType: 'text/csv; charset=utf-8' }],
    handle: async (call) => {
      const rows = (await rowsOf(call)).map((row) => ({ ...row }));
      async function* pages() {
        yield rows;
      }
      return file('revenue', 'csv', columns, pages());
    },
  }),
];
