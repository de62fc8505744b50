/** Live keys, as every process's directory loads and finds them. */
import { sql, type Kysely } from 'kysely';
import { readModelSubject, type Budget } from '../budget.ts';
import type { AccountStatus } from '../database.ts';
import { listOf } from '../reports/usage-expressions.ts';
import type { Rows } from '../schema/codec.ts';
import { hashesAtOnce } from '../row-facts.ts';
import { pageOf } from './page.ts';

type Db = Kysely<Rows>;

export interface ModelBudget extends Budget {
  /** In lower case. */
  readonly modelId: string;
}

/** An entry for the directory of live keys. */
export interface LoadedKey {
  readonly id: string;
  readonly accountId: string;
  readonly userId: string | null;
  readonly accountStatus: AccountStatus;
  readonly name: string;
  readonly hash: Uint8Array;
  readonly pepperId: string;
  readonly limits: string | null;
  readonly models: readonly string[] | null;
  readonly accountModels: readonly string[] | null;
  readonly accountPlan: string | null;
  readonly accountLimits: string | null;
  readonly budget: Budget | null;
  readonly accountBudget: Budget | null;
  /** The budget of its user, shared by all of their keys. */
  readonly memberBudget?: Budget | null;
  /** Its budgets for single models, and those of its account; null: none. */
  readonly modelBudgets?: readonly ModelBudget[] | null;
  readonly accountModelBudgets?: readonly ModelBudget[] | null;
  readonly expiresAt: number | null;
  /** Whether it manages accounts instead of making requests. */
  readonly isManagement?: boolean;
  readonly tags?: readonly string[];
  readonly isPaused?: boolean;
  /** The secret before the last rotation, and until when it works. */
  readonly previous?: { readonly hash: Uint8Array; readonly endsAt: number } | null;
}

/** A page of the unrevoked keys, ordered by id. */
export async function loadKeys(
  db: Db,
  request: {
    readonly after?: string;
    /** Only these, no more than fit on a page. */
    readonly ids?: readonly string[];
    /** Only those of this member. */
    readonly member?: { readonly accountId: string; readonly userId: string };
    readonly limit?: number;
  },
): Promise<readonly LoadedKey[]> {
  let query = loadedKeys(db)
    .where('api_key.id', '>', request.after ?? '')
    .orderBy('api_key.id')
    .limit(pageOf(request.limit ?? request.ids?.length));
  if (request.ids !== undefined) query = query.where('api_key.id', 'in', request.ids);
  if (request.member !== undefined)
    query = query
      .where('api_key.accountId', '=', request.member.accountId)
      .where('api_key.userId', '=', request.member.userId);
  return (await query.execute()).map(toLoaded);
}

/** The unrevoked keys with one of these hashes, including by the secret before the last rotation; at most a page of hashes. */
export async function findKeys(
  db: Db,
  { hashes }: { readonly hashes: readonly Uint8Array[] },
): Promise<readonly LoadedKey[]> {
  if (hashes.length === 0) return [];
  const some = hashes.slice(0, pageOf(hashes.length));
  // Not `or`, for which a database may choose to read the whole table; two queries are rarely needed.
  const found = await loadedKeys(db).where('hash', 'in', some).execute();
  if (found.length < some.length) found.push(...(await loadedKeys(db).where('previousHash', 'in', some).execute()));
  return [...new Map(found.map((row) => [row.id, toLoaded(row)])).values()];
}

/**
 * Counts unrevoked keys, up to `most`; undefined: there are more, or there are at least as many revoked ones, so that counting takes too
 * long.
 */
export async function countKeys(db: Db, { most }: { readonly most: number }): Promise<number | undefined> {
  const looked = most * 2 + 1;
  const { active, all } = await db
    .selectFrom((from) => from.selectFrom('api_key').select('status').orderBy('id').limit(looked).as('looked'))
    .select((is) => [
      is.fn.countAll<bigint>().as('all'),
      is.fn.countAll<bigint>().filterWhere('status', '=', 'active').as('active'),
    ])
    .executeTakeFirstOrThrow();
  return all === BigInt(looked) || active > BigInt(most) ? undefined : Number(active);
}

/** A page of 32-byte hashes, concatenated in ascending order: all that a filter of keys needs. */
export async function listKeyHashes(
  db: Db,
  request: {
    /** Whether to return those of secrets before the last rotation instead. */
    readonly previous: boolean;
    readonly after: Uint8Array | null;
    readonly limit: number;
  },
): Promise<Uint8Array> {
  const column = request.previous ? 'previousHash' : 'hash';
  const limit = Math.max(1, Math.min(Math.trunc(request.limit), hashesAtOnce));
  let query = db.selectFrom('api_key').select(column).orderBy(column).limit(limit);
  if (request.previous) query = query.where('previousHash', 'is not', null);
  if (request.after !== null) query = query.where(column, '>', request.after);
  const rows = await query.execute();
  const hashes = new Uint8Array(32 * rows.length);
  for (const [index, row] of rows.entries()) {
    const hash = row[column];
    if (hash !== undefined && hash !== null) hashes.set(hash, 32 * index);
  }
  return hashes;
}

const loadedKeys = (db: Db) =>
  db
    .selectFrom('api_key')
    .innerJoin('account', 'account.id', 'api_key.accountId')
    .leftJoin('budget', 'budget.subject', 'api_key.id')
    .leftJoin('budget as accountBudget', 'accountBudget.subject', 'account.id')
    // As `memberSubject` formats it; without a user it is null, and no budget matches.
    .leftJoin('budget as memberBudget', (join) =>
      join.on('memberBudget.subject', '=', sql<string>`api_key.account_id || '/' || api_key.user_id`),
    )
    .select(['api_key.id', 'api_key.accountId', 'userId', 'api_key.name', 'hash', 'pepperId', 'expiresAt'])
    .select(['api_key.limits', 'api_key.models', 'api_key.role', 'api_key.tags', 'disabledAt'])
    .select(['previousHash', 'previousHashUntil'])
    .select(['account.status as accountStatus', 'account.models as accountModels', 'account.plan as accountPlan'])
    .select(['account.limits as accountLimits', 'budget.amountMicrocents', 'budget.per'])
    .select(['accountBudget.amountMicrocents as accountAmount', 'accountBudget.per as accountPer'])
    .select(['memberBudget.amountMicrocents as memberAmount', 'memberBudget.per as memberPer'])
    .select([modelBudgetsOf('api_key.id').as('modelBudgets'), modelBudgetsOf('account.id').as('accountModelBudgets')])
    .where('api_key.status', '=', 'active');

/** As one text, so that loading stays one query; no part of it has a blank or a comma. */
const modelBudgetsOf = (owner: 'api_key.id' | 'account.id') =>
  sql<string | null>`(select string_agg(one.subject || ' ' || one.per || ' ' || cast(one.amount as text), ',')
    from budget as one where one.owner = ${sql.ref(owner)})`;

const readModelBudgets = (text: string | null): readonly ModelBudget[] | null =>
  text?.split(',').map((one) => {
    const [subject, per, amount] = one.split(' ') as [string, Budget['per'], string];
    return { modelId: readModelSubject(subject)!.modelId, per, amountMicrocents: BigInt(amount) };
  }) ?? null;

type LoadedRow = Awaited<ReturnType<ReturnType<typeof loadedKeys>['execute']>>[number];

function toLoaded(row: LoadedRow): LoadedKey {
  return {
    id: row.id,
    accountId: row.accountId,
    userId: row.userId,
    accountStatus: row.accountStatus,
    name: row.name,
    hash: row.hash,
    pepperId: row.pepperId,
    limits: row.limits,
    models: row.models,
    accountModels: row.accountModels,
    accountPlan: row.accountPlan,
    accountLimits: row.accountLimits,
    budget: budgetOf(row.amountMicrocents, row.per),
    accountBudget: budgetOf(row.accountAmount, row.accountPer),
    memberBudget: budgetOf(row.memberAmount, row.memberPer),
    modelBudgets: readModelBudgets(row.modelBudgets),
    accountModelBudgets: readModelBudgets(row.accountModelBudgets),
    expiresAt: row.expiresAt,
    isManagement: row.role !== null,
    tags: listOf(row.tags) ?? [],
    isPaused: row.disabledAt !== null,
    previous:
      row.previousHash === null || row.previousHashUntil === null
        ? null
        : { hash: row.previousHash, endsAt: row.previousHashUntil },
  };
}

const budgetOf = (amountMicrocents: bigint | null, per: Budget['per'] | null): Budget | null =>
  amountMicrocents === null || per === null ? null : { amountMicrocents, per };
