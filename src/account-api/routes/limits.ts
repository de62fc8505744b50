import Type from 'typebox';

import { ratesIn, readAccountLimits } from '../../accounts/key-limits.ts';
import type { Rates } from '../../accounts/key-limits.ts';
import { rateWindows } from '../../billing/rate-limits/rates.ts';
import type { Config, PlanConfig } from '../../config/config.ts';
import { windowStart } from '../../billing/rate-limits/windows.ts';
import { ofModel } from '../../store/limit-leases.ts';
import type { WindowCount } from '../../store/repositories/limit-windows.ts';
import type { Account } from '../../store/repositories/accounts.ts';
import { accountOf, usableModels } from '../account-models.ts';
import { byField } from '../rate-fields.ts';
import { everyRole, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import { nullable, secondsOf } from '../wire.ts';

const windowSchema = (limit: string) =>
  nullable(
    Type.Object({
      [limit]: Type.Integer(),
      used: Type.Integer({ description: 'Used in the current window; with several processes an upper bound.' }),
      window_start: Type.Integer({ description: 'Unix seconds.' }),
      window_end: Type.Integer(),
    }),
  );

const ratesSchema = byField(() => windowSchema('limit'));

export const limitRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/limits',
    operationId: 'getLimits',
    tag: 'Limits',
    summary: 'Get the limits of the account',
    description:
      'Its plan and how much of it is used, limits of concurrent requests and of requests, tokens and spending in a time, the models it may use, and how long their requests may be.',
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
          ...ratesSchema,
          by_model: Type.Array(Type.Object({ model: Type.String(), ...ratesSchema }), {
            description: 'Limits of single models, in addition to those of all together.',
          }),
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
      const { byModel = {}, ...own } = readAccountLimits(account.limits);
      const subjects = [scope.id, ...Object.keys(byModel).map((id) => ofModel(scope.id, id))];
      const windows = await repositories.limitWindowsOf({ subjects });
      const at = now();
      const window = (subject: string, kind: WindowCount['kind'], lengthMs: number) => {
        const startsAt = windowStart(subject, lengthMs, at);
        const count = windows.find(
          (one) =>
            one.subject === subject && one.kind === kind && one.lengthMs === lengthMs && one.startsAt === startsAt,
        );
        return {
          used: Math.max(0, count?.used ?? 0),
          window_start: secondsOf(startsAt),
          window_end: secondsOf(startsAt + lengthMs),
        };
      };
      const rates = (subject: string, of: Rates, beneath: Rates = {}) =>
        byField((name) => {
          const limit = of[name] ?? beneath[name];
          if (limit === undefined) return null;
          const [kind, lengthMs, unit] = rateWindows[name];
          const { used, ...times } = window(subject, kind, lengthMs);
          return { limit, used: Math.ceil(used / unit), ...times };
        });
      return {
        object: 'limits',
        plan_tier: plan?.name ?? null,
        concurrent_requests: concurrencyOf(account, plan, config),
        quota:
          plan?.quota === undefined
            ? null
            : { request_limit: plan.quota.requests, ...window(scope.id, 'quota', plan.quota.windowMs) },
        ...rates(scope.id, own, plan),
        by_model: Object.entries(byModel).map(([model, of]) => ({
          model,
          ...rates(ofModel(scope.id, model), ratesIn(of ?? {})),
        })),
        allowed_models: account.models,
        models: usableModels(account, config, at).map(({ id, contextLength, maxOutputTokens }) => ({
          model: id,
          context_length: contextLength,
          max_output_tokens: maxOutputTokens,
        })),
      };
    },
  }),
];

function concurrencyOf(account: Account, plan: PlanConfig | undefined, config: Config) {
  const { concurrencyMax } = readAccountLimits(account.limits);
  if (concurrencyMax !== undefined) return { limit: concurrencyMax, source: 'account' };
  if (plan?.concurrencyMax !== undefined) return { limit: plan.concurrencyMax, source: 'plan' };
  return { limit: config.server.limits.concurrencyPerAccountMax, source: 'server' };
}
