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

/** The notice of a signed day, which is for all accounts: one row, however many there are, so that the transaction of the head is short. */
export interface DayNotice {
  readonly date: string;
  /** The last account that has its event. */
  readonly after: string;
}

/** Runs in the transaction that adds the head of the day. */
export async function addDayNotice(
  transaction: Db,
  { date, at }: { readonly date: string; readonly at: number },
): Promise<void> {
  await addNotice(transaction, {
    id: `evt_day_${date}`,
    // Of no account: erasing one must not take it from the others.
    accountId: '',
    type: 'day_head.signed',
    data: JSON.stringify({ date, after: '' } satisfies DayNotice),
    recipients: nobody,
    isWebhook: true,
    at,
  });
}

/** Says how far a notice to all accounts has come, unless another process has said so since `from`, its data then, was read. */
export async function advanceNotice(
  db: Db,
  { id, from, data }: { readonly id: string; readonly from: string; readonly data: string },
): Promise<void> {
  await db.updateTable('notice').set({ data }).where('id', '=', id).where('data', '=', from).execute();
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
