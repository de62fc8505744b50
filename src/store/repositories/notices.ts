/** Events that are still to be announced: noted in the transaction that causes them, and deleted once announced. */
import type { Kysely, Selectable } from 'kysely';
import type { Database } from '../database.ts';
import type { Recording } from '../recordings.ts';

type Db = Kysely<Database>;

export interface Recipients {
  /** Ids of members. */
  readonly members: readonly string[];
  readonly addresses: readonly string[];
}

/** Only webhooks are notified, or the announcer knows the other recipients. */
export const nobody: Recipients = { members: [], addresses: [] };

/** An event and its recipients. */
export interface Notice {
  /** Also the id of the event. */
  readonly id: string;
  readonly accountId: string;
  readonly type: string;
  /** JSON. */
  readonly data: string;
  readonly recipients: Recipients;
  readonly isWebhook: boolean;
  readonly at: number;
}

/** Runs in the transaction of the event. */
export async function addNotice(transaction: Db, notice: Notice): Promise<void> {
  await transaction
    .insertInto('notice')
    .values({
      id: notice.id,
      account_id: notice.accountId,
      type: notice.type,
      data: notice.data,
      recipients: JSON.stringify(notice.recipients),
      webhook: notice.isWebhook ? 1 : 0,
      at: notice.at,
    })
    .execute();
}

/** The same, with a movement of money. */
export const noticeRecording = (notice: Notice): Recording => ({
  name: 'notice',
  values: [
    notice.id,
    notice.accountId,
    notice.type,
    notice.data,
    JSON.stringify(notice.recipients),
    notice.isWebhook ? 1 : 0,
    notice.at,
  ],
});

/** Oldest first, by id. */
export async function listNotices(
  db: Db,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<readonly Notice[]> {
  const rows = await db.selectFrom('notice').selectAll().where('id', '>', after).orderBy('id').limit(limit).execute();
  return rows.map(toNotice);
}

/** It has been announced. */
export async function forgetNotice(db: Db, { id }: { readonly id: string }): Promise<void> {
  await db.deleteFrom('notice').where('id', '=', id).execute();
}

const toNotice = (row: Selectable<Database['notice']>): Notice => ({
  id: row.id,
  accountId: row.account_id,
  type: row.type,
  data: row.data,
  recipients: JSON.parse(row.recipients) as Recipients,
  isWebhook: row.webhook !== 0n,
  at: Number(row.at),
});

/** Confirmed addresses of members of an account. */
export async function memberAddresses(
  db: Db,
  { accountId, userIds }: { readonly accountId: string; readonly userIds: readonly string[] },
): Promise<readonly string[]> {
  if (userIds.length === 0) return [];
  const rows = await db
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
