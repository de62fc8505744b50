/** Which accounts a user belongs to, and in which role. */
import { sql, type Kysely } from 'kysely';
import type { AccountStatus, MemberRole } from '../database.ts';
import { storedOn, type Rows } from '../schema/codec.ts';
import { memberSubject } from '../budget.ts';
import { StoreError } from '../store-error.ts';
import { endInvitationsBy } from './one-time-secrets.ts';

type Db = Kysely<Rows>;

/** The role of a user in an account; by default in the first that they joined. */
export async function findMembership(
  db: Db,
  { userId, accountId }: { readonly userId: string; readonly accountId: string | undefined },
): Promise<
  { readonly accountId: string; readonly role: MemberRole; readonly accountStatus: AccountStatus } | undefined
> {
  let query = db
    .selectFrom('member')
    .innerJoin('account', 'account.id', 'member.accountId')
    .where('member.userId', '=', userId);
  if (accountId !== undefined) query = query.where('member.accountId', '=', accountId);
  return await query
    .orderBy('member.createdAt')
    .orderBy('member.accountId')
    .select(['member.accountId', 'member.role', 'account.status as accountStatus'])
    .limit(1)
    .executeTakeFirst();
}

/** The accounts of a user, in the order of joining. */
export async function listMemberships(db: Db, { userId }: { readonly userId: string }) {
  return await db
    .selectFrom('member')
    .innerJoin('account', 'account.id', 'member.accountId')
    .where('member.userId', '=', userId)
    .orderBy('member.createdAt')
    .orderBy('account.id')
    .limit(100)
    .select(['account.id as accountId', 'account.name', 'account.status', 'member.role'])
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
    const mark = await storedOn(db)
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
  storedOn(db)
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

/** When each of these users last signed in, according to the audit log: milliseconds; users who never did are omitted. */
export async function lastSignIns(
  db: Db,
  { userIds }: { readonly userIds: readonly string[] },
): Promise<readonly { readonly userId: string; readonly at: number }[]> {
  if (userIds.length === 0) return [];
  const rows = await storedOn(db)
    .selectFrom('audit_log')
    .where('actor_id', 'in', userIds)
    .where('action', '=', 'session.create')
    .groupBy('actor_id')
    .select(['actor_id as userId', ({ fn }) => fn.max('at').as('at')])
    .execute();
  return rows.map(({ userId, at }) => ({ userId: userId!, at: Number(at) }));
}

/**
 * Changes the role of a member, or removes them if no role is given. Throws `not_found`, and `conflict` if the account would have no owner
 * left. Returns the previous role.
 */
export async function setMemberRole(
  db: Db,
  request: { readonly accountId: string; readonly userId: string; readonly role: MemberRole | null },
): Promise<MemberRole> {
  const { accountId, userId, role } = request;
  return await db.transaction().execute(async (transaction) => {
    // Two owners who demote each other are serialized.
    await lockAccount(transaction, accountId);
    const owners = await transaction
      .selectFrom('member')
      .where('accountId', '=', accountId)
      .where('role', '=', 'owner')
      .select('userId')
      .limit(2)
      .execute();
    const member = await transaction
      .selectFrom('member')
      .where('accountId', '=', accountId)
      .where('userId', '=', userId)
      .select('role')
      .executeTakeFirst();
    if (member === undefined) throw new StoreError('not_found', 'no such member');
    if (member.role === 'owner' && role !== 'owner' && owners.length < 2)
      throw new StoreError('conflict', 'an account keeps one owner');
    if (role === null) {
      await transaction.deleteFrom('member').where('accountId', '=', accountId).where('userId', '=', userId).execute();
      // Their keys are revoked, so nothing uses the budget any more, and if they rejoin, they start without it.
      await transaction.deleteFrom('budget').where('subject', '=', memberSubject(accountId, userId)).execute();
    } else
      await transaction
        .updateTable('member')
        .set({ role })
        .where('accountId', '=', accountId)
        .where('userId', '=', userId)
        .execute();
    await endInvitationsBy(storedOn(transaction), { by: userId, accountId, role });
    return member.role;
  });
}

/** Serializes changes to the members of an account until the transaction ends. */
export async function lockAccount(transaction: Db, accountId: string): Promise<void> {
  // A write that changes nothing locks the row on PostgreSQL; on SQLite the repositories are the only writers.
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
    .values({ accountId, userId, role, createdAt: at })
    .onConflict((conflict) => conflict.columns(['accountId', 'userId']).doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

/** Live keys of one user in an account. */
export async function keysOfMember(
  db: Db,
  { accountId, userId }: { readonly accountId: string; readonly userId: string },
): Promise<readonly string[]> {
  const rows = await db
    .selectFrom('api_key')
    .where('accountId', '=', accountId)
    .where('userId', '=', userId)
    .where('status', '=', 'active')
    .orderBy('id')
    .limit(1000)
    .select('id')
    .execute();
  return rows.map(({ id }) => id);
}
