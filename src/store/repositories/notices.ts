/** Pending event announcements: recorded in the transaction that causes the event, and deleted once announced. */
import type { Kysely } from 'kysely';
import { storedOn, type Row, type Rows } from '../schema/codec.ts';
import type { Recipients } from '../schema/tables.ts';

type Db = Kysely<Rows>;

export type { Recipients };

/** No recipients besides webhooks, or the announcer determines them. */
export const nobody: Recipients = { members: [], addresses: [] };

/** An event and its recipients. */
export type Notice = Row<'notice'>;

/** Runs in the transaction of the event. */
export async function addNotice(transaction: Db, notice: Notice): Promise<void> {
  await transaction.insertInto('notice').values(notice).execute();
}

/** Oldest first, by id. */
export async function listNotices(
  db: Db,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<readonly Notice[]> {
  return await db.selectFrom('notice').selectAll().where('id', '>', after).orderBy('id').limit(limit).execute();
}

/** Deletes a notice that has been announced. */
export async function forgetNotice(db: Db, { id }: { readonly id: string }): Promise<void> {
  await db.deleteFrom('notice').where('id', '=', id).execute();
}

/** Confirmed email addresses of members of an account. */
export async function memberAddresses(
  db: Db,
  { accountId, userIds }: { readonly accountId: string; readonly userIds: readonly string[] },
): Promise<readonly string[]> {
  if (userIds.length === 0) return [];
  const rows = await storedOn(db)
    .selectFrom('member')
    .innerJoin('auth_user', 'auth_user.id', 'member.user_id')
    .where('member.account_id', '=', accountId)
    .where('member.user_id', 'in', userIds)
    .where('auth_user.emailVerified', '=', 1n)
    .select('auth_user.email')
    .orderBy('auth_user.email')
    .execute();
  return rows.map(({ email }) => email);
}
