import { balanceAt } from '../budget.ts';
import type { BudgetChange } from '../ledger.ts';
import { StoreError } from '../store-error.ts';
import type { Run } from './connection.ts';
import { recordChange } from './statements.ts';

/**
 * Sets the budget, and what this and later periods have under it. The budget's row comes first: beginning a balance reads it
 * under a lock, so that every balance is either changed here or made from the new budget.
 */
export async function changeBudget(run: Run, change: BudgetChange): Promise<void> {
  const { kind, subject, budget, spentBeforeMicrocents, at, changeId } = change;
  const [what, live] =
    kind === 'key_budget'
      ? ['key', `select 1 from api_key where id = $1 and status = 'active'`]
      : ['account', 'select 1 from account where id = $1 and kind = 0'];
  if ((await run({ text: live }, [subject])).count === 0)
    throw new StoreError('not_found', `there is no ${what} ${subject}`);
  if (budget === null) await run({ text: 'delete from budget where subject = $1' }, [subject]);
  else {
    const { amountMicrocents, per } = budget;
    await run(
      {
        text: `insert into budget (subject, amount, per, set_at) values ($1, $2, $3, $4)
          on conflict (subject) do update set amount = excluded.amount, per = excluded.per, set_at = excluded.set_at`,
      },
      [subject, amountMicrocents, per, at],
    );
    await run(
      {
        text: `update budget_balance set available = available + $1::bigint - amount, amount = $1::bigint
          where subject = $2 and per = $3 and (ends_at is null or ends_at > $4)`,
      },
      [amountMicrocents, subject, per, at],
    );
    const { id, startsAt, endsAt } = balanceAt(subject, per, at);
    await run(
      {
        text: `insert into budget_balance (id, subject, per, starts_at, ends_at, amount, spent_before, available)
          values ($1, $2, $3, $4, $5, $6::bigint, $7::bigint, $6::bigint - $7::bigint) on conflict (id) do update
          set available = budget_balance.available + budget_balance.spent_before - excluded.spent_before, spent_before = excluded.spent_before`,
      },
      [id, subject, per, startsAt, endsAt, amountMicrocents, spentBeforeMicrocents],
    );
  }
  await run(recordChange, [changeId, at, kind, subject]);
}
