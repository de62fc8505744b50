/** The outbox; runs like the queries of `queries.ts`. */
import type { Kysely, Selectable } from 'kysely';
import type { Database, MailState } from '../database.ts';

type Db = Kysely<Database>;

/** A mail in the outbox. */
export interface OutboxMail {
  readonly id: string;
  readonly createdAt: number;
  readonly recipient: string;
  readonly subject: string;
  /** Null once it is sent or given up. */
  readonly body: string | null;
  readonly kind: string;
  readonly accountId: string | null;
  /** JSON, as in its table. */
  readonly attachments: string | null;
  readonly state: MailState;
  readonly attempts: number;
  readonly dueAt: number;
  readonly sentAt: number | null;
  readonly lastError: string | null;
}

/** Puts a mail into the outbox; false: one with the same idempotency key is or was there. */
export async function addMail(
  db: Db,
  mail: Pick<OutboxMail, 'id' | 'recipient' | 'subject' | 'kind' | 'accountId' | 'attachments'> & {
    readonly body: string;
    readonly idempotencyKey: string | null;
    readonly at: number;
  },
): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('mail')
    .values({
      id: mail.id,
      idempotency_key: mail.idempotencyKey,
      created_at: mail.at,
      recipient: mail.recipient,
      subject: mail.subject,
      body: mail.body,
      kind: mail.kind,
      account_id: mail.accountId,
      attachments: mail.attachments,
      state: 'waiting',
      attempts: 0,
      due_at: mail.at,
      sent_at: null,
      last_error: null,
    })
    .onConflict((conflict) => conflict.column('idempotency_key').doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

/**
 * Claims the mail that has been due for longest, and sets when it is due again in case its sender dies: concurrent callers get
 * different ones, or none.
 */
export async function claimMail(
  db: Db,
  { now, untilAt }: { readonly now: number; readonly untilAt: number },
): Promise<OutboxMail | undefined> {
  const due = await db
    .selectFrom('mail')
    .selectAll()
    .where('state', '=', 'waiting')
    .where('due_at', '<=', BigInt(now))
    .orderBy('due_at')
    .limit(claimTriesMax)
    .execute();
  for (const mail of due) {
    const { numUpdatedRows } = await db
      .updateTable('mail')
      .set({ due_at: untilAt, attempts: mail.attempts + 1n })
      .where('id', '=', mail.id)
      .where('state', '=', 'waiting')
      .where('due_at', '=', mail.due_at)
      .executeTakeFirst();
    if (numUpdatedRows === 1n) return { ...toMail(mail), attempts: Number(mail.attempts) + 1 };
  }
  return undefined;
}

const claimTriesMax = 20;

/** Records the outcome of an attempt. The text of sent or abandoned mail is deleted: links in it open accounts. */
export async function noteMailAttempt(
  db: Db,
  request: {
    readonly id: string;
    readonly at: number;
    readonly outcome:
      | { readonly kind: 'sent' }
      | { readonly kind: 'again'; readonly dueAt: number; readonly error: string }
      | { readonly kind: 'failed'; readonly error: string };
  },
): Promise<void> {
  const { id, at, outcome } = request;
  const changes =
    outcome.kind === 'again'
      ? { due_at: outcome.dueAt, last_error: outcome.error }
      : {
          body: null,
          attachments: null,
          ...(outcome.kind === 'sent'
            ? { state: 'sent' as const, sent_at: at, last_error: null }
            : { state: 'failed' as const, last_error: outcome.error }),
        };
  await db.updateTable('mail').set(changes).where('id', '=', id).where('state', '=', 'waiting').execute();
}

/** Newest first, at most 100; without texts and attachments. */
export async function listMail(
  db: Db,
  { limit, after }: { readonly limit: number; readonly after?: string | undefined },
): Promise<readonly OutboxMail[]> {
  let query = db
    .selectFrom('mail')
    .select([
      'id',
      'created_at',
      'recipient',
      'subject',
      'kind',
      'account_id',
      'state',
      'attempts',
      'due_at',
      'sent_at',
      'last_error',
    ]);
  if (after !== undefined) query = query.where('id', '<', after);
  const rows = await query
    .orderBy('id', 'desc')
    .limit(Math.max(1, Math.min(limit, 101)))
    .execute();
  return rows.map((row) => toMail({ ...row, body: null, attachments: null }));
}

export async function getMail(db: Db, { id }: { readonly id: string }): Promise<OutboxMail | undefined> {
  const row = await db.selectFrom('mail').selectAll().where('id', '=', id).executeTakeFirst();
  return row === undefined ? undefined : toMail(row);
}

/** Deletes mail from before a time, and the oldest beyond a number; a bounded number, and returns how many. */
export async function forgetMail(
  db: Db,
  { before, keepMax }: { readonly before: number; readonly keepMax: number },
): Promise<number> {
  const surplus = await db
    .selectFrom('mail')
    .select('id')
    .orderBy('id', 'desc')
    .offset(keepMax)
    .limit(1)
    .executeTakeFirst();
  const doomed = db
    .selectFrom('mail')
    .select('id')
    .where((is) =>
      is.or([is('created_at', '<', BigInt(before)), ...(surplus === undefined ? [] : [is('id', '<=', surplus.id)])]),
    )
    .orderBy('id')
    .limit(forgottenAtOnce);
  const { numDeletedRows } = await db.deleteFrom('mail').where('id', 'in', doomed).executeTakeFirst();
  return Number(numDeletedRows);
}

const forgottenAtOnce = 500;

type Row = Omit<Selectable<Database['mail']>, 'idempotency_key'>;

const toMail = (row: Row): OutboxMail => ({
  id: row.id,
  createdAt: Number(row.created_at),
  recipient: row.recipient,
  subject: row.subject,
  body: row.body,
  kind: row.kind,
  accountId: row.account_id,
  attachments: row.attachments,
  state: row.state,
  attempts: Number(row.attempts),
  dueAt: Number(row.due_at),
  sentAt: row.sent_at === null ? null : Number(row.sent_at),
  lastError: row.last_error,
});
