import Type from 'typebox';
import type { Static } from 'typebox';

import { readLimits } from '../accounts/key-limits.ts';
import { roles } from '../accounts/role.ts';
import { periodOf } from '../store/budget.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { ApiKey } from '../store/repositories/keys.ts';
import { limitOf, limitSchema, modelBudgetsSchema, modelBudgetsShown } from './limit-object.ts';
import { rateSchema, ratesShown } from './rate-fields.ts';
import { tierSchema, tiersShown } from './tier-fields.ts';
import { nullable, secondsOf, secondsOrNull, wholeOf } from './wire.ts';

const time = (description: string) => Type.Integer({ description: `${description}, in unix seconds.` });
const amount = (description: string) => Type.Integer({ description: `${description}, in microcents.` });

export const keySchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('key'),
  name: Type.String(),
  label: Type.String({
    description: 'The part of the secret that may be shown: its beginning and its last four characters.',
  }),
  type: Type.Enum(['serverless', 'plan', 'management'], {
    description: 'Paid from credit, paid by the plan of the account, or for the account host.',
  }),
  role: nullable(Type.Enum([...roles])),
  is_management_key: Type.Boolean(),
  is_operator: Type.Boolean(),
  user_id: nullable(Type.String()),
  user_scoped: Type.Boolean({ description: 'The key belongs to a person; only such keys can upload files.' }),
  disabled: Type.Boolean(),
  ...limitSchema,
  usage: amount('What its requests have cost'),
  usage_daily: amount('What they have cost since midnight UTC'),
  usage_weekly: amount('What they have cost since Monday'),
  usage_monthly: amount('What they have cost since the first of the month'),
  allowed_models: nullable(Type.Array(Type.String(), { description: 'null: all models that the account may use.' })),
  allowed_endpoints: nullable(Type.Array(Type.String(), { description: 'null: all.' })),
  ip_ranges: nullable(Type.Array(Type.String(), { description: 'null: from everywhere.' })),
  zdr_only: Type.Boolean(),
  max_concurrency: nullable(Type.Integer()),
  ...rateSchema,
  ...modelBudgetsSchema,
  ...tierSchema,
  session_budget_cents: nullable(Type.Integer({ description: 'What one conversation may cost.' })),
  tags: Type.Array(Type.String()),
  created_at: time('When it was created'),
  updated_at: time('When it was last changed, changes of its limit aside'),
  expires_at: nullable(time('When it expires')),
  revoked_at: nullable(time('When it was deleted')),
  last_used_at: nullable(
    time('When its last request ended; rounded up to the hour when that is more than an hour or two ago'),
  ),
  previous_secret_ends_at: nullable(time('Until when the secret before the last rotation works')),
});
export type KeyObject = Static<typeof keySchema>;

/** Keys of one account, with their spending. */
export async function keyObjects(
  accountId: string,
  keys: readonly ApiKey[],
  repositories: Repositories,
  now: number,
): Promise<readonly KeyObject[]> {
  if (keys.length === 0) return [];
  const ids = keys.map(({ id }) => id);
  const [only] = ids.length === 1 ? ids : [];
  const since = [0, ...(['day', 'week', 'month'] as const).map((period) => periodOf(period, now).startsAt)];
  const of = only === undefined ? { accountId } : { accountId, keyId: only };
  const [total, daily, weekly, monthly] = await repositories.spendOfKeys({ ...of, since, to: now + 1 });
  const budgets = new Map(
    (await repositories.budgetsOf({ subjects: ids, at: now })).map((budget) => [budget.balance.subject, budget]),
  );
  const modelBudgets = await modelBudgetsShown(ids, repositories, now);
  const used = new Map(
    (await repositories.lastUseOfKeys({ accountId, keyIds: ids })).map(({ keyId, at }) => [keyId, at]),
  );
  return keys.map((key): KeyObject => {
    const limits = readLimits(key.limits);
    return {
      id: key.id,
      object: 'key',
      name: key.name,
      label: key.display,
      type: key.role !== null ? 'management' : limits.planKey === true ? 'plan' : 'serverless',
      role: roles.find((role) => role === key.role) ?? null,
      is_management_key: key.role !== null,
      is_operator: key.isOperator,
      user_id: key.userId,
      user_scoped: key.userId !== null,
      disabled: key.disabledAt !== null,
      ...limitOf(budgets.get(key.id)),
      usage: wholeOf(total?.get(key.id) ?? 0n),
      usage_daily: wholeOf(daily?.get(key.id) ?? 0n),
      usage_weekly: wholeOf(weekly?.get(key.id) ?? 0n),
      usage_monthly: wholeOf(monthly?.get(key.id) ?? 0n),
      allowed_models: key.models === null ? null : [...key.models],
      allowed_endpoints: limits.endpoints === undefined ? null : [...limits.endpoints],
      ip_ranges: limits.addresses === undefined ? null : [...limits.addresses],
      zdr_only: limits.zdrOnly ?? false,
      max_concurrency: limits.concurrencyMax ?? null,
      ...ratesShown(limits),
      ...modelBudgets(key.id),
      ...tiersShown(limits),
      session_budget_cents: limits.sessionCents ?? null,
      tags: [...key.tags],
      created_at: secondsOf(key.createdAt),
      updated_at: secondsOf(key.updatedAt),
      expires_at: secondsOrNull(key.expiresAt),
      revoked_at: secondsOrNull(key.revokedAt),
      last_used_at: secondsOrNull(used.get(key.id) ?? null),
      previous_secret_ends_at:
        key.previousEndsAt !== null && key.previousEndsAt > now ? secondsOf(key.previousEndsAt) : null,
    };
  });
}
