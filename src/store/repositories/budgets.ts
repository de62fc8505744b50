/** Budget queries outside the hot path, for any dialect. */
import { sql, type Kysely, type RawBuilder } from 'kysely';
import {
  balanceAt,
  chargedPer,
  readMemberSubject,
  readModelSubject,
  type Budget,
  type BudgetOwner,
  type BudgetPeriod,
  type Balance,
} from '../budget.ts';
import type { Database } from '../database.ts';
import { inOneMoment } from '../one-moment.ts';
import { isKeyOf } from '../reports/usage-sums.ts';

type Db = Kysely<Database>;

/** null: the key, the member or the account has no budget. */
export async function getBudget(db: Db, { subject }: { readonly subject: string }): Promise<Budget | null> {
  const row = await db.selectFrom('budget').select(['amount', 'per']).where('subject', '=', subject).executeTakeFirst();
  return row === undefined ? null : { amountMicrocents: row.amount, per: row.per };
}

/** A budget and its use in a period. */
export interface BudgetStatus extends Budget {
  readonly balance: Balance;
  /** Charged in the period. */
  readonly spentMicrocents: bigint;
  /** Held by running requests that are listed: those that have run for a quarter of a second. */
  readonly heldMicrocents: bigint;
}

const subjectsMax = 1000;

/** The budgets of the given keys, members and accounts, at most a thousand, in the period that contains `at`. */
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
  const held = await heldOf(
    db,
    budgets.map(({ subject }) => subject),
  );
  const spent = await withSpent(db, budgets, request.at);
  return spent.map((budget) => ({ ...budget, heldMicrocents: held.get(budget.balance.subject) ?? 0n }));
}

/** A budget of a key or an account for one model, and its use in a period. */
export interface ModelBudgetStatus extends Omit<BudgetStatus, 'heldMicrocents'> {
  readonly ownerId: string;
  /** In lower case. */
  readonly modelId: string;
}

/** The budgets of the given keys and accounts, at most a thousand, for single models, ordered by model. */
export async function modelBudgetsOf(
  db: Db,
  request: { readonly ownerIds: readonly string[]; readonly at: number },
): Promise<readonly ModelBudgetStatus[]> {
  if (request.ownerIds.length === 0) return [];
  const budgets = await db
    .selectFrom('budget')
    .select(['subject', 'amount', 'per'])
    .where('owner', 'in', request.ownerIds.slice(0, subjectsMax))
    .orderBy('subject')
    .execute();
  const spent = budgets.length === 0 ? [] : await withSpent(db, budgets, request.at);
  return spent.map((budget) => ({ ...budget, ...readModelSubject(budget.balance.subject)! }));
}

async function withSpent(
  db: Db,
  budgets: readonly { readonly subject: string; readonly amount: bigint; readonly per: BudgetPeriod }[],
  at: number,
): Promise<readonly Omit<BudgetStatus, 'heldMicrocents'>[]> {
  const balances = budgets.map(({ subject, per }) => balanceAt(subject, per, at));
  const spent = await spentOf(
    db,
    balances.map(({ id }) => id),
  );
  return budgets.map(({ amount, per }, index) => ({
    amountMicrocents: amount,
    per,
    balance: balances[index]!,
    spentMicrocents: spent.get(balances[index]!.id) ?? 0n,
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

/** The unspent amount that replicas have leased from the balance. */
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
  for (const subject of subjects) {
    const member = readMemberSubject(subject);
    if (member === undefined) continue;
    const row = await db
      .selectFrom('open_request')
      .innerJoin('api_key', 'api_key.id', 'open_request.key_id')
      .where('open_request.account_id', '=', member.accountId)
      .where('api_key.user_id', '=', member.userId)
      .select(sql<bigint>`coalesce(sum(hold), 0)`.as('hold'))
      .executeTakeFirstOrThrow();
    held.set(subject, row.hold);
  }
  return held;
}

/**
 * What a key, a member or an account was charged in a period outside any budget for that type of period; a budget set now counts it as
 * spent. undefined: there is no such key, member or account.
 */
export async function spentBesideBudget(
  db: Db,
  request: {
    readonly of: BudgetOwner;
    readonly subject: string;
    readonly per: BudgetPeriod;
    readonly at: number;
  },
): Promise<bigint | undefined> {
  const { of, subject, per, at } = request;
  const { startsAt, endsAt } = balanceAt(subject, per, at);
  const accountId = await accountOf(db, of, subject);
  if (accountId === undefined) return undefined;
  const model = readModelSubject(subject);
  const member = readMemberSubject(subject);
  const whose = [
    sql`account_id = ${accountId}`,
    besideBudget(of, subject, per, at),
    ...(of === 'key' ? [sql`key_id = ${model?.ownerId ?? subject}`] : []),
    ...(model === undefined ? [] : [sql`lower(model_id) = ${model.modelId}`]),
    ...(member === undefined ? [] : [isKeyOf(accountId, member.userId)]),
  ];
  const startedIn = (start: RawBuilder<unknown>) => [
    sql`${start} >= ${BigInt(startsAt)}`,
    ...(endsAt === null ? [] : [sql`${start} < ${BigInt(endsAt)}`]),
  ];
  return await inOneMoment(db, async (moment) => {
    const costOf = async (table: 'usage' | 'pruned_usage', conditions: readonly RawBuilder<unknown>[]) => {
      const { rows } = await sql<{ readonly cost: bigint }>`
        select coalesce(sum(cost), 0) as cost from ${sql.table(table)} where ${sql.join(conditions, sql` and `)}`.execute(
        moment,
      );
      return rows[0]!.cost;
    };
    // A request that started in the period ended after the period's beginning, and there is an index on ends.
    const ended = sql`ended_at >= ${BigInt(startsAt)}`;
    const there = await costOf('usage', [...whose, ended, ...startedIn(sql`started_at`)]);
    return there + (await costOf('pruned_usage', [...whose, ...startedIn(sql`day`)]));
  });
}

/** Rows of the period that were not charged to a balance of such a budget. */
function besideBudget(of: BudgetOwner, subject: string, per: BudgetPeriod, at: number) {
  if (of === 'member') return sql<boolean>`member_budget is distinct from ${balanceAt(subject, per, at).id}`;
  const charged = chargedPer(per, readModelSubject(subject) === undefined ? 'all' : 'model');
  return sql<boolean>`coalesce(${sql.ref(of === 'key' ? 'key_budget' : 'account_budget')}, '') not in (${sql.join(charged)})`;
}

async function accountOf(db: Db, of: BudgetOwner, subject: string): Promise<string | undefined> {
  const ownerId = readModelSubject(subject)?.ownerId ?? subject;
  if (of === 'account') return ownerId;
  const member = readMemberSubject(subject);
  if (member !== undefined) {
    const { accountId, userId } = member;
    const found = db.selectFrom('member').where('account_id', '=', accountId).where('user_id', '=', userId);
    return (await found.select('account_id').executeTakeFirst())?.account_id;
  }
  const row = await db.selectFrom('api_key').select('account_id').where('id', '=', ownerId).executeTakeFirst();
  return row?.account_id;
}
