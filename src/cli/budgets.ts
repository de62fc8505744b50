import type { Budgeted, BudgetInput } from '../accounts/budget.ts';
import { OperationError } from '../accounts/operation.ts';
import { dollars } from '../platform/dollars.ts';
import type { BudgetPeriod } from '../store/budget.ts';
import type { BudgetStatus } from '../store/repositories/budgets.ts';
import type { MemberRow } from '../store/repositories/members.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Context } from './context.ts';
import { reading, writing } from './database.ts';

export interface BudgetOptions {
  readonly per: BudgetPeriod;
  readonly none?: boolean;
  /** Of the account: their address or their id. */
  readonly member?: string;
}

/** Sets, replaces or removes the budget of a key, an account or one of its members. */
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
  const member = options.member === undefined ? undefined : await memberNamed(context, id, options.member);
  const answer = await writing(
    context,
    member !== undefined
      ? { kind: 'budget_member', accountId: id, userId: member.userId, budget }
      : of === 'key'
        ? { kind: 'budget_key', keyId: id, budget }
        : { kind: 'budget_account', accountId: id, budget },
  );
  const shownId = member?.userId ?? answer.id;
  const name = member?.email ?? answer.id;
  context.print.result({ id: shownId, budget: answer.budget === null ? null : budgetJson(statusOf(answer)) }, [
    answer.budget === null
      ? `${name} has no budget from now on.`
      : `${name} may spend ${inWords(statusOf(answer))} from now on; running requests continue. ` +
        `${dollars(statusOf(answer).spentMicrocents)} is spent${renewal(statusOf(answer))}.`,
  ]);
  return 0;
}

async function memberNamed(context: Context, accountId: string, named: string): Promise<MemberRow> {
  return await reading(context, async (repositories) => {
    for (let after: string | undefined; ;) {
      const page = await repositories.listMembers({ accountId, limit: 100, after });
      const found = page.find(({ userId, email }) => userId === named || email === named.toLowerCase());
      if (found !== undefined) return found;
      after = page.at(-1)?.userId;
      if (after === undefined) throw new OperationError(`The account ${accountId} has no member ${named}.`);
    }
  });
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
  subjects: readonly { readonly id: string }[],
  at: number,
): Promise<ReadonlyMap<string, Shown>> {
  const found = await repositories.budgetsOf({ subjects: subjects.map(({ id }) => id), at });
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
