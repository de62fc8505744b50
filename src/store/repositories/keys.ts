/** API keys, as queried by the account host and the CLI. */
import type { Kysely, Updateable } from 'kysely';
import type { Budget } from '../budget.ts';
import type { AccountStatus, ChangeKind } from '../database.ts';
import { listOf } from '../reports/usage-expressions.ts';
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

export type NewKey = { readonly sessionId?: string | null } & Pick<
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

/**
 * Rejects with `not_found` if there is no such account, and with `conflict` if it has the maximum of live keys, or if the session has one
 * already: each has a budget of its own.
 */
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
    const { accountId, sessionId = null, createdAt: at } = key;
    if (sessionId !== null && (await findSessionKey(transaction, { accountId, sessionId, at })) !== undefined)
      throw new StoreError('conflict', 'The session has a key for this account.');
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
  return (await query.where('sessionId', 'is', null).execute()).map(toKey);
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

/** The live key of a session for an account. */
export async function findSessionKey(
  db: Db,
  { accountId, sessionId, at }: { readonly accountId: string; readonly sessionId: string; readonly at: number },
): Promise<ApiKey | undefined> {
  const row = await db
    .selectFrom('api_key')
    .selectAll()
    .where('sessionId', '=', sessionId)
    .where('accountId', '=', accountId)
    .where('status', '=', 'active')
    .where('expiresAt', '>', at)
    .executeTakeFirst();
  return row === undefined ? undefined : toKey(row);
}

/** Unrevoked keys whose session is over, or whose own time is: of one person, or of all. */
export async function keysOfEndedSessions(
  db: Db,
  { at, limit, userId }: { readonly at: number; readonly limit: number; readonly userId?: string | undefined },
): Promise<readonly string[]> {
  const stored = storedOn(db);
  const living = stored.selectFrom('auth_session').select('id').where('expiresAt', '>', BigInt(at));
  let query = stored
    .selectFrom('api_key')
    .select('id')
    .where('session_id', 'is not', null)
    .where('status', '=', 'active')
    .where((is) => is.or([is('expires_at', '<=', BigInt(at)), is('session_id', 'not in', living)]))
    .limit(limit);
  if (userId !== undefined) query = query.where('user_id', '=', userId);
  const rows = await query.execute();
  return rows.map(({ id }) => id);
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
    /** Without the keys of sessions. */
    readonly isListed?: boolean;
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
  if (request.isListed === true) query = query.where('sessionId', 'is', null);
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
      if (row.sessionId !== null) return toKey(row);
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
