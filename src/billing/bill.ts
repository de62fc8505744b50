import type { Prices } from '../catalog/pricing.ts';
import { balanceAt, type Budget, type Balance } from '../store/budget.ts';

/** What a hold is made for: the payer, the largest possible prompt and answer, and the prices of tokens. */
export interface Bill {
  readonly id: Uint8Array;
  readonly account: Payer;
  readonly key: Payer;
  readonly model: { readonly id: string };
  readonly startedAt: number;
  /** The plan that pays: nothing is held or charged, whatever it costs. null: it is paid from credit. */
  readonly plan: string | null;
  /** The account's rates for the model when the request started. */
  readonly prices: Prices;
  /** Upper bound of the prompt's tokens, from its bytes, or their exact number. */
  readonly promptTokensMax: number;
  /** Largest number of generated tokens of all choices together. */
  readonly completionTokensMax: number;
}

interface Payer {
  readonly id: string;
  /** Held from and charged to in addition to the account's credit. */
  readonly budget?: Budget | undefined;
}

/** A budget that a request is also held from and charged to. */
export interface BudgetBill {
  readonly of: 'key' | 'account';
  readonly budget: Budget;
  /** The balance of the period in which the request started. */
  readonly balance: Balance;
}

/** The budgets of the key and of its account; `undefined`: neither has one, or a plan pays. */
export function budgetsOf({
  key,
  account,
  startedAt,
  plan,
}: Pick<Bill, 'key' | 'account' | 'startedAt' | 'plan'>): readonly BudgetBill[] | undefined {
  if (plan !== null || (key.budget === undefined && account.budget === undefined)) return undefined;
  const bills: BudgetBill[] = [];
  for (const [of, { id, budget }] of [['key', key] as const, ['account', account] as const])
    if (budget !== undefined) bills.push({ of, budget, balance: balanceAt(id, budget.per, startedAt) });
  return bills;
}

/** A hold starts with room for this many generated tokens, and is extended by as many (docs/money.md). */
export const holdStepTokens = 2_048;
