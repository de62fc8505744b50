import Type from 'typebox';

import { readAccountLimits } from '../../accounts/key-limits.ts';
import type { Config, PlanConfig } from '../../config/config.ts';
import { windowStart } from '../../billing/rate-limits/windows.ts';
import type { WindowCount } from '../../store/repositories/limit-windows.ts';
import type { Account } from '../../store/repositories/accounts.ts';
import { accountOf, usableModels } from '../account-models.ts';
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
        models: usableModels(account, config, at).map(({ id, contextLength, maxOutputTokens }) => ({
          model: id,
          context_length: contextLength,
          max_output_tokens: maxOutputTokens,
        })),
      };
    },
  }),
];

const minuteMs = 60_000;

function concurrencyOf(account: Account, plan: PlanConfig | undefined, config: Config) {
  const { concurrencyMax } = readAccountLimits(account.limits);
  if (concurrencyMax !== undefined) return { limit: concurrencyMax, source: 'account' };
  if (plan?.concurrencyMax !== undefined) return { limit: plan.concurrencyMax, source: 'plan' };
  return { limit: config.server.limits.concurrencyPerAccountMax, source: 'server' };
}
