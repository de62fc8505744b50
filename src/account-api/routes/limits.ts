import Type from 'typebox';

import { readAccountLimits } from '../../accounts/key-limits.ts';
import type { Config, ModelConfig, PlanConfig } from '../../config/config.ts';
import { windowStart } from '../../billing/rate-limits/windows.ts';
import type { WindowCount } from '../../store/repositories/limit-windows.ts';
import type { Account } from '../../store/repositories/accounts.ts';
import type { AccountPrice } from '../../store/repositories/account-prices.ts';
import { notThere } from '../input.ts';
import { everyRole, route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { nullable, page, secondsOf, secondsOrNull, wholeListSchema, wholeOf } from '../wire.ts';

const windowSchema = (limit: string) =>
  nullable(
    Type.Object({
      [limit]: Type.Integer(),
      used: Type.Integer({ description: 'Used in the current window; with several processes an upper bound.' }),
      window_start: Type.Integer({ description: 'Unix seconds.' }),
      window_end: Type.Integer(),
    }),
  );

const rateSchema = Type.Object({
  input_microcents: Type.Integer(),
  output_microcents: Type.Integer(),
  cache_read_microcents: Type.Integer(),
});

export const limitRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/limits',
    operationId: 'getLimits',
    tag: 'Limits',
    summary: 'Get the limits of the account',
    description:
      'Its plan and how much of it is used, limits of concurrent requests and of requests per minute, the models it may use, and how long their requests may be.',
    access: everyRole,
    answers: [
      {
        status: 200,
        description: 'The limits of the account. Its keys can have limits of their own.',
        schema: Type.Object({
          object: Type.Literal('limits'),
          plan_tier: nullable(Type.String()),
          concurrent_requests: Type.Object({
            limit: Type.Integer(),
            source: Type.Enum(['account', 'plan', 'server']),
          }),
          quota: windowSchema('request_limit'),
          requests_per_minute: windowSchema('limit'),
          tokens_per_minute: windowSchema('limit'),
          allowed_models: nullable(Type.Array(Type.String(), { description: 'null: every model.' })),
          models: Type.Array(
            Type.Object({
              model: Type.String(),
              context_length: Type.Integer({ description: 'Tokens of a prompt and its answer together.' }),
              max_output_tokens: nullable(
                Type.Integer({ description: 'Of one answer; null: as many as the context window leaves.' }),
              ),
            }),
            { description: 'Limits of one request, by the id of each model that the account may use.' },
          ),
        }),
      },
    ],
    handle: async (call) => {
      const { account: scope, services } = call;
      const { repositories, now } = services.operations;
      const account = await accountOf(call);
      const config = services.config();
      const plan = config.plans.find(({ name }) => name === account.plan);
      const windows = await repositories.limitWindowsOf({ subject: scope.id });
      const at = now();
      const window = (kind: WindowCount['kind'], lengthMs: number) => {
        const startsAt = windowStart(scope.id, lengthMs, at);
        const count = windows.find(
          (one) => one.kind === kind && one.lengthMs === lengthMs && one.startsAt === startsAt,
        );
        return {
          used: Math.max(0, count?.used ?? 0),
          window_start: secondsOf(startsAt),
          window_end: secondsOf(startsAt + lengthMs),
        };
      };
      const perMinute = (kind: 'requests' | 'tokens', limit: number | undefined) =>
        limit === undefined ? null : { limit, ...window(kind, minuteMs) };
      return {
        object: 'limits',
        plan_tier: plan?.name ?? null,
        concurrent_requests: concurrencyOf(account, plan, config),
        quota:
          plan?.quota === undefined
            ? null
            : { request_limit: plan.quota.requests, ...window('quota', plan.quota.windowMs) },
        requests_per_minute: perMinute('requests', plan?.requestsPerMinute),
        tokens_per_minute: perMinute('tokens', plan?.tokensPerMinute),
        allowed_models: account.models,
        models: usableModels(account, config).map(({ id, contextLength, maxOutputTokens }) => ({
          model: id,
          context_length: contextLength,
          max_output_tokens: maxOutputTokens,
        })),
      };
    },
  }),
  route({
    method: 'get',
    path: '/v1/models/prices',
    operationId: 'listModelPrices',
    tag: 'Limits',
    summary: 'Get the rates of the account',
    description:
      'The rates of each model that the account may use, in microcents per million tokens: current and scheduled ones. A request is charged by the rates in force when it starts.',
    access: everyRole,
    answers: [
      {
        status: 200,
        description: 'One row per model.',
        schema: wholeListSchema(
          Type.Object({
            object: Type.Literal('model_price'),
            model: Type.String(),
            list: rateSchema,
            now: Type.Object({
              ...rateSchema.properties,
              source: Type.Enum(['list', 'account']),
              until: nullable(Type.Integer({ description: 'Unix seconds; null: no end is set.' })),
            }),
            upcoming: Type.Array(
              Type.Object({ ...rateSchema.properties, from: Type.Integer(), until: nullable(Type.Integer()) }),
            ),
          }),
        ),
      },
    ],
    handle: async (call) => {
      const { account: scope, services } = call;
      const at = services.operations.now();
      const account = await accountOf(call);
      const prices = await pricesOf(call, at);
      const models = usableModels(account, services.config());
      return page(
        models.map(({ id, pricing }) => {
          const own = prices.filter((price) => price.modelId === id.toLowerCase() && price.accountId === scope.id);
          const list = rate({
            input: pricing.inputMicrocentsPerMillion,
            output: pricing.outputMicrocentsPerMillion,
            cacheRead: pricing.cacheReadMicrocentsPerMillion,
          });
          // The rates that began last apply (money.md, "Rates").
          const holding = own.findLast(
            ({ validFrom, validTo }) => validFrom <= at && (validTo === null || at < validTo),
          );
          return {
            object: 'model_price',
            model: id,
            list,
            now:
              holding === undefined
                ? { ...list, source: 'list', until: null }
                : { ...rate(holding), source: 'account', until: secondsOrNull(holding.validTo) },
            upcoming: own
              .filter(({ validFrom }) => validFrom > at)
              .map((price) => ({
                ...rate(price),
                from: secondsOf(price.validFrom),
                until: secondsOrNull(price.validTo),
              })),
          };
        }),
      );
    },
  }),
];

const minuteMs = 60_000;

async function accountOf({ account, services }: Pick<Call, 'account' | 'services'>): Promise<Account> {
  const found = await services.operations.repositories.getAccount({ accountId: account.id });
  if (found === undefined) throw notThere();
  return found;
}

function concurrencyOf(account: Account, plan: PlanConfig | undefined, config: Config) {
  const { concurrencyMax } = readAccountLimits(account.limits);
  if (concurrencyMax !== undefined) return { limit: concurrencyMax, source: 'account' };
  if (plan?.concurrencyMax !== undefined) return { limit: plan.concurrencyMax, source: 'plan' };
  return { limit: config.server.limits.concurrencyPerAccountMax, source: 'server' };
}

/** By id. */
const usableModels = (account: Account, { models }: Config): readonly ModelConfig[] =>
  models
    .filter(
      ({ id, dedicatedTo }) =>
        (dedicatedTo.length === 0 || dedicatedTo.includes(account.id)) &&
        (account.models === null || account.models.includes(id.toLowerCase())),
    )
    .toSorted((a, b) => (a.id < b.id ? -1 : 1));

const pagesMax = 100;

/** By model and beginning. */
async function pricesOf(
  { account, services }: Pick<Call, 'account' | 'services'>,
  at: number,
): Promise<AccountPrice[]> {
  const prices: AccountPrice[] = [];
  for (let pages = 0; pages < pagesMax; pages++) {
    const after = prices.at(-1);
    const page = await services.operations.repositories.listAccountPrices({
      accountId: account.id,
      endingAfter: at,
      limit: 1000,
      ...(after === undefined ? {} : { after }),
    });
    prices.push(...page);
    if (page.length < 1000) break;
  }
  return prices;
}

const rate = ({ input, output, cacheRead }: Pick<AccountPrice, 'input' | 'output' | 'cacheRead'>) => ({
  input_microcents: wholeOf(input),
  output_microcents: wholeOf(output),
  cache_read_microcents: wholeOf(cacheRead),
});
