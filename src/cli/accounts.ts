import { once } from 'node:events';

import { exportAccount } from '../accounts/export-account.ts';
import { readAccountLimits } from '../accounts/key-limits.ts';
import { OperationError } from '../accounts/operation.ts';
import { suggestion } from '../config/suggestion.ts';
import { budgetCell, budgetJson, readBudgets } from './budgets.ts';
import type { Context } from './context.ts';
import { reading, writing } from './database.ts';
import { table } from './output.ts';

export async function listAccounts(context: Context): Promise<number> {
  const [accounts, budgets] = await reading(context, async (desk, _db, now) => {
    const found = await desk.listAccounts({ limit: 1000 });
    return [
      found,
      await readBudgets(
        desk,
        found.map(({ id }) => id),
        await now(),
      ),
    ] as const;
  });
  const { concurrencyPerAccountMax } = context.config.server.limits;
  const planOf = (name: string | null) => context.config.plans.find((plan) => plan.name === name);
  context.print.result(
    accounts.map(({ id, name, status, plan, limits, models, createdAt }) => ({
      id,
      name,
      status,
      plan,
      limits: { max_concurrency: readAccountLimits(limits).concurrencyMax ?? null },
      budget: budgetJson(budgets.get(id)),
      models,
      created_at: new Date(createdAt).toISOString(),
    })),
    table(
      ['id', 'name', 'status', 'plan', 'may run', 'models', 'budget', 'created'],
      accounts.map(({ id, name, status, plan, limits, models, createdAt }) => [
        id,
        name,
        status,
        plan === null ? '-' : planOf(plan) === undefined ? `${plan} (not configured)` : plan,
        readAccountLimits(limits).concurrencyMax ?? planOf(plan)?.concurrencyMax ?? concurrencyPerAccountMax,
        models === null ? 'all' : models.join(' '),
        budgetCell(budgets.get(id)),
        new Date(createdAt).toISOString(),
      ]),
    ),
  );
  return 0;
}

export async function createAccount(context: Context, { name }: { readonly name: string }): Promise<number> {
  const answer = await writing(context, { kind: 'create_account', name });
  if (answer.kind !== 'account') throw new Error('unexpected answer');
  context.print.result({ id: answer.accountId, name: answer.name }, [answer.accountId]);
  context.print.say(
    `It has no key and no credit yet: tokenhouse keys create --account ${answer.accountId}, and tokenhouse credits grant --account ${answer.accountId} --cents 500`,
  );
  return 0;
}

/** Suspended, or active again. */
/** Everything that the service has of an account, as JSON on standard output. */
export async function exportAccountData(context: Context, accountId: string): Promise<number> {
  await reading(context, async (desk) => {
    const account = await desk.getAccount({ accountId });
    if (account === undefined || account.house)
      throw new OperationError(`There is no account ${accountId}. List them with: tokenhouse accounts list`);
    for await (const piece of exportAccount(accountId, desk))
      if (!process.stdout.write(piece)) await once(process.stdout, 'drain');
  });
  return 0;
}

export async function deleteAccount(
  context: Context,
  { forfeitCredit }: { readonly forfeitCredit?: boolean },
  accountId: string,
): Promise<number> {
  const answer = await writing(context, { kind: 'delete_account', accountId, forfeitCredit });
  if (answer.kind !== 'account_deleted') throw new Error('unexpected answer');
  context.print.result({ id: answer.accountId, forfeited_microcents: Number(answer.forfeitedMicrocents) }, [
    `${answer.accountId} is deleted. Its ledger and usage stay, without names.`,
  ]);
  return 0;
}

export async function setAccountStatus(
  context: Context,
  kind: 'suspend_account' | 'revive_account',
  accountId: string,
  reason: string | undefined,
): Promise<number> {
  const answer = await writing(context, { kind, accountId, reason });
  if (answer.kind !== 'status') throw new Error('unexpected answer');
  context.print.result({ id: answer.accountId, status: answer.status }, [
    answer.status === 'suspended'
      ? `${answer.accountId} is suspended: its keys are refused, and what ran on them was cut.`
      : `${answer.accountId} is active again.`,
  ]);
  return 0;
}

interface PlanOptions {
  readonly account?: string;
  readonly none?: boolean;
}

/** Gives an account one of the plans of the configuration, or none. */
export async function planAccount(context: Context, options: PlanOptions, named?: string): Promise<number> {
  if ((named === undefined) === (options.none !== true)) throw new OperationError('Say which plan, or --none.');
  const plans = context.config.plans.map(({ name }) => name);
  if (named !== undefined && !plans.includes(named)) {
    const near = suggestion(named, plans);
    throw new OperationError(
      `The configuration has no plan ${named}${near === undefined ? '' : `; did you mean ${near}?`}. Its plans: ${plans.join(', ') || 'none'}.`,
    );
  }
  const answer = await writing(context, { kind: 'plan_account', accountId: options.account, plan: named });
  if (answer.kind !== 'planned') throw new Error('unexpected answer');
  context.print.result({ account: answer.accountId, plan: answer.plan }, [
    answer.plan === null
      ? `${answer.accountId} has no plan from now on; what runs goes on.`
      : `${answer.accountId} has the plan ${answer.plan} from now on; what runs goes on. Keys that it pays for are made with: tokenhouse keys create --plan`,
  ]);
  return 0;
}

interface LimitOptions {
  readonly account?: string;
  /** `none`: that of its plan or of the configuration. */
  readonly concurrency: number | 'none';
}

export async function limitAccount(context: Context, options: LimitOptions): Promise<number> {
  const answer = await writing(context, {
    kind: 'limit_account',
    accountId: options.account,
    concurrencyMax: options.concurrency === 'none' ? undefined : options.concurrency,
  });
  if (answer.kind !== 'account_limited') throw new Error('unexpected answer');
  const { accountId, concurrencyMax } = answer;
  context.print.result({ account: accountId, max_concurrency: concurrencyMax }, [
    concurrencyMax === null
      ? `${accountId} may run as many requests as its plan or the configuration says; what runs goes on.`
      : `${accountId} may run ${concurrencyMax} requests at the same time from now on; what runs goes on.`,
  ]);
  return 0;
}
