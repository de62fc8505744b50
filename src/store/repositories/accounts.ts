/** Accounts as the operator queries them. */
import { sql, type Kysely } from 'kysely';
import type { AccountStatus, Database } from '../database.ts';
import { leased, toAccount } from './queries.ts';
import type { Account } from './queries.ts';
import { inMonthsOf } from '../reports/usage-months.ts';

/** Customers, newest first, after the one that is named. */
export async function listCustomers(
  db: Kysely<Database>,
  request: {
    readonly status?: AccountStatus | undefined;
    readonly after?: string | undefined;
    /** Also deleted ones. */
    readonly withDeleted?: boolean | undefined;
    readonly limit: number;
  },
): Promise<readonly Account[]> {
  const { status, after, withDeleted, limit } = request;
  let query = db
    .selectFrom('account')
    .selectAll()
    .select(leased())
    .where('kind', '=', 0n)
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(limit);
  if (status !== undefined) query = query.where('status', '=', status);
  if (withDeleted !== true) query = query.where('deleted_at', 'is', null);
  if (after !== undefined) {
    const last = await db.selectFrom('account').select('created_at').where('id', '=', after).executeTakeFirst();
    if (last === undefined) return [];
    query = query.where((is) => is(is.refTuple('created_at', 'id'), '<', is.tuple(last.created_at, after)));
  }
  return (await query.execute()).map(toAccount);
}

/** What the running requests of these accounts hold: those that have run for a quarter of a second. */
export async function heldByAccounts(
  db: Kysely<Database>,
  { accountIds }: { readonly accountIds: readonly string[] },
): Promise<readonly { readonly accountId: string; readonly microcents: bigint }[]> {
  if (accountIds.length === 0) return [];
  const rows = await db
    .selectFrom('open_request')
    .select(['account_id', sql<bigint>`cast(sum(hold) as bigint)`.as('hold')])
    .where('account_id', 'in', accountIds)
    .groupBy('account_id')
    .execute();
  return rows.map(({ account_id, hold }) => ({ accountId: account_id, microcents: hold }));
}

/** What an account was charged for a model in a span of time, and for how many tokens. */
export async function chargedUsage(
  db: Kysely<Database>,
  request: { readonly accountId: string; readonly modelId: string; readonly from: number; readonly to: number },
): Promise<{
  readonly requests: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly costMicrocents: bigint;
}> {
  const { accountId, modelId, from, to } = request;
  const sum = (column: 'prompt_tokens' | 'cached_tokens' | 'completion_tokens' | 'cost') =>
    sql<bigint>`cast(coalesce(sum(${sql.ref(column)}), 0) as bigint)`.as(column);
  const row = await db
    .selectFrom('usage')
    .select((is) => is.fn.countAll<bigint>().as('requests'))
    .select([sum('prompt_tokens'), sum('cached_tokens'), sum('completion_tokens'), sum('cost')])
    .where('account_id', '=', accountId)
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where('model_id', '=', modelId)
    .where('cost', '>', 0n)
    .where(inMonthsOf(db, { from, to }))
    .executeTakeFirstOrThrow();
  return {
    requests: Number(row.requests),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    costMicrocents: row.cost,
  };
}
