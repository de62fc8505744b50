/** The most that a key or a member may spend: how the API shows and sets their budget. */
import Type from 'typebox';
import type { Static } from 'typebox';

import type { BudgetInput } from '../accounts/budget.ts';
import { ApiError } from '../platform/errors.ts';
import type { Budget, BudgetPeriod } from '../store/budget.ts';
import type { BudgetStatus } from '../store/repositories/budgets.ts';
import { centsMax, centsOf, microcentsPerCent, nullable, secondsOrNull, wholeOf } from './wire.ts';

const limitResets = ['daily', 'weekly', 'monthly'] as const;
type LimitReset = (typeof limitResets)[number];

const limitResetOf: Readonly<Record<BudgetPeriod, LimitReset | null>> = {
  day: 'daily',
  week: 'weekly',
  month: 'monthly',
  total: null,
};
const periodOfReset: Readonly<Record<LimitReset, BudgetPeriod>> = { daily: 'day', weekly: 'week', monthly: 'month' };

/** Fields that are shown. */
export const limitSchema = {
  limit_cents: nullable(Type.Integer({ description: 'The most that may be spent in a period.' })),
  limit_microcents: nullable(Type.Integer()),
  limit_remaining_microcents: nullable(
    Type.Integer({
      description:
        'What is left of the limit in the current period, without what running requests hold, in microcents.',
    }),
  ),
  limit_reset: nullable(
    Type.Enum([...limitResets], { description: 'How often the limit renews, in UTC; null: never.' }),
  ),
  limit_resets_at: nullable(Type.Integer({ description: 'When it renews next, in unix seconds.' })),
};

/** Returns the shown fields; `undefined`: no budget. */
export function limitOf(budget: BudgetStatus | undefined) {
  const left = budget === undefined ? 0n : budget.amountMicrocents - budget.spentMicrocents;
  return {
    limit_cents: budget === undefined ? null : centsOf(budget.amountMicrocents),
    limit_microcents: budget === undefined ? null : wholeOf(budget.amountMicrocents),
    limit_remaining_microcents: budget === undefined ? null : wholeOf(left > 0n ? left : 0n),
    limit_reset: budget === undefined ? null : limitResetOf[budget.per],
    limit_resets_at: secondsOrNull(budget?.balance.endsAt ?? null),
  };
}

/** Fields that can be set. */
export const limitSettings = {
  /** Ten billion dollars in cents: the maximum of a budget. */
  limit_cents: Type.Optional(nullable(Type.Integer({ minimum: 0, maximum: centsMax }))),
  limit_reset: Type.Optional(nullable(Type.Enum([...limitResets], { description: 'null: the limit never renews.' }))),
};
type LimitSettings = { -readonly [Field in keyof typeof limitSettings]?: Static<(typeof limitSettings)[Field]> };

/** The requested budget, based on the `known` one; null: none, `undefined`: unchanged. */
export function budgetAskedFor(
  { limit_cents: limit, limit_reset: reset }: LimitSettings,
  known: Budget | null,
): BudgetInput | null | undefined {
  if (limit === null || (limit === undefined && reset === undefined)) return limit;
  if (limit === undefined && known === null)
    throw new ApiError('unsupported_value', 'There is no limit yet: give limit_cents too.', { param: 'limit_reset' });
  // A new period alone keeps the amount, and a new amount alone keeps the period.
  return {
    microcents: String(limit === undefined ? known!.amountMicrocents : BigInt(limit) * microcentsPerCent),
    per: reset === undefined ? (known?.per ?? 'total') : reset === null ? 'total' : periodOfReset[reset],
  };
}
