import { costMicrocents, type PricedUsage, type Prices } from '../catalog/pricing.ts';
import { balanceAt, modelSubject, type Balance, type Budget, type BudgetOwner } from '../store/budget.ts';

/** What a hold is made for: the payer, the largest possible prompt and completion, and the token prices. */
export interface Bill {
  readonly id: Uint8Array;
  readonly account: Payer;
  /** `member` is set if the key belongs to a person who has a budget. */
  readonly key: Payer & { readonly member?: Payer | undefined };
  readonly model: { readonly id: string };
  readonly startedAt: number;
  /** The plan that pays, in which case nothing is held or charged; null if credit pays. */
  readonly plan: string | null;
  /** The account's rates for the model when the request started. */
  readonly prices: Prices;
  /** Upper bound of the prompt's tokens, derived from its bytes, or their exact number. */
  readonly promptTokensMax: number;
  /** Maximum generated tokens, summed over all choices. */
  readonly completionTokensMax: number;
}

export interface Payer {
  /** The id of the budget's owner. */
  readonly id: string;
  /** Held from and charged to in addition to the account's credit. */
  readonly budget?: Budget | undefined;
  /** The same for single models, by their ids in lower case. */
  readonly modelBudgets?: ReadonlyMap<string, Budget> | undefined;
}

/** A budget that a request is also held from and charged to. */
export interface BudgetBill {
  readonly of: BudgetOwner;
  /** The model that it is for; absent: all models together. */
  readonly modelId?: string;
  readonly budget: Budget;
  /** The balance of the period in which the request started. */
  readonly balance: Balance;
}

/** Whether a budget is checked in addition to the account's credit, unless a plan pays. */
export const hasBudget = ({ key, account, model }: Pick<Bill, 'key' | 'account' | 'model'>): boolean =>
  key.budget !== undefined ||
  key.member !== undefined ||
  account.budget !== undefined ||
  budgetForModel(key, model) !== undefined ||
  budgetForModel(account, model) !== undefined;

/** The budget of a payer for one model. */
export const budgetForModel = ({ modelBudgets }: Payer, { id }: Bill['model']): Budget | undefined =>
  modelBudgets?.get(id.toLowerCase());

/** The budgets of the key, of the member it belongs to and of its account; undefined if there is none or a plan pays. */
export function budgetsOf({
  key,
  account,
  model,
  startedAt,
  plan,
}: Pick<Bill, 'key' | 'account' | 'model' | 'startedAt' | 'plan'>): readonly BudgetBill[] | undefined {
  if (plan !== null || !hasBudget({ key, account, model })) return undefined;
  const bills: BudgetBill[] = [];
  const payers = [
    ['key', key],
    ['member', key.member],
    ['account', account],
  ] as const;
  for (const [of, payer] of payers) {
    if (payer === undefined) continue;
    const { id, budget } = payer;
    if (budget !== undefined) bills.push({ of, budget, balance: balanceAt(id, budget.per, startedAt) });
    const ofModel = budgetForModel(payer, model);
    if (ofModel === undefined) continue;
    const balance = balanceAt(modelSubject(id, model.id), ofModel.per, startedAt);
    bills.push({ of, modelId: model.id, budget: ofModel, balance });
  }
  return bills;
}

/** A hold starts with room for this many generated tokens, and is extended by as many (docs/money.md). */
export const holdStepTokens = 2_048;

/** What a plan pays for. */
export const everything: PricedUsage = {
  promptTokens: Infinity,
  cachedTokens: Infinity,
  completionTokens: Infinity,
};

export interface Estimate {
  readonly amount: bigint;
  /** The largest usage that the amount pays for. */
  readonly covered: PricedUsage;
}

/** Bounded estimate of the fitted request: its input, plus the smaller of its output and one step. */
export function estimate(bill: Bill, promptTokens: number): Estimate {
  const covered: PricedUsage = {
    promptTokens,
    cachedTokens: 0,
    completionTokens: Math.min(bill.completionTokensMax, holdStepTokens),
  };
  return { amount: costMicrocents(covered, bill.prices), covered };
}
