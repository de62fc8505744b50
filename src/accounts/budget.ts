import Type from 'typebox';

import { budgetPeriods, modelSubject } from '../store/budget.ts';
import type { Budget, BudgetOwner } from '../store/budget.ts';
import { StoreError } from '../store/store-error.ts';
import { OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';
import { checkedModels } from './checks.ts';
import { listMax } from './key-limits.ts';
import { text, type Input } from './request-schema.ts';

/** The budget of a key, a member or an account for a period; without one, the balance is the only limit (money.md, "Budgets"). */
export const budgetSchema = Type.Object({
  microcents: Type.String({ pattern: '^[0-9]{1,19}$' }),
  per: Type.Enum([...budgetPeriods]),
});
/** A budget may be for one model. */
export const ofModel = { model: Type.Optional(text) };
export type BudgetInput = Input<typeof budgetSchema>;

export interface Budgeted {
  /** The id of the key or account, or the result of `memberSubject`. */
  readonly id: string;
  /** In lower case; null: it is for all models together. */
  readonly model: string | null;
  readonly budget: BudgetInput | null;
  /** In the current period. */
  readonly spentMicrocents: string;
  /** Milliseconds since 1970; null: never. */
  readonly renewsAt: number | null;
}

/** Sets a budget. Running requests go on; requests admitted from now on are held from it. Throws OperationError. */
export async function setBudget(
  of: BudgetOwner,
  id: string,
  { budget: input, model: named }: { readonly budget?: BudgetInput | undefined; readonly model?: string | undefined },
  { ledger, repositories, newId, now }: OperationServices,
): Promise<Budgeted> {
  const at = now();
  const budget = checkedBudget(input);
  const unknown = unknownSubject[of](id);
  const model = named === undefined ? null : checkedModel(named);
  const subject = model === null ? id : modelSubject(id, model);
  if (model !== null && budget !== null) {
    const others = (await repositories.modelBudgetsOf({ ownerIds: [id], at })).filter(
      ({ modelId }) => modelId !== model,
    );
    if (others.length >= listMax)
      throw new OperationError(`A key or an account has at most ${listMax} budgets of models.`);
  }
  const spent = budget === null ? 0n : await repositories.spentBesideBudget({ of, subject, per: budget.per, at });
  if (spent === undefined) throw new OperationError(unknown);
  try {
    const change = { kind: `${of}_budget`, subject, budget, spentBeforeMicrocents: spent } as const;
    await ledger.setBudget({ ...change, at, changeId: newId() });
  } catch (error) {
    if (!(error instanceof StoreError) || error.code !== 'not_found') throw error;
    throw new OperationError(unknown, { cause: error });
  }
  if (budget === null) return { id, model, budget: null, spentMicrocents: '0', renewsAt: null };
  const [status] = await repositories.budgetsOf({ subjects: [subject], at });
  return {
    id,
    model,
    budget: { microcents: String(budget.amountMicrocents), per: budget.per },
    spentMicrocents: String(status?.spentMicrocents ?? 0n),
    renewsAt: status?.balance.endsAt ?? null,
  };
}

function checkedModel(named: string): string {
  const [model] = checkedModels([named]) ?? [];
  if (model === undefined || !/^[\x21-\x7e]{1,128}$/.test(model))
    throw new OperationError('A budget of a model needs the id of the model.');
  return model;
}

const unknownSubject: Readonly<Record<BudgetOwner, (id: string) => string>> = {
  key: (id) => `There is no live key ${id}. List them with: tokenhouse keys list`,
  member: (id) => `There is no member ${id}.`,
  account: (id) => `There is no account ${id}. List them with: tokenhouse accounts list`,
};

/** Ten billion dollars. */
const budgetMax = 10n ** 18n;

export function checkedBudget(input: BudgetInput | undefined): Budget | null {
  if (input === undefined) return null;
  const amountMicrocents = BigInt(input.microcents);
  if (amountMicrocents < 0n || amountMicrocents > budgetMax)
    throw new OperationError('A budget must be between 0 and ten billion dollars.');
  if (!budgetPeriods.includes(input.per))
    throw new OperationError(`The period of a budget must be one of ${budgetPeriods.join(', ')}.`);
  return { amountMicrocents, per: input.per };
}
