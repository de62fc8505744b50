/** The most that a key or a member may spend: how the API shows and sets their budget. */
import Type from 'typebox';
import type { Static } from 'typebox';

import type { BudgetInput } from '../accounts/budget.ts';
import { listMax } from '../accounts/key-limits.ts';
import type { OperationServices } from '../accounts/operation.ts';
import { ApiError } from '../platform/errors.ts';
import type { Budget, BudgetPeriod } from '../store/budget.ts';
import type { BudgetStatus } from '../store/repositories/budgets.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import { centsMax, centsOf, exactAmount, nullable, secondsOrNull, wholeOf } from './wire.ts';

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
export function limitOf(budget: Omit<BudgetStatus, 'heldMicrocents'> | undefined) {
  const left = budget === undefined ? 0n : budget.amountMicrocents - budget.spentMicrocents;
  return {
    limit_cents: budget === undefined ? null : centsOf(budget.amountMicrocents),
    limit_microcents: budget === undefined ? null : wholeOf(budget.amountMicrocents),
    limit_remaining_microcents: budget === undefined ? null : wholeOf(left > 0n ? left : 0n),
    limit_reset: budget === undefined ? null : limitResetOf[budget.per],
    limit_resets_at: secondsOrNull(budget?.balance.endsAt ?? null),
  };
}

/** The same for single models. */
export const modelBudgetsSchema = {
  budgets_by_model: Type.Array(Type.Object({ model: Type.String(), ...limitSchema }), {
    description: 'What may be spent on single models, in addition to the limit of all together; ids in lower case.',
  }),
};

/** The shown fields of each key or account. */
export async function modelBudgetsShown(ownerIds: readonly string[], repositories: Repositories, now: number) {
  const budgets = await repositories.modelBudgetsOf({ ownerIds, at: now });
  return (ownerId: string): Static<Type.TObject<typeof modelBudgetsSchema>> => ({
    budgets_by_model: budgets
      .filter((budget) => budget.ownerId === ownerId)
      .map((budget) => ({ model: budget.modelId, ...limitOf(budget) })),
  });
}

/** Fields that can be set. */
export const limitSettings = {
  limit_cents: Type.Optional(nullable(Type.Integer({ minimum: 0, maximum: centsMax }))),
  limit_microcents: Type.Optional(
    nullable(
      Type.Integer({
        minimum: 0,
        maximum: Number.MAX_SAFE_INTEGER,
        description: 'Instead of limit_cents: exact, where it has fractions of a cent.',
      }),
    ),
  ),
  limit_reset: Type.Optional(nullable(Type.Enum([...limitResets], { description: 'null: the limit never renews.' }))),
};

/** Fields that set budgets of single models; the list replaces the earlier one. */
export const modelBudgetSettings = {
  budgets_by_model: Type.Optional(
    Type.Array(
      Type.Object(
        {
          model: Type.String({ minLength: 1, maxLength: 128, pattern: '^\\S+$' }),
          limit_cents: Type.Optional(Type.Integer({ minimum: 0, maximum: centsMax })),
          limit_microcents: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
          limit_reset: limitSettings.limit_reset,
        },
        { additionalProperties: false },
      ),
      {
        maxItems: listMax,
        description:
          'What may be spent on single models, each in limit_cents or limit_microcents; replaces the earlier list. A limit without limit_reset never renews.',
      },
    ),
  ),
};
export type ModelBudgetSettings = {
  -readonly [Name in keyof typeof modelBudgetSettings]?: Static<(typeof modelBudgetSettings)[Name]>;
};

/** The budgets of models that change, with those that are not in the list any more; an entry without a budget removes it. */
export async function modelBudgetsAskedFor(
  { budgets_by_model: asked }: ModelBudgetSettings,
  ownerId: string,
  { repositories, now }: Pick<OperationServices, 'repositories' | 'now'>,
): Promise<readonly { readonly model: string; readonly budget: BudgetInput | undefined }[]> {
  if (asked === undefined) return [];
  const known = await repositories.modelBudgetsOf({ ownerIds: [ownerId], at: now() });
  const there = new Map(asked.map(({ model, ...limit }) => [model.toLowerCase(), newBudget(limit)]));
  const changed = [...there].filter(([model, { microcents, per }]) => {
    const before = known.find(({ modelId }) => modelId === model);
    return before?.amountMicrocents !== BigInt(microcents) || before.per !== per;
  });
  return [
    // First, so that there is room for the others.
    ...known.filter(({ modelId }) => !there.has(modelId)).map(({ modelId }) => ({ model: modelId, budget: undefined })),
    ...changed.map(([model, budget]) => ({ model, budget })),
  ];
}

type LimitSettings = { -readonly [Field in keyof typeof limitSettings]?: Static<(typeof limitSettings)[Field]> };

/** The requested budget, based on the `known` one; null: none, `undefined`: unchanged. */
export function budgetAskedFor(settings: LimitSettings, known: Budget | null): BudgetInput | null | undefined {
  const { limit_reset: reset } = settings;
  const amount = exactAmount(settings, 'limit_cents', 'limit_microcents');
  if (amount === null || (amount === undefined && reset === undefined)) return amount;
  if (amount === undefined && known === null)
    throw new ApiError('unsupported_value', 'There is no limit yet: give limit_cents too.', { param: 'limit_reset' });
  // A new period alone keeps the amount, and a new amount alone keeps the period.
  return {
    microcents: String(amount ?? known!.amountMicrocents),
    per: reset === undefined ? (known?.per ?? 'total') : reset === null ? 'total' : periodOfReset[reset],
  };
}

function newBudget(settings: LimitSettings): BudgetInput {
  const budget = budgetAskedFor(settings, null);
  if (budget !== undefined && budget !== null) return budget;
  throw new ApiError('unsupported_value', 'A budget of a model needs limit_cents or limit_microcents.', {
    param: 'budgets_by_model',
  });
}
