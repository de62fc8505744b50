import type { Usage } from '../generation/event.ts';
import { balanceAt, type Budget, type Balance } from '../store/budget.ts';

/** What a hold is made for: the payer, the largest possible prompt, and the prices of tokens. */
export interface Bill {
  readonly requestId: Uint8Array;
  readonly accountId: string;
  readonly keyId: string;
  readonly modelId: string;
  readonly startedAt: number;
  /** A plan pays: nothing is held or charged, whatever it costs. */
  readonly isCovered: boolean;
  /** Held from in addition to the account's credit; left out: none. */
  readonly budgets?: readonly BudgetBill[] | undefined;
  /** Upper bound of the prompt's tokens, from its bytes, or their exact number. */
  readonly promptTokens: number;
  /** Largest number of generated tokens of all choices together. */
  readonly completionTokensMax: number;
  cost(usage: Usage): bigint;
  /** Exact number of prompt tokens, called only when the bound is not funded; `undefined` when it cannot be counted. */
  countPrompt(): Promise<number | undefined>;
}

/** A budget that a request is also held from and charged to. */
export interface BudgetBill {
  readonly of: 'key' | 'account';
  readonly budget: Budget;
  /** The balance of the period in which the request started. */
  readonly balance: Balance;
}

/** The budgets of a key and of its account, for a request that started at that time; `undefined`: neither has one. */
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

/** A hold starts with room for this many generated tokens, and is extended by as many (docs/money.md). */
export const holdStepTokens = 2_048;
