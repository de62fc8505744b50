/**
 * What can be written together with a money movement or a new account, in its transaction: separate statements, with the same text for both
 * stores, each of which changes exactly one row or rejects the whole transaction. They are listed here and nowhere else, so that a transfer
 * carries a name and values, never SQL.
 */
import type { Notice } from './repositories/notices.ts';
import { StoreError } from './store-error.ts';

export type RecordingName = keyof typeof recordings;
export interface Recording {
  readonly name: RecordingName;
  /** In the order of the statement's question marks. */
  readonly values: readonly (string | number | bigint | Uint8Array | null)[];
}

/** Used instead of a payment provider: an operator has recorded the return. */
export const recordedProvider = 'recorded';

export const recordings = {
  /** An event of the payment provider; a duplicate is a conflict. */
  payment_event: `insert into payment_event (provider, id, kind, subject, outcome, created_at, received_at)
    values (?, ?, ?, ?, ?, ?, ?)`,
  /** A second payment of the same top-up is a conflict. */
  payment: `insert into payment (provider, id, topup_id, account_id, amount, transfer_id, at) values (?, ?, ?, ?, ?, ?, ?)`,
  topup_paid: `update topup set status = 'paid', payment_id = ?, paid_at = ?
    where id = ? and status in ('pending', 'failed', 'expired')`,
  /** A return recorded by an operator: for a receipt of the same account, and at most what has not been returned yet. */
  recorded_return: `insert into payment_return (provider, id, kind, payment_id, topup_id, account_id, amount, taken, at)
    select '${recordedProvider}', ?, ?, receipt.id, '', receipt.account_id, ?, ?, ? from receipt
    where receipt.id = ? and receipt.account_id = ? and receipt.kind = 'receipt' and receipt.total >= ? + (
      select coalesce(sum(standing.amount - standing.beyond), 0) from payment_return as standing where standing.undone_at is null
        and (standing.topup_id = receipt.topup_id
          or standing.provider = '${recordedProvider}' and standing.payment_id = receipt.id))`,
  /** Makes other transactions with the same statement for this user wait until this one ends. */
  person_awaited: 'update auth_user set name = name where id = ?',
  /** A user who already belongs to an account is a conflict. */
  first_member: `insert into member (account_id, user_id, role, created_at)
    select ?, id, 'owner', ? from auth_user
    where id = ? and not exists (select 1 from member where member.user_id = auth_user.id)`,
  /** Invites a user to an account that is being created. */
  invitation: `insert into invitation (id, account_id, email, role, token_hash, invited_by, created_at, expires_at)
    values (?, ?, ?, ?, ?, ?, ?, ?)`,
  /** An event to be announced. */
  notice: `insert into notice (id, account_id, type, data, recipients, is_webhook, at) values (?, ?, ?, ?, ?, ?, ?)`,
  promotion: `insert into promotion (transfer_id, account_id, amount, granted_at, expires_at) values (?, ?, ?, ?, ?)`,
  promotion_closed: `update promotion set closed_at = ?, unused = ?, taken = ? where transfer_id = ? and closed_at is null`,
} as const;

/** Replaces the question marks by PostgreSQL's placeholders. */
export function numbered(text: string): string {
  let place = 0;
  return text.replaceAll('?', () => `$${++place}`);
}

export const notRecorded = (name: RecordingName): StoreError =>
  new StoreError('conflict', `the ${name} that goes with it does not fit what is there, so nothing was done`);

/** An event's announcement (`addNotice`), with a movement of money. */
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
