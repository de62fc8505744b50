/** API keys, as queried by the account host, the CLI and every process's directory. */
import { sql, type Kysely, type Updateable } from 'kysely';
import type { Budget } from '../budget.ts';
import type { AccountStatus, ChangeKind, Database } from '../database.ts';
import { inOneMoment } from '../one-moment.ts';
import { hourMs, nextDay } from '../../platform/calendar/time-zone.ts';
import { placesOf, timeZoneOf } from '../reports/account-usage.ts';
import { listOf } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { rollUpRange } from '../reports/usage-range.ts';
import { storedOn, type Row, type Rows } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';
import { recordChange } from './changes.ts';
import { limitsText } from './limits-text.ts';
import { addNotice, nobody } from './notices.ts';
import { endInvitationsBy } from './one-time-secrets.ts';
import { pageOf } from './page.ts';

type Db = Kysely<Rows>;

/** A key without its secret parts: nothing here grants access. */
export type ApiKey = Omit<
  Row<'api_key'>,
  'hash' | 'pepperId' | 'previousHash' | 'previousHashUntil' | 'tags' | 'updatedAt'
> & {
  /** Tags added to those of each request. */
  readonly tags: readonly string[];
  /** Until when the secret before the last rotation works. */
  readonly previousEndsAt: number | null;
  readonly updatedAt: number;
};

export type NewKey = Pick<
  Row<'api_key'>,
  | 'id'
  | 'accountId'
  | 'userId'
  | 'name'
  | 'display'
  | 'hash'
  | 'pepperId'
  | 'limits'
  | 'models'
  | 'createdAt'
  | 'expiresAt'
> & { readonly role?: string | null; readonly isOperator?: boolean; readonly tags?: readonly string[] };

/** Maximum live keys of one account, because an account is in memory as long as any of its keys is. */
export const liveKeysMax = 1000;

/** Rejects with `not_found` if there is no such account, and with `conflict` if it has the maximum of live keys. */
export async function createKey(
  db: Db,
  request: { readonly key: NewKey; readonly budget?: Budget | null; readonly changeId: Uint8Array },
): Promise<void> {
  const { key, budget = null, changeId } = request;
  await db.transaction().execute(async (transaction) => {
    // Takes the lock by a write instead of a read, so that keys created concurrently are counted.
    const account = await transaction
      .updateTable('account')
      .set((is) => ({ version: is('version', '+', 1) }))
      .where('id', '=', key.accountId)
      .where('kind', '=', 0)
      .where('deletedAt', 'is', null)
      .returning('id')
      .executeTakeFirst();
    if (account === undefined) throw new StoreError('not_found', `there is no account ${key.accountId}`);
    const { live } = await transaction
      .selectFrom('api_key')
      .select((is) => is.fn.countAll<bigint>().as('live'))
      .where('accountId', '=', key.accountId)
      .where('status', '=', 'active')
      .where((is) => is.or([is('expiresAt', 'is', null), is('expiresAt', '>', key.createdAt)]))
      .executeTakeFirstOrThrow();
    if (live >= BigInt(liveKeysMax))
      throw new StoreError('conflict', `An account has at most ${liveKeysMax} live keys. Revoke some first.`);
    await transaction
      .insertInto('api_key')
      .values({ ...key, tags: tagsText(key.tags), status: 'active', updatedAt: key.createdAt, revokedAt: null })
      .execute();
    // Its first request begins the balance: nothing can have been spent before.
    if (budget !== null)
      await transaction
        .insertInto('budget')
        .values({ ...budget, subject: key.id, setAt: key.createdAt })
        .execute();
    await recordChange(transaction, changeId, key.createdAt, 'key_created', key.id);
  });
}

/** Newest first. */
export async function listKeys(
  db: Db,
  request: { readonly accountId?: string; readonly limit?: number },
): Promise<readonly ApiKey[]> {
  let query = db
    .selectFrom('api_key')
    .selectAll()
    .orderBy('createdAt', 'desc')
    .orderBy('id')
    .limit(pageOf(request.limit));
  if (request.accountId !== undefined) query = query.where('accountId', '=', request.accountId);
  return (await query.execute()).map(toKey);
}

/** A live key, as the account host needs it. */
export type PresentedKey = Pick<ApiKey, 'id' | 'accountId' | 'name' | 'role' | 'isOperator' | 'limits'> & {
  readonly accountStatus: AccountStatus;
};

/** Finds the live key with this hash, including by a previous secret that a rotation has left valid for a while. */
export async function findPresentedKey(
  db: Db,
  { hash, at }: { readonly hash: Uint8Array; readonly at: number },
): Promise<PresentedKey | undefined> {
  return await db
    .selectFrom('api_key')
    .innerJoin('account', 'account.id', 'api_key.accountId')
    .select(['api_key.id', 'api_key.accountId', 'api_key.name', 'api_key.role', 'api_key.isOperator'])
    .select(['api_key.limits', 'account.status as accountStatus'])
    .where('api_key.status', '=', 'active')
    .where('api_key.disabledAt', 'is', null)
    .where((by) => by.or([by('expiresAt', 'is', null), by('expiresAt', '>', at)]))
    .where((by) =>
      by.or([by('hash', '=', hash), by.and([by('previousHash', '=', hash), by('previousHashUntil', '>', at)])]),
    )
    .executeTakeFirst();
}

/** Returns a key, even if revoked; undefined if the account has no such key. */
export async function getKey(
  db: Db,
  { keyId, accountId }: { readonly keyId: string; readonly accountId?: string },
): Promise<ApiKey | undefined> {
  let query = db.selectFrom('api_key').selectAll().where('id', '=', keyId);
  if (accountId !== undefined) query = query.where('accountId', '=', accountId);
  const row = await query.executeTakeFirst();
  return row === undefined ? undefined : toKey(row);
}

/** Lists an account's unrevoked keys, or those with these ids, including revoked ones; newest first, after the given one. */
export async function listAccountKeys(
  db: Db,
  request: {
    readonly accountId: string;
    /** Only inference keys of this user; null: those without a user. */
    readonly userId?: string | null | undefined;
    readonly after?: string | undefined;
    /** Omitted: paused keys are included. */
    readonly isEnabled?: boolean | undefined;
    readonly ids?: readonly string[] | undefined;
    readonly limit: number;
  },
): Promise<readonly ApiKey[]> {
  const { accountId, userId, after, ids, limit } = request;
  let query = db
    .selectFrom('api_key')
    .selectAll()
    .where('accountId', '=', accountId)
    .orderBy('createdAt', 'desc')
    .orderBy('id', 'desc')
    .limit(limit);
  query = ids === undefined ? query.where('status', '=', 'active') : query.where('id', 'in', ids);
  if (userId !== undefined) query = query.where('role', 'is', null);
  if (userId !== undefined && userId !== null) query = query.where('userId', '=', userId);
  if (userId === null) query = query.where('userId', 'is', null);
  if (request.isEnabled === true) query = query.where('disabledAt', 'is', null);
  if (after !== undefined) {
    const last = await db
      .selectFrom('api_key')
      .select('createdAt')
      .where('id', '=', after)
      .where('accountId', '=', accountId)
      .executeTakeFirst();
    if (last === undefined) return [];
    query = query.where((is) => is(is.refTuple('createdAt', 'id'), '<', is.tuple(last.createdAt, after)));
  }
  return (await query.execute()).map(toKey);
}

/** Sets which of its account's models a key may use; undefined if there is no such live key. */
export async function allowKey(
  db: Db,
  request: {
    readonly keyId: string;
    readonly models: readonly string[] | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<ApiKey | undefined> {
  const { keyId, models, at, changeId } = request;
  return db
    .transaction()
    .execute((transaction) => changeKey(transaction, keyId, { models: models }, { changeId, at, kind: 'key_models' }));
}

/** Sets some of the limits of a live key; null removes one. undefined if there is no such key. */
export async function limitKey(
  db: Db,
  request: {
    readonly keyId: string;
    readonly limits: Readonly<Record<string, unknown>>;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<ApiKey | undefined> {
  const { keyId, limits, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const known = await lockLiveKey(transaction, keyId);
    if (known === undefined) return undefined;
    const limitsNow = limitsText(known.limits, limits);
    return changeKey(transaction, keyId, { limits: limitsNow }, { changeId, at, kind: 'key_limits' });
  });
}

/** Changes the details of a live key atomically; undefined fields stay. Returns undefined if there is no such key. */
export async function editKey(
  db: Db,
  request: {
    readonly keyId: string;
    readonly name?: string | undefined;
    /** null: never. */
    readonly expiresAt?: number | null | undefined;
    readonly models?: readonly string[] | null | undefined;
    /** Fields that are null are removed. */
    readonly limits?: Readonly<Record<string, unknown>> | undefined;
    readonly tags?: readonly string[] | undefined;
    /** Whether the key is paused. A key that was already paused keeps its original time. */
    readonly disabled?: boolean | undefined;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<ApiKey | undefined> {
  const { keyId, name, expiresAt, models, limits, tags, disabled, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const known = await lockLiveKey(transaction, keyId);
    if (known === undefined) return undefined;
    const set = {
      ...(name === undefined ? {} : { name }),
      ...(expiresAt === undefined ? {} : { expiresAt }),
      ...(models === undefined ? {} : { models: models }),
      ...(limits === undefined ? {} : { limits: limitsText(known.limits, limits) }),
      ...(tags === undefined ? {} : { tags: tagsText(tags) }),
      ...(disabled === undefined ? {} : { disabledAt: disabled ? (known.disabledAt ?? at) : null }),
    };
    return changeKey(transaction, keyId, set, { changeId, at, kind: 'key_edited' });
  });
}

/**
 * Gives a live key another secret; the current one keeps working until a time, or ends now (null). An earlier one that still worked ends.
 * undefined if there is no such key.
 */
export async function rotateKey(
  db: Db,
  request: {
    readonly keyId: string;
    readonly hash: Uint8Array;
    readonly pepperId: string;
    readonly display: string;
    readonly previousEndsAt: number | null;
    readonly at: number;
    readonly changeId: Uint8Array;
  },
): Promise<ApiKey | undefined> {
  const { keyId, hash, pepperId, display, previousEndsAt, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const row = await transaction
      .updateTable('api_key')
      .set((is) => ({
        previousHash: previousEndsAt === null ? null : is.ref('hash'),
        previousHashUntil: previousEndsAt,
        hash,
        pepperId,
        display,
        updatedAt: at,
      }))
      .where('id', '=', keyId)
      .where('status', '=', 'active')
      .returningAll()
      .executeTakeFirst();
    if (row === undefined) return undefined;
    await recordChange(transaction, changeId, at, 'key_rotated', keyId);
    return toKey(row);
  });
}

/**
 * Revokes a key permanently, and records the event; undefined if there is no such key. A key that was already revoked keeps its original
 * time.
 */
export async function revokeKey(
  db: Db,
  request: { readonly keyId: string; readonly at: number; readonly changeId: Uint8Array },
): Promise<ApiKey | undefined> {
  const { keyId, at, changeId } = request;
  return db.transaction().execute(async (transaction) => {
    const revoked = await transaction
      .updateTable('api_key')
      .set({ status: 'revoked', revokedAt: at, updatedAt: at, previousHash: null, previousHashUntil: null })
      .where('id', '=', keyId)
      .where('status', '=', 'active')
      .executeTakeFirst();
    const row = await transaction.selectFrom('api_key').selectAll().where('id', '=', keyId).executeTakeFirst();
    if (row === undefined) return undefined;
    if (revoked.numUpdatedRows === 1n) {
      await recordChange(transaction, changeId, at, 'key_revoked', keyId);
      await endInvitationsBy(storedOn(transaction), { by: keyId, accountId: row.accountId, role: null });
      await addNotice(transaction, {
        id: `evt_${keyId}`,
        accountId: row.accountId,
        type: 'key.revoked',
        data: JSON.stringify({ key_id: keyId, name: row.name }),
        recipients: nobody,
        isWebhook: true,
        at,
      });
    }
    return toKey(row);
  });
}

/**
 * Locks and reads the state that a change starts from, so that two concurrent changes of different limits both apply. undefined if there is
 * no such live key.
 */
async function lockLiveKey(
  transaction: Db,
  keyId: string,
): Promise<Pick<Row<'api_key'>, 'limits' | 'disabledAt'> | undefined> {
  // A write that changes nothing locks the row on PostgreSQL; on SQLite the repositories are the only writers.
  return transaction
    .updateTable('api_key')
    .set((is) => ({ name: is.ref('name') }))
    .where('id', '=', keyId)
    .where('status', '=', 'active')
    .returning(['limits', 'disabledAt'])
    .executeTakeFirst();
}

/** Changes a live key; undefined if there is no such key. */
async function changeKey(
  transaction: Db,
  keyId: string,
  set: Pick<Updateable<Rows['api_key']>, 'models' | 'limits' | 'name' | 'expiresAt' | 'tags' | 'disabledAt'>,
  { changeId, at, kind }: { readonly changeId: Uint8Array; readonly at: number; readonly kind: ChangeKind },
): Promise<ApiKey | undefined> {
  const row = await transaction
    .updateTable('api_key')
    .set({ ...set, updatedAt: at })
    .where('id', '=', keyId)
    .where('status', '=', 'active')
    .returningAll()
    .executeTakeFirst();
  if (row === undefined) return undefined;
  await recordChange(transaction, changeId, at, kind, keyId);
  return toKey(row);
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

/** A page takes SQLite's thread 5 ms, which blocks other queries for that time. */
export const hashesAtOnce = 5_000;

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
    .where('api_key.status', '=', 'active');

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

function toKey(row: Row<'api_key'>): ApiKey {
  // Secret parts are not returned.
  const { hash: _hash, pepperId: _pepperId, previousHash: _previousHash, previousHashUntil, ...key } = row;
  return {
    ...key,
    tags: listOf(key.tags) ?? [],
    previousEndsAt: previousHashUntil,
    updatedAt: key.updatedAt ?? key.createdAt,
  };
}

const tagsText = (tags: readonly string[] | undefined): string | null =>
  tags === undefined || tags.length === 0 ? null : JSON.stringify(tags);

/**
 * When each of these keys of an account last ended a request: to the millisecond since the hour before the last one with requests, and as
 * the end of its hour for earlier ones. Unused keys are omitted. Hours are located through the account's summed-up days, so that an idle
 * key costs a query of its days rather than of all hours ever recorded.
 */
export async function lastUseOfKeys(
  db: Kysely<Database>,
  request: { readonly accountId: string; readonly keyIds: readonly string[] },
): Promise<readonly { readonly keyId: string; readonly at: number }[]> {
  const { accountId, keyIds } = request;
  if (keyIds.length === 0) return [];
  return await inOneMoment(db, async (moment) => {
    const { closed, days } = await placesOf(moment, accountId, await timeZoneOf(moment, accountId));
    const last = new Map<string, number>();
    const rest = (): readonly string[] => keyIds.filter((keyId) => !last.has(keyId));
    const rows = await moment
      .selectFrom('usage')
      .select(['key_id', sql<bigint>`max(ended_at)`.as('at')])
      .where('account_id', '=', accountId)
      .where('key_id', 'in', keyIds)
      .where('ended_at', '>=', BigInt(closed))
      .where(inMonthsOf(moment, { from: closed }))
      .groupBy('key_id')
      .execute();
    for (const { key_id, at } of rows) last.set(key_id, Number(at));
    const until = Math.min(days?.until ?? 0, closed);
    // The hour in which a day begins may itself begin before the day.
    const before = hourMs - 1;
    const hours = { accountId, keyIds: rest(), from: until - before, to: closed };
    for (const { key_id, at } of await newest(moment, 'hour', hours)) last.set(key_id, Number(at) + hourMs - 1);
    for (const { key_id, at } of await newest(moment, 'day', { accountId, keyIds: rest(), from: 0, to: until })) {
      const day = Number(at);
      const span = { from: day - before, to: Math.min(nextDay(days!.timeZone, day), closed) };
      const [hour] = await newest(moment, 'hour', { accountId, keyIds: [key_id], ...span });
      if (hour !== undefined) last.set(key_id, Number(hour.at) + hourMs - 1);
    }
    return [...last].map(([keyId, at]) => ({ keyId, at }));
  });
}

/** The newest hour or day with usage in a span, by key. */
async function newest(
  db: Kysely<Database>,
  time: 'hour' | 'day',
  request: {
    readonly accountId: string;
    readonly keyIds: readonly string[];
    readonly from: number;
    readonly to: number;
  },
): Promise<readonly { readonly key_id: string; readonly at: bigint }[]> {
  const { accountId, keyIds, from, to } = request;
  if (keyIds.length === 0 || from >= to) return [];
  return (await (db as Kysely<Record<string, Record<string, never>>>)
    .selectFrom(`usage_${time}`)
    .select(['key_id', sql<bigint>`max(${sql.ref(time)})`.as('at')] as never)
    .where(rollUpRange({ accountId, tag: undefined, time, from, to }))
    .where('key_id', 'in', keyIds as never)
    .groupBy('key_id')
    .execute()) as never;
}
