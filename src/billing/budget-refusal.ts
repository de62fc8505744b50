import { ApiError } from '../platform/errors.ts';
import type { BudgetOwner, BudgetPeriod } from '../store/budget.ts';
import type { BudgetBill } from './bill.ts';
import { flooredCents } from './cents.ts';
import { dollars } from '../platform/dollars.ts';

/**
 * Returns the 402 for a budget that does not cover a request (specification §7.6). Its amounts are the budget's; it also states whose
 * budget it is, for which model if for one alone, its period and amount, and when it renews.
 */
export function budgetRefusal(
  { of, modelId, budget, balance }: BudgetBill,
  amounts: Readonly<Record<string, number | string>>,
): ApiError {
  const renewsAt = balance.endsAt === null ? undefined : new Date(balance.endsAt).toISOString();
  return new ApiError(
    'insufficient_credits',
    `The budget of ${named[of]}${modelId === undefined ? '' : ` for the model '${modelId}'`}, ${dollars(budget.amountMicrocents)} ${inWords[budget.per]}, does not cover this request. ` +
      `${renewsAt === undefined ? 'It does not renew' : `It renews at ${renewsAt}`}. ` +
      (of === 'member' ? 'Ask an owner or admin of the account to raise it' : 'Raise the budget') +
      ', or lower max_tokens.',
    {
      extra: {
        ...amounts,
        budget_of: of,
        ...(modelId === undefined ? {} : { budget_model: modelId }),
        budget_period: budget.per,
        budget_limit_cents: flooredCents(budget.amountMicrocents),
        ...(renewsAt === undefined ? {} : { budget_renews_at: renewsAt }),
      },
    },
  );
}

const named: Readonly<Record<BudgetOwner, string>> = {
  key: 'this key',
  member: 'the member of the account who has this key',
  account: 'this account',
};

const inWords: Readonly<Record<BudgetPeriod, string>> = {
  day: 'a day',
  week: 'a week',
  month: 'a month',
  total: 'in total',
};
