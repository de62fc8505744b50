import type { Budgeted, BudgetInput } from '../accounts/budget.ts';
import { OperationError } from '../accounts/operation.ts';
import { dollars } from '../platform/dollars.ts';
import type { BudgetPeriod } from '../store/budget.ts';
import type { BudgetStatus } from '../store/repositories/budgets.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Context } from './context.ts';
import { writing } from './database.ts';

export interface BudgetOptions {
  readonly per: BudgetPeriod;
  readonly none?: boolean;
}

/** Sets, replaces or removes the budget of a key or an account. */
export async function setBudget(
  context: Context,
  options: BudgetOptions,
  of: 'key' | 'account',
  id: string,
  amountMicrocents: bigint | undefined,
): Promise<number> {
  if ((amountMicrocents === undefined) === (options.none !== true))
    throw new OperationError('Give an amount in dollars, or --none.');
  const budget = amountMicrocents === undefined ? undefined : inputOf(amountMicrocents, options.per);
  const answer = await writing(
    context,
    of === 'key' ? { kind: 'budget_key', keyId: id, budget } : { kind: 'budget_account', accountId: id, budget },
  );
  context.print.result({ id: answer.id, budget: answer.budget === null ? null : budgetJson(statusOf(answer)) }, [
    answer.budget === null
      ? `${answer.id} has no budget from now on.`
      : `${answer.id} may spend ${inWords(statusOf(answer))} from now on; running requests continue. ` +
        `${dollars(statusOf(answer).spentMicrocents)} is spent${renewal(statusOf(answer))}.`,
  ]);
  return 0;
}

export const inputOf = (microcents: bigint, per: BudgetPeriod): BudgetInput => ({
  microcents: String(microcents),
  per,
});

/** A budget's state in the current period. */
type Shown = Pick<BudgetStatus, 'amountMicrocents' | 'per' | 'spentMicrocents' | 'heldMicrocents'> & {
  readonly renewsAt: number | null;
};

function statusOf({ budget, spentMicrocents, renewsAt }: Budgeted): Shown {
  return {
    amountMicrocents: BigInt(budget!.microcents),
    per: budget!.per,
    spentMicrocents: BigInt(spentMicrocents),
    heldMicrocents: 0n,
    renewsAt,
  };
}

/** The budgets of the keys or accounts that have one, by their ids. */
export async function readBudgets(
  repositories: Repositories,
  subjects: readonly string[],
  at: number,
): Promise<ReadonlyMap<string, Shown>> {
  const found = await repositories.budgetsOf({ subjects, at });
  return new Map(found.map((status) => [status.balance.subject, { ...status, renewsAt: status.balance.endsAt }]));
}

export function budgetJson(budget: Shown | undefined) {
  if (budget === undefined) return null;
  const { amountMicrocents, per, spentMicrocents, heldMicrocents, renewsAt } = budget;
  return {
    amount_microcents: amountMicrocents,
    per,
    spent_microcents: spentMicrocents,
    held_microcents: heldMicrocents,
    left_microcents: leftOf(budget),
    renews_at: renewsAt === null ? null : new Date(renewsAt).toISOString(),
  };
}

/** For a cell of a table: `$10.00 a month: $2.50 spent, $0.10 held, $7.40 left, renews 2026-12-01`. */
export function budgetCell(budget: Shown | undefined): string {
  if (budget === undefined) return '–';
  const { spentMicrocents, heldMicrocents } = budget;
  const held = heldMicrocents === 0n ? '' : `, ${dollars(heldMicrocents)} held`;
  return `${inWords(budget)}: ${dollars(spentMicrocents)} spent${held}, ${dollars(leftOf(budget))} left${renewal(budget)}`;
}

function leftOf({ amountMicrocents, spentMicrocents, heldMicrocents }: Shown): bigint {
  const left = amountMicrocents - spentMicrocents - heldMicrocents;
  return left > 0n ? left : 0n;
}

const inWords = ({ amountMicrocents, per }: Shown): string =>
  `${dollars(amountMicrocents)} ${per === 'total' ? 'in total' : `a ${per}`}`;

/** Periods begin at midnight UTC. */
const renewal = ({ renewsAt }: Shown): string =>
  renewsAt === null ? '' : `, renews ${new Date(renewsAt).toISOString().slice(0, 10)}`;
