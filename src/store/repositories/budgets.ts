/** Queries of budgets outside the hot path, on any dialect. */
import { sql, type Kysely } from 'kysely';
import { balanceAt, type Budget, type BudgetPeriod, type Balance } from '../budget.ts';
import type { Database } from '../database.ts';

type Db = Kysely<Database>;

/** Null: the key or the account has none. */
export async function getBudget(db: Db, { subject }: { readonly subject: string }): Promise<Budget | null> {
  const row = await db.selectFrom('budget').select(['amount', 'per']).where('subject', '=', subject).executeTakeFirst();
  return row === undefined ? null : { amountMicrocents: row.amount, per: row.per };
}

/** A budget and its use in a period. */
export interface BudgetStatus extends Budget {
  readonly balance: Balance;
  /** Charged in the period. */
  readonly spentMicrocents: bigint;
  /** By running requests that are listed: those that have run for a quarter of a second. */
  readonly heldMicrocents: bigint;
}

const subjectsMax = 1000;

/** The budgets of the named keys and accounts, at most a thousand, in the period that `at` is in. */
export async function budgetsOf(
  db: Db,
  request: { readonly subjects: readonly string[]; readonly at: number },
): Promise<readonly BudgetStatus[]> {
  if (request.subjects.length === 0) return [];
  const budgets = await db
    .selectFrom('budget')
    .selectAll()
    .where('subject', 'in', request.subjects.slice(0, subjectsMax))
    .execute();
  if (budgets.length === 0) return [];
  const balances = budgets.map(({ subject, per }) => balanceAt(subject, per, request.at));
  const spent = await spentOf(
    db,
    balances.map(({ id }) => id),
  );
  const held = await heldOf(
    db,
    budgets.map(({ subject }) => subject),
  );
  return budgets.map(({ subject, amount, per }, index) => ({
    amountMicrocents: amount,
    per,
    balance: balances[index]!,
    spentMicrocents: spent.get(balances[index]!.id) ?? 0n,
    heldMicrocents: held.get(subject) ?? 0n,
  }));
}

async function spentOf(db: Db, balanceIds: readonly string[]): Promise<ReadonlyMap<string, bigint>> {
  const rows = await db
    .selectFrom('budget_balance')
    .select(['id', 'amount', 'available', leasedOfBalance()])
    .where('id', 'in', balanceIds)
    .execute();
  return new Map(rows.map(({ id, amount, available, leased }) => [id, amount - available - leased]));
}

/** What replicas have leased of the balance and not spent. */
export const leasedOfBalance = () =>
  sql<bigint>`coalesce((select sum(remaining) from budget_lease where budget_lease.balance_id = budget_balance.id), 0)`.as(
    'leased',
  );

async function heldOf(db: Db, subjects: readonly string[]): Promise<ReadonlyMap<string, bigint>> {
  const held = new Map<string, bigint>();
  for (const column of ['key_id', 'account_id'] as const) {
    const rows = await db
      .selectFrom('open_request')
      .where(column, 'in', subjects)
      .select([column, sql<bigint>`sum(hold)`.as('hold')])
      .groupBy(column)
      .execute();
    for (const row of rows) held.set(row[column], row.hold);
  }
  return held;
}

/**
 * What a key or an account was charged in a period outside any budget per that period: what a budget that is set now counts as
 * spent. `undefined`: there is no such key or account.
 */
export async function spentBesideBudget(
  db: Db,
  request: {
    readonly of: 'key' | 'account';
    readonly subject: string;
    readonly per: BudgetPeriod;
    readonly at: number;
  },
): Promise<bigint | undefined> {
  const { of, subject, per, at } = request;
  const { startsAt, endsAt } = balanceAt(subject, per, at);
  const accountId = of === 'account' ? subject : await accountOf(db, subject);
  if (accountId === undefined) return undefined;
  let query = db
    .selectFrom('usage')
    .select(sql<bigint>`coalesce(sum(cost), 0)`.as('cost'))
    .where('account_id', '=', accountId)
    // A request that started in the period ended after its beginning, and there is an index of ends.
    .where('ended_at', '>=', BigInt(startsAt))
    .where('started_at', '>=', BigInt(startsAt))
    .where(of === 'key' ? 'key_budget' : 'account_budget', 'is distinct from', per);
  if (endsAt !== null) query = query.where('started_at', '<', BigInt(endsAt));
  if (of === 'key') query = query.where('key_id', '=', subject);
  return (await query.executeTakeFirstOrThrow()).cost;
}

async function accountOf(db: Db, keyId: string): Promise<string | undefined> {
  const row = await db.selectFrom('api_key').select('account_id').where('id', '=', keyId).executeTakeFirst();
  return row?.account_id;
}
