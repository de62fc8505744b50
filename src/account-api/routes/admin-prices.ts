import Type from 'typebox';

import { ApiError } from '../../platform/errors.ts';
import { operate } from '../../accounts/operations.ts';
import { operationsOf } from '../operations-of.ts';
import { priceFields, priceObject, priceSchema } from '../price-object.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { accountId, liveAccount } from '../server-account.ts';
import { nullable, secondsOf, wholeOf } from '../wire.ts';

const modelName = Type.String({ minLength: 1, maxLength: 128 });
const dayMs = 86_400_000;

const priceBody = {
  ...priceFields,
  cache_read_microcents_per_million: Type.Optional(priceFields.input_microcents_per_million),
};

/** Rates of single accounts, which replace the list prices of a model. */
export const accountPriceRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/admin/account_prices',
    operationId: 'listAccountPrices',
    tag: 'Server',
    summary: 'List the account-specific rates',
    description: 'Present and future rates, of one account or one model where given; at most 1,000.',
    access: 'operator',
    query: Type.Object({ account_id: Type.Optional(accountId), model: Type.Optional(modelName) }),
    answers: [
      {
        status: 200,
        description: 'Rates by model and start.',
        schema: Type.Object({ object: Type.Literal('list'), data: Type.Array(priceSchema), has_more: Type.Boolean() }),
      },
    ],
    handle: async ({ query, services }) => {
      const { repositories, now } = services.operations;
      const rates = await repositories.listAccountPrices({
        ...(query.account_id === undefined ? {} : { accountId: query.account_id }),
        ...(query.model === undefined ? {} : { modelId: query.model.toLowerCase() }),
        endingAfter: now(),
        limit: 1000,
      });
      return { object: 'list', data: rates.map(priceObject), has_more: rates.length === 1000 };
    },
  }),
  route({
    method: 'post',
    path: '/v1/admin/account_prices',
    operationId: 'setAccountPrice',
    tag: 'Server',
    summary: 'Set an account’s rates for a model',
    description: 'The rates apply to requests that start from then on; earlier charges do not change.',
    access: 'operator',
    stepUp: true,
    body: Type.Object(
      {
        ...priceBody,
        valid_from: Type.Optional(Type.Integer({ minimum: 0, description: 'Unix seconds; now when left out.' })),
        valid_to: Type.Optional(nullable(Type.Integer({ minimum: 0, description: 'Unix seconds, exclusive.' }))),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 201, description: 'The rates.', schema: priceSchema }],
    errors: ['http_409'],
    handle: async (call) => {
      const { body } = call;
      const account = await liveAccount(call, body.account_id);
      modelNamed(call, body.model);
      const answer = await operate(
        {
          kind: 'set_price',
          accountId: account,
          model: body.model,
          input: String(body.input_microcents_per_million),
          output: String(body.output_microcents_per_million),
          cacheRead:
            body.cache_read_microcents_per_million === undefined
              ? undefined
              : String(body.cache_read_microcents_per_million),
          validFrom: body.valid_from === undefined ? undefined : body.valid_from * 1000,
          validTo: body.valid_to === undefined || body.valid_to === null ? undefined : body.valid_to * 1000,
        },
        operationsOf(call),
      );
      return priceObject(answer);
    },
  }),
  route({
    method: 'delete',
    path: '/v1/admin/account_prices',
    operationId: 'removeAccountPrices',
    tag: 'Server',
    summary: 'End the rates of an account for a model',
    description: 'The list prices apply to requests that start from now on.',
    access: 'operator',
    stepUp: true,
    query: Type.Object({ account_id: accountId, model: modelName }),
    answers: [
      {
        status: 200,
        description: 'The number of removed rates.',
        schema: Type.Object({ object: Type.Literal('account_price.deleted'), ended: Type.Integer() }),
      },
    ],
    handle: async (call) => {
      const account = await liveAccount(call, call.query.account_id);
      const answer = await operate(
        { kind: 'remove_price', accountId: account, model: call.query.model },
        operationsOf(call),
      );
      return { object: 'account_price.deleted', ended: answer.ended };
    },
  }),
  route({
    method: 'post',
    path: '/v1/admin/account_prices/preview',
    operationId: 'previewAccountPrice',
    tag: 'Server',
    summary: 'Preview the charges of rates',
    description:
      'What the account was charged for the model in the last 30 days, and what it would have been by these rates: exact but for the rounding up of each request, less than a microcent each. Without an account: what all accounts were charged that have no rates of their own now, to try a list price. Nothing is changed.',
    access: 'operator',
    body: Type.Object({ ...priceBody, account_id: Type.Optional(accountId) }, { additionalProperties: false }),
    answers: [
      {
        status: 200,
        description: 'The comparison.',
        schema: Type.Object({
          object: Type.Literal('account_price.preview'),
          from: Type.Integer({ description: 'Unix seconds.' }),
          to: Type.Integer(),
          requests: Type.Integer(),
          prompt_tokens: Type.Integer(),
          cached_tokens: Type.Integer(),
          completion_tokens: Type.Integer(),
          charged_microcents: Type.Integer(),
          would_be_microcents: Type.Integer(),
          difference_microcents: Type.Integer(),
        }),
      },
    ],
    handle: async (call) => {
      const { body, services } = call;
      const { repositories, now } = services.operations;
      const modelId = modelNamed(call, body.model);
      const to = now();
      const from = to - 30 * dayMs;
      const whose =
        body.account_id === undefined
          ? { exceptAccounts: await accountsWithRates(call, modelId) }
          : { accountId: await liveAccount(call, body.account_id) };
      const used = await repositories.chargedUsage({ ...whose, modelId, from, to });
      const input = BigInt(body.input_microcents_per_million);
      const cached = BigInt(body.cache_read_microcents_per_million ?? body.input_microcents_per_million);
      const parts =
        BigInt(used.promptTokens - used.cachedTokens) * input +
        BigInt(used.cachedTokens) * cached +
        BigInt(used.completionTokens) * BigInt(body.output_microcents_per_million);
      const wouldBe = (parts + 999_999n) / 1_000_000n;
      return {
        object: 'account_price.preview',
        from: secondsOf(from),
        to: secondsOf(to),
        requests: used.requests,
        prompt_tokens: used.promptTokens,
        cached_tokens: used.cachedTokens,
        completion_tokens: used.completionTokens,
        charged_microcents: wholeOf(used.costMicrocents),
        would_be_microcents: wholeOf(wouldBe),
        difference_microcents: wholeOf(wouldBe - used.costMicrocents),
      };
    },
  }),
];

/** Returns a model's id as in the configuration, and thus in usage. Throws `unsupported_value`. */
function modelNamed({ services }: Pick<Call, 'services'>, named: string): string {
  const model = services.config().models.find(({ id }) => id.toLowerCase() === named.toLowerCase());
  if (model === undefined)
    throw new ApiError('unsupported_value', 'The configuration has no model of this id.', { param: 'model' });
  return model.id;
}

/** Accounts that currently do not pay the list price of a model. */
async function accountsWithRates({ services }: Pick<Call, 'services'>, model: string): Promise<readonly string[]> {
  const { repositories, now } = services.operations;
  const at = now();
  const rates = await repositories.listAccountPrices({ modelId: model.toLowerCase(), endingAfter: at, limit: 1000 });
  return [...new Set(rates.filter(({ validFrom }) => validFrom <= at).map(({ accountId: id }) => id))];
}
