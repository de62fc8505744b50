import { budgetPeriods } from '../store/budget.ts';
import type { Budget, BudgetPeriod } from '../store/budget.ts';
import { StoreError } from '../store/store-error.ts';
import { accountMeant, OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';

/** The budget of a key or an account for a period; without one, the balance is the only limit (money.md, "Budgets"). */
export type BudgetSetting =
  | { readonly kind: 'budget_key'; readonly keyId: string; readonly budget?: BudgetInput | undefined }
  | {
      readonly kind: 'budget_account';
      readonly accountId: string | undefined;
      readonly budget?: BudgetInput | undefined;
    };

export interface BudgetInput {
  /** As text. */
  readonly microcents: string;
  readonly per: BudgetPeriod;
}

export interface Budgeted {
  readonly kind: 'budgeted';
  /** Id of the key or the account. */
  readonly id: string;
  readonly budget: BudgetInput | null;
  /** In the current period. */
  readonly spentMicrocents: string;
  /** Milliseconds since 1970; null: never. */
  readonly renewsAt: number | null;
}

/** Throws OperationError. Running requests go on; requests admitted from now on are held from the budget. */
export async function setBudget(input: BudgetSetting, services: OperationServices): Promise<Budgeted> {
  const { ledger, repositories, newId, directory, now } = services;
  const at = now();
  const budget = checkedBudget(input.budget);
  const isKey = input.kind === 'budget_key';
  const subject = isKey ? input.keyId : await accountMeant(input.accountId, repositories);
  const unknown = `There is no ${isKey ? 'live key' : 'account'} ${subject}. List them with: tokenhouse ${isKey ? 'keys' : 'accounts'} list`;
  const of = isKey ? 'key' : 'account';
  const spent = budget === null ? 0n : await repositories.spentBesideBudget({ of, subject, per: budget.per, at });
  if (spent === undefined) throw new OperationError(unknown);
  const kind = isKey ? 'key_budget' : 'account_budget';
  try {
    await ledger.setBudget({ kind, subject, budget, spentBeforeMicrocents: spent, at, changeId: newId() });
  } catch (error) {
    if (!(error instanceof StoreError) || error.code !== 'not_found') throw error;
    throw new OperationError(unknown, { cause: error });
  }
  directory?.apply(
    isKey ? { kind: 'key_budget', keyId: subject, budget } : { kind: 'account_budget', accountId: subject, budget },
  );
  if (budget === null) return { kind: 'budgeted', id: subject, budget: null, spentMicrocents: '0', renewsAt: null };
  const [status] = await repositories.budgetsOf({ subjects: [subject], at });
  return {
    kind: 'budgeted',
    id: subject,
    budget: { microcents: String(budget.amountMicrocents), per: budget.per },
    spentMicrocents: String(status?.spentMicrocents ?? 0n),
    renewsAt: status?.balance.endsAt ?? null,
  };
}

/** Ten billion dollars. */
const budgetMax = 10n ** 18n;

export function checkedBudget(input: BudgetInput | undefined): Budget | null {
  if (input === undefined) return null;
  const amountMicrocents = BigInt(input.microcents);
  if (amountMicrocents < 0n || amountMicrocents > budgetMax)
    throw new OperationError('A budget is at least 0 and at most ten billion dollars.');
  if (!budgetPeriods.includes(input.per)) throw new OperationError(`A budget is per ${budgetPeriods.join(', ')}.`);
  return { amountMicrocents, per: input.per };
}
