/** Users, their role in each account, and how they join. */
import { sql, type Kysely } from 'kysely';
import type { AccountStatus, Database, MemberRole } from '../database.ts';
import { StoreError } from '../store-error.ts';

type Db = Kysely<Database>;

export interface SessionRow {
  readonly sessionId: string;
  readonly userId: string;
  readonly name: string;
  readonly email: string;
  readonly isOperator: boolean;
  /** Their sign-in ends with a code of an authenticator. */
  readonly hasTwoFactor: boolean;
  /** When they signed in. */
  readonly createdAt: number;
}

/** The session that a cookie names, with its user; undefined: there is none, it is over, or the address is not verified. */
export async function findSession(
  db: Db,
  { token, at }: { readonly token: string; readonly at: number },
): Promise<SessionRow | undefined> {
  const row = await db
    .selectFrom('auth_session as session')
    .innerJoin('auth_user as person', 'person.id', 'session.userId')
    .leftJoin('server_operator as operator', 'operator.user_id', 'person.id')
    .where('session.token', '=', token)
    .where('session.expiresAt', '>', BigInt(at))
    .where('person.emailVerified', '=', 1n)
    .select([
      'session.id as sessionId',
      'session.createdAt as createdAt',
      'person.id as userId',
      'person.name as name',
      'person.email as email',
      'person.twoFactorEnabled as twoFactorEnabled',
      'operator.user_id as operator',
    ])
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const { operator, twoFactorEnabled, createdAt, ...person } = row;
  return {
    ...person,
    isOperator: operator !== null,
    hasTwoFactor: twoFactorEnabled === 1n,
    createdAt: Number(createdAt),
  };
}

/** The live sessions of a user, newest first, a hundred at most. */
export async function listSessions(db: Db, { userId, at }: { readonly userId: string; readonly at: number }) {
  const rows = await db
    .selectFrom('auth_session')
    .where('userId', '=', userId)
    .where('expiresAt', '>', BigInt(at))
    .orderBy('createdAt', 'desc')
    .limit(100)
    .select(['id', 'createdAt', 'expiresAt', 'ipAddress', 'userAgent'])
    .execute();
  return rows.map((row) => ({ ...row, createdAt: Number(row.createdAt), expiresAt: Number(row.expiresAt) }));
}

/** Ends sessions of a user: one, or all but one; returns how many. */
export async function endSessions(
  db: Db,
  { userId, only, except }: { readonly userId: string; readonly only?: string; readonly except?: string },
): Promise<number> {
  let query = db.deleteFrom('auth_session').where('userId', '=', userId);
  if (only !== undefined) query = query.where('id', '=', only);
  if (except !== undefined) query = query.where('id', '<>', except);
  return Number((await query.executeTakeFirst()).numDeletedRows);
}

/** Deletes expired sessions, verifications and invitations, a bounded number of each, and returns how many. */
export async function forgetExpired(db: Db, { at }: { readonly at: number }): Promise<number> {
  let forgotten = 0n;
  for (const table of ['auth_session', 'auth_verification'] as const) {
    const over = db.selectFrom(table).select('id').where('expiresAt', '<=', BigInt(at)).limit(500);
    forgotten += (await db.deleteFrom(table).where('id', 'in', over).executeTakeFirst()).numDeletedRows;
  }
  const over = db.selectFrom('invitation').select('id').where('expires_at', '<=', BigInt(at)).limit(500);
  forgotten += (await db.deleteFrom('invitation').where('id', 'in', over).executeTakeFirst()).numDeletedRows;
  return Number(forgotten);
}

/** The role of a user in an account; without a named account, in the first that they joined. */
export async function findMembership(
  db: Db,
  { userId, accountId }: { readonly userId: string; readonly accountId: string | undefined },
): Promise<
  { readonly accountId: string; readonly role: MemberRole; readonly accountStatus: AccountStatus } | undefined
> {
  let query = db
    .selectFrom('member')
    .innerJoin('account', 'account.id', 'member.account_id')
    .where('member.user_id', '=', userId);
  if (accountId !== undefined) query = query.where('member.account_id', '=', accountId);
  return await query
    .orderBy('member.created_at')
    .orderBy('member.account_id')
    .select(['member.account_id as accountId', 'member.role', 'account.status as accountStatus'])
    .limit(1)
    .executeTakeFirst();
}

/** The accounts of a user, in the order in which they joined. */
export async function listMemberships(db: Db, { userId }: { readonly userId: string }) {
  return await db
    .selectFrom('member')
    .innerJoin('account', 'account.id', 'member.account_id')
    .where('user_id', '=', userId)
    .orderBy('member.created_at')
    .orderBy('account.id')
    .limit(100)
    .select(['account.id as accountId', 'account.name as name', 'account.status as status', 'member.role as role'])
    .execute();
}

export interface MemberRow {
  readonly userId: string;
  readonly name: string;
  readonly email: string;
  readonly role: MemberRole;
  readonly joinedAt: number;
}

/** Members of an account, newest first, after the user with the id `after`. */
export async function listMembers(
  db: Db,
  request: { readonly accountId: string; readonly limit: number; readonly after?: string | undefined },
): Promise<readonly MemberRow[]> {
  const { accountId, limit, after } = request;
  let query = members(db, accountId);
  if (after !== undefined) {
    const mark = await db
      .selectFrom('member')
      .where('account_id', '=', accountId)
      .where('user_id', '=', after)
      .select('created_at')
      .executeTakeFirst();
    if (mark === undefined) throw new StoreError('not_found', 'no such member');
    query = query.where((is) =>
      is.or([
        is('member.created_at', '<', mark.created_at),
        is.and([is('member.created_at', '=', mark.created_at), is('member.user_id', '<', after)]),
      ]),
    );
  }
  const rows = await query
    .orderBy('member.created_at', 'desc')
    .orderBy('member.user_id', 'desc')
    .limit(Math.max(1, Math.min(limit, 101)))
    .execute();
  return rows.map((row) => ({ ...row, joinedAt: Number(row.joinedAt) }));
}

export async function getMember(
  db: Db,
  { accountId, userId }: { readonly accountId: string; readonly userId: string },
): Promise<MemberRow | undefined> {
  const row = await members(db, accountId).where('member.user_id', '=', userId).executeTakeFirst();
  return row === undefined ? undefined : { ...row, joinedAt: Number(row.joinedAt) };
}

const members = (db: Db, accountId: string) =>
  db
    .selectFrom('member')
    .innerJoin('auth_user', 'auth_user.id', 'member.user_id')
    .where('member.account_id', '=', accountId)
    .select([
      'member.user_id as userId',
      'auth_user.name as name',
      'auth_user.email as email',
      'member.role as role',
      'member.created_at as joinedAt',
    ]);

/**
 * Changes the role of a member, or with no role removes them. Throws `not_found`, and `conflict` when the account would have no
 * owner left. Returns the previous role.
 */
export async function setMemberRole(
  db: Db,
  request: { readonly accountId: string; readonly userId: string; readonly role: MemberRole | null },
): Promise<MemberRole> {
  const { accountId, userId, role } = request;
  return await db.transaction().execute(async (transaction) => {
    // Two owners who demote each other run one after the other.
    await lockAccount(transaction, accountId);
    const owners = await transaction
      .selectFrom('member')
      .where('account_id', '=', accountId)
      .where('role', '=', 'owner')
      .select('user_id')
      .limit(2)
      .execute();
    const member = await transaction
      .selectFrom('member')
      .where('account_id', '=', accountId)
      .where('user_id', '=', userId)
      .select('role')
      .executeTakeFirst();
    if (member === undefined) throw new StoreError('not_found', 'no such member');
    if (member.role === 'owner' && role !== 'owner' && owners.length < 2)
      throw new StoreError('conflict', 'an account keeps one owner');
    const one = { account_id: accountId, user_id: userId };
    if (role === null)
      await transaction
        .deleteFrom('member')
        .where((is) => is.and(one))
        .execute();
    else
      await transaction
        .updateTable('member')
        .set({ role })
        .where((is) => is.and(one))
        .execute();
    return member.role;
  });
}

/** Makes changes to the members of an account run one after the other, until the transaction ends. */
export async function lockAccount(transaction: Db, accountId: string): Promise<void> {
  // A write that changes nothing takes the row's lock on PostgreSQL; on SQLite the repositories are alone.
  await transaction
    .updateTable('account')
    .set({ name: sql`name` })
    .where('id', '=', accountId)
    .execute();
}

/** Makes a user a member of an account; an existing member keeps their role. */
export async function addMember(
  db: Db,
  request: { readonly accountId: string; readonly userId: string; readonly role: MemberRole; readonly at: number },
): Promise<boolean> {
  const { accountId, userId, role, at } = request;
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('member')
    .values({ account_id: accountId, user_id: userId, role, created_at: at })
    .onConflict((conflict) => conflict.columns(['account_id', 'user_id']).doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

export interface InvitationRow {
  readonly id: string;
  readonly email: string;
  readonly role: MemberRole;
  readonly invitedBy: string;
  readonly createdAt: number;
  readonly expiresAt: number;
}

/** The most open invitations of one account. */
export const invitationsMax = 1000;

/** An offer to join; an earlier one of the account to the same address no longer counts. Throws `conflict` beyond the maximum. */
export async function createInvitation(
  db: Db,
  request: InvitationRow & { readonly accountId: string; readonly tokenHash: Uint8Array },
): Promise<void> {
  const { id, accountId, email, role, tokenHash, invitedBy, createdAt, expiresAt } = request;
  await db.transaction().execute(async (transaction) => {
    // When two invitations go to one address at once, the later one counts, and the last free slot is given once.
    await lockAccount(transaction, accountId);
    await transaction.deleteFrom('invitation').where('account_id', '=', accountId).where('email', '=', email).execute();
    const { count } = await transaction
      .selectFrom('invitation')
      .where('account_id', '=', accountId)
      .select(({ fn }) => fn.countAll<bigint>().as('count'))
      .executeTakeFirstOrThrow();
    if (Number(count) >= invitationsMax) throw new StoreError('conflict', 'too many open invitations');
    await transaction
      .insertInto('invitation')
      .values({
        id,
        account_id: accountId,
        email,
        role,
        token_hash: tokenHash,
        invited_by: invitedBy,
        created_at: createdAt,
        expires_at: expiresAt,
      })
      .execute();
  });
}

/** Open invitations, newest first. */
export async function listInvitations(
  db: Db,
  request: {
    readonly accountId: string;
    readonly at: number;
    readonly limit: number;
    readonly after?: string | undefined;
  },
): Promise<readonly InvitationRow[]> {
  let query = db
    .selectFrom('invitation')
    .where('account_id', '=', request.accountId)
    .where('expires_at', '>', BigInt(request.at));
  if (request.after !== undefined) query = query.where('id', '<', request.after);
  const rows = await query
    .orderBy('id', 'desc')
    .limit(Math.max(1, Math.min(request.limit, 101)))
    .selectAll()
    .execute();
  return rows.map((row) => ({
    id: row.id,
    email: row.email,
    role: row.role,
    invitedBy: row.invited_by,
    createdAt: Number(row.created_at),
    expiresAt: Number(row.expires_at),
  }));
}

/** Withdraws an invitation; undefined: there is none. */
export async function deleteInvitation(
  db: Db,
  { accountId, id }: { readonly accountId: string; readonly id: string },
): Promise<{ readonly email: string; readonly role: MemberRole } | undefined> {
  return await db
    .deleteFrom('invitation')
    .where('account_id', '=', accountId)
    .where('id', '=', id)
    .returning(['email', 'role'])
    .executeTakeFirst();
}

/** What an invitation shows to the holder of its token; undefined: there is none, or it has expired. */
export async function findInvitation(
  db: Db,
  { tokenHash, at }: { readonly tokenHash: Uint8Array; readonly at: number },
): Promise<{ readonly accountId: string; readonly email: string; readonly role: MemberRole } | undefined> {
  return await db
    .selectFrom('invitation')
    .where('token_hash', '=', tokenHash)
    .where('expires_at', '>', BigInt(at))
    .where('account_id', 'in', activeAccounts(db))
    .select(['account_id as accountId', 'email', 'role'])
    .executeTakeFirst();
}

/** A suspended account cannot be joined; the link works again when it is revived. */
const activeAccounts = (db: Db) => db.selectFrom('account').where('status', '=', 'active').select('id');

/** Whether an open invitation was sent to this address. */
export async function isInvited(
  db: Db,
  { email, at }: { readonly email: string; readonly at: number },
): Promise<boolean> {
  const row = await db
    .selectFrom('invitation')
    .where('email', '=', email.toLowerCase())
    .where('expires_at', '>', BigInt(at))
    .select('id')
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Accepts an invitation: once, and only for a user with the address that it was sent to. Undefined: not accepted. */
export async function acceptInvitation(
  db: Db,
  request: { readonly tokenHash: Uint8Array; readonly userId: string; readonly email: string; readonly at: number },
): Promise<{ readonly accountId: string; readonly role: MemberRole } | undefined> {
  const { userId, at } = request;
  return await db.transaction().execute(async (transaction) => {
    const taken = await takeInvitation(transaction, request);
    if (taken === undefined) return undefined;
    await addMember(transaction, { ...taken, userId, at });
    const now = await findMembership(transaction, { userId, accountId: taken.accountId });
    return { accountId: taken.accountId, role: now!.role };
  });
}

/** Uses up what was sent to this address; undefined: there is none, or it has expired. */
async function takeInvitation(
  transaction: Db,
  { tokenHash, email, at }: { readonly tokenHash: Uint8Array; readonly email: string; readonly at: number },
): Promise<{ readonly accountId: string; readonly role: MemberRole } | undefined> {
  return await transaction
    .deleteFrom('invitation')
    .where('token_hash', '=', tokenHash)
    .where('email', '=', email)
    .where('expires_at', '>', BigInt(at))
    .where('account_id', 'in', activeAccounts(transaction))
    .returning(['account_id as accountId', 'role'])
    .executeTakeFirst();
}

/** Whether a user has this address. */
export async function hasPerson(db: Db, { email }: { readonly email: string }): Promise<boolean> {
  return (await db.selectFrom('auth_user').where('email', '=', email).select('id').executeTakeFirst()) !== undefined;
}

/**
 * Accepts an invitation for a user who is created with it, all at once; their address is confirmed by the mail that brought the
 * token. Undefined: there is no such invitation. Throws `conflict` when the address is taken.
 */
export async function joinAnew(
  db: Db,
  request: {
    readonly tokenHash: Uint8Array;
    readonly userId: string;
    readonly credentialId: string;
    readonly email: string;
    readonly name: string;
    readonly passwordHash: string;
    readonly at: number;
  },
): Promise<{ readonly accountId: string; readonly userId: string; readonly role: MemberRole } | undefined> {
  const { userId, at } = request;
  return await db.transaction().execute(async (transaction) => {
    const taken = await takeInvitation(transaction, request);
    if (taken === undefined) return undefined;
    await insertPerson(transaction, request);
    await addMember(transaction, { ...taken, userId, at });
    return { ...taken, userId };
  });
}

interface NewPerson {
  readonly userId: string;
  readonly credentialId: string;
  readonly email: string;
  readonly name: string;
  readonly passwordHash: string;
  readonly at: number;
}

/** With a confirmed address and a password. */
async function insertPerson(db: Db, { userId: id, name, email, at, ...rest }: NewPerson): Promise<void> {
  await db
    .insertInto('auth_user')
    .values({ id, name, email, emailVerified: 1, image: null, createdAt: at, updatedAt: at })
    .execute();
  await insertCredential(db, { userId: id, at, ...rest });
}

async function insertCredential(
  db: Db,
  { userId, credentialId, passwordHash, at }: Omit<NewPerson, 'email' | 'name'>,
): Promise<void> {
  await db
    .insertInto('auth_account')
    .values({
      id: credentialId,
      accountId: userId,
      providerId: 'credential',
      userId,
      password: passwordHash,
      createdAt: at,
      updatedAt: at,
    })
    .execute();
}

/** Whether the server has an operator. */
export async function hasOperator(db: Db, _request: object): Promise<boolean> {
  return (await db.selectFrom('server_operator').select('user_id').limit(1).executeTakeFirst()) !== undefined;
}

/** Replaces the owner link. */
export async function setOwnerLink(
  db: Db,
  { tokenHash, expiresAt }: { readonly tokenHash: Uint8Array; readonly expiresAt: number },
): Promise<void> {
  const row = { token_hash: tokenHash, expires_at: expiresAt };
  await db
    .insertInto('owner_link')
    .values({ id: 1, ...row })
    .onConflict((conflict) => conflict.column('id').doUpdateSet(row))
    .execute();
}

/** The last owner link that was not used, even when it has expired. */
export async function getOwnerLink(
  db: Db,
  _request: object,
): Promise<{ readonly tokenHash: Uint8Array; readonly expiresAt: number } | undefined> {
  const row = await db.selectFrom('owner_link').select(['token_hash', 'expires_at']).executeTakeFirst();
  return row === undefined ? undefined : { tokenHash: row.token_hash, expiresAt: Number(row.expires_at) };
}

/** Whether this token opens the owner's form now. */
export async function isOwnerLink(
  db: Db,
  { tokenHash, at }: { readonly tokenHash: Uint8Array; readonly at: number },
): Promise<boolean> {
  const row = await db
    .selectFrom('owner_link')
    .where('token_hash', '=', tokenHash)
    .where('expires_at', '>', BigInt(at))
    .select('id')
    .executeTakeFirst();
  return row !== undefined;
}

/**
 * Creates a user with a password who operates the server and owns its oldest account, all at once. With `tokenHash` only while
 * the owner link is that one, which is used up. Undefined: it is not. An existing user with the address becomes the owner, with
 * this password and no other way to sign in: their current sessions end.
 */
export async function createOwner(
  db: Db,
  request: {
    readonly userId: string;
    readonly credentialId: string;
    readonly name: string;
    readonly email: string;
    readonly passwordHash: string;
    readonly tokenHash: Uint8Array | undefined;
    readonly at: number;
  },
): Promise<{ readonly userId: string } | undefined> {
  const { name, email, tokenHash, at } = request;
  return await db.transaction().execute(async (transaction) => {
    if (tokenHash !== undefined) {
      const used = await transaction
        .deleteFrom('owner_link')
        .where('token_hash', '=', tokenHash)
        .where('expires_at', '>', BigInt(at))
        .executeTakeFirst();
      if (used.numDeletedRows === 0n) return undefined;
    }
    const first = await transaction
      .selectFrom('account')
      .where('kind', '=', 0n)
      .orderBy('created_at')
      .orderBy('id')
      .select('id')
      .limit(1)
      .executeTakeFirst();
    if (first === undefined) throw new StoreError('not_found', 'There is no account yet. Start the service once.');
    const known = await transaction.selectFrom('auth_user').where('email', '=', email).select('id').executeTakeFirst();
    const userId = known?.id ?? request.userId;
    if (known === undefined) await insertPerson(transaction, { ...request, userId });
    else {
      // The operator vouches for it: the user is theirs, however it was created.
      for (const table of ['auth_account', 'auth_session', 'auth_passkey', 'auth_two_factor'] as const)
        await transaction.deleteFrom(table).where('userId', '=', userId).execute();
      await transaction
        .updateTable('auth_user')
        .set({ name, emailVerified: 1, twoFactorEnabled: 0, updatedAt: at })
        .where('id', '=', userId)
        .execute();
      await insertCredential(transaction, { ...request, userId });
    }
    await transaction
      .insertInto('server_operator')
      .values({ user_id: userId, created_at: at })
      .onConflict((conflict) => conflict.column('user_id').doNothing())
      .execute();
    await transaction
      .insertInto('member')
      .values({ account_id: first.id, user_id: userId, role: 'owner', created_at: at })
      .onConflict((conflict) => conflict.columns(['account_id', 'user_id']).doUpdateSet({ role: 'owner' }))
      .execute();
    return { userId };
  });
}

/** Live keys of one user in an account. */
export async function keysOfMember(
  db: Db,
  { accountId, userId }: { readonly accountId: string; readonly userId: string },
): Promise<readonly string[]> {
  const rows = await db
    .selectFrom('api_key')
    .where('account_id', '=', accountId)
    .where('user_id', '=', userId)
    .where('status', '=', 'active')
    .orderBy('id')
    .limit(1000)
    .select('id')
    .execute();
  return rows.map(({ id }) => id);
}
