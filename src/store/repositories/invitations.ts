/** Invitations to join an account, and their acceptance. */
import type { Kysely } from 'kysely';
import type { MemberRole } from '../database.ts';
import { storedOn, type Row, type Rows } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';
import { addMember, findMembership, lockAccount } from './members.ts';
import { insertUser, type NewUser } from './users.ts';

type Db = Kysely<Rows>;

export type InvitationRow = Omit<Row<'invitation'>, 'accountId' | 'tokenHash'>;

/** Maximum open invitations of one account. */
const invitationsMax = 1000;

/** Creates an invitation, replacing an earlier one of the account to the same address. Throws `conflict` beyond the maximum. */
export async function createInvitation(db: Db, invitation: Row<'invitation'>): Promise<void> {
  const { accountId, email } = invitation;
  await db.transaction().execute(async (transaction) => {
    // Of two concurrent invitations to one address, the later one counts, and the last free slot is given once.
    await lockAccount(transaction, accountId);
    await transaction.deleteFrom('invitation').where('accountId', '=', accountId).where('email', '=', email).execute();
    const { count } = await transaction
      .selectFrom('invitation')
      .where('accountId', '=', accountId)
      .select(({ fn }) => fn.countAll<bigint>().as('count'))
      .executeTakeFirstOrThrow();
    if (Number(count) >= invitationsMax) throw new StoreError('conflict', 'too many open invitations');
    await transaction.insertInto('invitation').values(invitation).execute();
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
    .where('accountId', '=', request.accountId)
    .where('expiresAt', '>', request.at);
  if (request.after !== undefined) query = query.where('id', '<', request.after);
  return await query
    .orderBy('id', 'desc')
    .limit(Math.max(1, Math.min(request.limit, 101)))
    .select(['id', 'email', 'role', 'invitedBy', 'createdAt', 'expiresAt'])
    .execute();
}

/** Withdraws an invitation; undefined: there is no such invitation. */
export async function deleteInvitation(
  db: Db,
  { accountId, id }: { readonly accountId: string; readonly id: string },
): Promise<{ readonly email: string; readonly role: MemberRole } | undefined> {
  return await db
    .deleteFrom('invitation')
    .where('accountId', '=', accountId)
    .where('id', '=', id)
    .returning(['email', 'role'])
    .executeTakeFirst();
}

/** What an invitation shows to the holder of its token; undefined: it does not exist or has expired. */
export async function findInvitation(
  db: Db,
  { tokenHash, at }: { readonly tokenHash: Uint8Array; readonly at: number },
): Promise<{ readonly accountId: string; readonly email: string; readonly role: MemberRole } | undefined> {
  return await db
    .selectFrom('invitation')
    .where('tokenHash', '=', tokenHash)
    .where('expiresAt', '>', at)
    .where('accountId', 'in', activeAccounts(db))
    .select(['accountId', 'email', 'role'])
    .executeTakeFirst();
}

/** A suspended account cannot be joined; the link works again when it is reactivated. */
const activeAccounts = (db: Db) => db.selectFrom('account').where('status', '=', 'active').select('id');

/** Whether an open invitation was sent to this address. */
export async function isInvited(
  db: Db,
  { email, at }: { readonly email: string; readonly at: number },
): Promise<boolean> {
  const row = await db
    .selectFrom('invitation')
    .where('email', '=', email.toLowerCase())
    .where('expiresAt', '>', at)
    .select('id')
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** Accepts an invitation: once, and only for a user with the address that it was sent to. undefined: not accepted. */
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

/** Consumes the invitation sent to this address; undefined: it does not exist or has expired. */
async function takeInvitation(
  transaction: Db,
  { tokenHash, email, at }: { readonly tokenHash: Uint8Array; readonly email: string; readonly at: number },
): Promise<{ readonly accountId: string; readonly role: MemberRole } | undefined> {
  return await transaction
    .deleteFrom('invitation')
    .where('tokenHash', '=', tokenHash)
    .where('email', '=', email)
    .where('expiresAt', '>', at)
    .where('accountId', 'in', activeAccounts(transaction))
    .returning(['accountId', 'role'])
    .executeTakeFirst();
}

/**
 * Accepts an invitation for a user who is created with it, atomically; the mail that delivered the token confirms their address. undefined:
 * there is no such invitation. Throws `conflict` when the address is taken.
 */
export async function joinAnew(
  db: Db,
  request: NewUser & { readonly tokenHash: Uint8Array },
): Promise<{ readonly accountId: string; readonly userId: string; readonly role: MemberRole } | undefined> {
  const { userId, at } = request;
  return await db.transaction().execute(async (transaction) => {
    const taken = await takeInvitation(transaction, request);
    if (taken === undefined) return undefined;
    await insertUser(storedOn(transaction), request);
    await addMember(transaction, { ...taken, userId, at });
    return { ...taken, userId };
  });
}
