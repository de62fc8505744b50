/** Accounts, as queried by the account host, the CLI and the operator. */
import { sql, type Kysely, type Updateable } from 'kysely';
import type { AccountStatus, ChangeKind } from '../database.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import type { Row, Rows } from '../schema/codec.ts';
import { recordChange } from './changes.ts';
import { limitsText } from './limits-text.ts';
import { lockAccount } from './members.ts';
import { pageOf } from './page.ts';

type Db = Kysely<Rows>;

export type Account = Pick<
  Row<'account'>,
  | 'id'
  | 'name'
  | 'status'
  | 'creditLimitMicrocents'
  | 'models'
  | 'plan'
  | 'limits'
  | 'timeZone'
  | 'createdAt'
  | 'deletedAt'
> & {
  readonly isSystem: boolean;
  /** Credits less debits less the cost of settled requests; holds of running requests are not included. */
  readonly balanceMicrocents: bigint;
  readonly billing: BillingDetails;
};

/** The party that invoices are made out to; null fields are unknown. */
export type BillingDetails = Pick<
  Row<'account'>,
  'legalName' | 'addressLines' | 'country' | 'taxId' | 'taxStatus' | 'invoiceEmail'
>;

/** The unspent credit that replicas have leased from the account; 0 if one process owns all balances. */
export const leased = () =>
  sql<bigint>`coalesce((select sum(remaining) from credit_lease where credit_lease.account_id = account.id), 0)`.as(
    'leased',
  );

export async function getAccount(db: Db, request: { readonly accountId: string }): Promise<Account | undefined> {
  const row = await db
    .selectFrom('account')
    .selectAll()
    .select(leased())
    .where('id', '=', request.accountId)
    .executeTakeFirst();
  return row === undefined ? undefined : toAccount(row);
}

/** Lists customers in creation order; `withSystem` adds the system accounts, the counterparties of their transfers. */
export async function listAccounts(
  db: Db,
  request: { readonly withSystem?: boolean; readonly after?: string; readonly limit?: number },
): Promise<readonly Account[]> {
  let query = db.selectFrom('account').selectAll().select(leased()).orderBy('id').limit(pageOf(request.limit));
  if (request.withSystem !== true) query = query.where('kind', '=', 0);
  if (request.after !== undefined) query = query.where('id', '>', request.after);
  return (await query.execute()).map(toAccount);
}

/** Lists customers, newest first, after the given one. */
export async function listCustomers(
  db: Db,
  request: {
    readonly status?: AccountStatus | undefined;
    readonly after?: string | undefined;
    /** Whether to include deleted ones. */
    readonly withDeleted?: boolean | undefined;
    /** A substring of their id or name, or of a member's email address. */
    readonly search?: string | undefined;
    readonly limit: number;
  },
): Promise<readonly Account[]> {
  const { status, after, withDeleted, search, limit } = request;
  let query = db
    .selectFrom('account')
    .selectAll()
    .select(leased())
    .where('kind', '=', 0)
    .orderBy('createdAt', 'desc')
    .orderBy('id', 'desc')
    .limit(limit);
  if (status !== undefined) query = query.where('status', '=', status);
  if (withDeleted !== true) query = query.where('deletedAt', 'is', null);
  if (search !== undefined) query = query.where(isFoundBy(search));
  if (after !== undefined) {
    const last = await db.selectFrom('account').select('createdAt').where('id', '=', after).executeTakeFirst();
    if (last === undefined) return [];
    query = query.where((is) => is(is.refTuple('createdAt', 'id'), '<', is.tuple(last.createdAt, after)));
  }
  return (await query.execute()).map(toAccount);
}

/** The names of these accounts; at most 1,000 are asked for at once. */
export async function namesOfAccounts(
  db: Db,
  request: { readonly accountIds: readonly string[] },
): Promise<readonly { readonly id: string; readonly name: string }[]> {
  return await db.selectFrom('account').select(['id', 'name']).where('id', 'in', request.accountIds).execute();
}

function isFoundBy(search: string) {
  const part = `%${search.toLowerCase().replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;
  const isIn = (column: string) => sql<boolean>`lower(${sql.ref(column)}) like ${part} escape '\\'`;
  // Raw SQL, because better-auth's table has its own column names.
  const members = sql`select member.account_id from member join auth_user on auth_user.id = member.user_id where ${isIn('auth_user.email')}`;
  return sql<boolean>`(${isIn('account.name')} or ${isIn('account.id')} or account.id in (${members}))`;
}

/** Sets the models that a customer's keys may use; undefined if there is no such account. */
export async function allowAccount(
  db: Db,
  request: {
    readonly accountId: string;
    readonly models: readonly string[] | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<Account | undefined> {
  const { accountId, models, at, changeId } = request;
  return changeAccount(db, accountId, { models: models }, { changeId, at, kind: 'account_models' });
}

/** Sets or removes a customer's plan; undefined if there is no such account. */
export async function planAccount(
  db: Db,
  request: {
    readonly accountId: string;
    readonly plan: string | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<Account | undefined> {
  const { accountId, plan, at, changeId } = request;
  return changeAccount(db, accountId, { plan }, { changeId, at, kind: 'account_plan' });
}

/** Sets some of a customer's limits; null removes one. undefined if there is no such account. */
export async function limitAccount(
  db: Db,
  request: {
    readonly accountId: string;
    readonly limits: Readonly<Record<string, unknown>>;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<Account | undefined> {
  const { accountId, limits, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    // Two concurrent changes of different limits both succeed.
    await lockAccount(transaction, accountId);
    const account = transaction.selectFrom('account').select('limits').where('id', '=', accountId);
    const known = await account.executeTakeFirst();
    const set = { limits: limitsText(known?.limits ?? null, limits) };
    return changeAccountIn(transaction, accountId, set, { changeId, at, kind: 'account_limits' });
  });
}

/** Renames a customer, or sets its billing details; undefined fields stay. Returns undefined if there is no such account. */
export async function editAccount(
  db: Db,
  request: {
    readonly accountId: string;
    readonly name?: string | undefined;
    readonly billing?: { readonly [Detail in keyof BillingDetails]?: BillingDetails[Detail] | undefined } | undefined;
    /** The time zone for the days of the account's reports, which are then recomputed in the background. */
    readonly timeZone?: string | undefined;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<Account | undefined> {
  const { accountId, name, billing = {}, timeZone, at, changeId } = request;
  const { legalName, addressLines, country, taxId, taxStatus, invoiceEmail } = billing;
  const set = { name, timeZone, legalName, addressLines, country, taxId, taxStatus, invoiceEmail };
  return changeAccount(db, accountId, set, { changeId, at, kind: 'account_edited' });
}

/** Undefined fields stay. */
type AccountChange = {
  readonly [Name in keyof Updateable<Rows['account']>]: Updateable<Rows['account']>[Name] | undefined;
};

interface NotedChange {
  readonly changeId: Uint8Array;
  readonly at: number;
  readonly kind: ChangeKind;
}

const changeAccount = (db: Db, accountId: string, set: AccountChange, noted: NotedChange) =>
  db.transaction().execute((transaction) => changeAccountIn(transaction, accountId, set, noted));

async function changeAccountIn(
  transaction: Db,
  accountId: string,
  set: AccountChange,
  { changeId, at, kind }: NotedChange,
): Promise<Account | undefined> {
  const row = await transaction
    .updateTable('account')
    .set((is) => ({ ...set, version: is('version', '+', 1) }))
    .where('id', '=', accountId)
    .where('kind', '=', 0)
    .where('deletedAt', 'is', null)
    .returningAll()
    .returning(leased())
    .executeTakeFirst();
  if (row === undefined) return undefined;
  await recordChange(transaction, changeId, at, kind, accountId);
  return toAccount(row);
}

const toAccount = (row: Row<'account'> & { readonly leased: bigint }): Account => ({
  id: row.id,
  name: row.name,
  isSystem: row.kind !== 0,
  status: row.status,
  balanceMicrocents: row.availableMicrocents + row.leased,
  creditLimitMicrocents: row.creditLimitMicrocents,
  models: row.models,
  plan: row.plan,
  limits: row.limits,
  billing: {
    legalName: row.legalName,
    addressLines: row.addressLines,
    country: row.country,
    taxId: row.taxId,
    taxStatus: row.taxStatus,
    invoiceEmail: row.invoiceEmail,
  },
  timeZone: row.timeZone,
  createdAt: row.createdAt,
  deletedAt: row.deletedAt,
});

/** Returns the holds of these accounts' running requests, once these have run for a quarter of a second. */
export async function heldByAccounts(
  db: Db,
  { accountIds }: { readonly accountIds: readonly string[] },
): Promise<readonly { readonly accountId: string; readonly microcents: bigint }[]> {
  if (accountIds.length === 0) return [];
  return await db
    .selectFrom('open_request')
    .select(['accountId', sql<bigint>`cast(sum(hold) as bigint)`.as('microcents')])
    .where('accountId', 'in', accountIds)
    .groupBy('accountId')
    .execute();
}

/** What was charged for a model in a tier. */
export type ChargedUsage = Pick<
  Row<'usage'>,
  'modelId' | 'promptTokens' | 'cachedTokens' | 'completionTokens' | 'costMicrocents'
> & { readonly tier: NonNullable<Row<'usage'>['tier']>; readonly requests: number };

/** Returns what an account, or all accounts except some, were charged for a model, or all, in a time span, and for how many tokens. */
export async function chargedUsage(
  db: Db,
  request: {
    readonly accountId?: string;
    readonly exceptAccounts?: readonly string[];
    readonly modelId?: string;
    readonly from: number;
    readonly to: number;
  },
): Promise<readonly ChargedUsage[]> {
  const { accountId, exceptAccounts = [], modelId, from, to } = request;
  // Rows from before there were tiers have none.
  const tier = sql<ChargedUsage['tier']>`coalesce(tier, 'default')`;
  const sum = <Sum extends number | bigint>(column: string) =>
    sql<Sum>`cast(coalesce(sum(${sql.ref(column)}), 0) as bigint)`;
  let query = db
    .selectFrom('usage')
    .select('modelId')
    .select(tier.as('tier'))
    .select((is) => is.fn.countAll<number>().as('requests'))
    .select([sum<number>('promptTokens').as('promptTokens'), sum<number>('cachedTokens').as('cachedTokens')])
    .select([
      sum<number>('completionTokens').as('completionTokens'),
      sum<bigint>('costMicrocents').as('costMicrocents'),
    ])
    .where('endedAt', '>=', from)
    .where('endedAt', '<', to)
    .where('costMicrocents', '>', 0n)
    .where(inMonthsOf(db, { from, to }))
    .groupBy('modelId')
    .groupBy(tier);
  if (modelId !== undefined) query = query.where('modelId', '=', modelId);
  if (accountId !== undefined) query = query.where('accountId', '=', accountId);
  if (exceptAccounts.length > 0) query = query.where('accountId', 'not in', exceptAccounts);
  return await query.execute();
}
