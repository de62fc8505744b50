import type { Usage } from '../generation/event.ts';
import { balanceAt, type Budget, type Balance } from '../store/budget.ts';

/** What a hold is made for: whose money, the largest prompt that may come, and what tokens cost. */
export interface Bill {
  readonly requestId: Uint8Array;
  readonly accountId: string;
  readonly keyId: string;
  readonly modelId: string;
  readonly startedAt: number;
  /** A plan pays: nothing is held and nothing charged, whatever it costs. */
  readonly isCovered: boolean;
  /** Besides the credit of the account; left out: none. */
  readonly budgets?: readonly BudgetBill[] | undefined;
  /** Upper bound of the prompt's tokens, from its bytes, or their exact number. */
  readonly promptTokens: number;
  /** Largest number of generated tokens of all choices together. */
  readonly completionTokensMax: number;
  cost(usage: Usage): bigint;
  /** Exact number of prompt tokens, asked for only when the bound is not funded; `undefined` when nobody can count. */
  countPrompt(): Promise<number | undefined>;
}

/** A budget that a request is held from and charged to as well. */
export interface BudgetBill {
  readonly of: 'key' | 'account';
  readonly budget: Budget;
  /** Of the period in which the request started. */
  readonly balance: Balance;
}

/** The budgets of a key and of its account, for a request that started then; `undefined`: neither has one. */
export function budgetsOf(
  key: { readonly id: string; readonly budget?: Budget | undefined },
  account: { readonly id: string; readonly budget?: Budget | undefined },
  startedAt: number,
): readonly BudgetBill[] | undefined {
  if (key.budget === undefined && account.budget === undefined) return undefined;
  const bills: BudgetBill[] = [];
  for (const [of, { id, budget }] of [['key', key] as const, ['account', account] as const])
    if (budget !== undefined) bills.push({ of, budget, balance: balanceAt(id, budget.per, startedAt) });
  return bills;
}

/** A hold starts with room for so many generated tokens, and is extended by as many (docs/money.md). */
export const holdStepTokens = 2_048;
