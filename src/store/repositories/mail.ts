/** The outbox. */
import type { Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

/** A mail in the outbox. */
export type OutboxMail = Omit<Row<'mail'>, 'idempotencyKey'>;

/** Adds a mail to the outbox; false: one with the same idempotency key is or was already there. */
export async function addMail(
  db: Db,
  request: Pick<OutboxMail, 'id' | 'recipient' | 'subject' | 'kind' | 'accountId' | 'attachments'> & {
    readonly body: string;
    readonly idempotencyKey: string | null;
    readonly at: number;
  },
): Promise<boolean> {
  const { at, ...mail } = request;
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('mail')
    .values({ ...mail, createdAt: at, state: 'waiting', attempts: 0, dueAt: at, sentAt: null, lastError: null })
    .onConflict((conflict) => conflict.column('idempotencyKey').doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

/**
 * Claims the mail that has been due longest, and sets when it is due again in case its sender dies: concurrent callers get different ones,
 * or none.
 */
export async function claimMail(
  db: Db,
  { now, untilAt }: { readonly now: number; readonly untilAt: number },
): Promise<OutboxMail | undefined> {
  const due = await db
    .selectFrom('mail')
    .selectAll()
    .where('state', '=', 'waiting')
    .where('dueAt', '<=', now)
    .orderBy('dueAt')
    .limit(claimTriesMax)
    .execute();
  for (const mail of due) {
    const { numUpdatedRows } = await db
      .updateTable('mail')
      .set({ dueAt: untilAt, attempts: mail.attempts + 1 })
      .where('id', '=', mail.id)
      .where('state', '=', 'waiting')
      .where('dueAt', '=', mail.dueAt)
      .executeTakeFirst();
    if (numUpdatedRows === 1n) return { ...mail, attempts: mail.attempts + 1 };
  }
  return undefined;
}

const claimTriesMax = 20;

/** Records the outcome of an attempt. The text of sent or abandoned mail is deleted, because links in it open accounts. */
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
      ? { dueAt: outcome.dueAt, lastError: outcome.error }
      : {
          body: null,
          attachments: null,
          ...(outcome.kind === 'sent'
            ? { state: 'sent' as const, sentAt: at, lastError: null }
            : { state: 'failed' as const, lastError: outcome.error }),
        };
  await db.updateTable('mail').set(changes).where('id', '=', id).where('state', '=', 'waiting').execute();
}

/** Newest first, at most 100; without texts and attachments. */
export async function listMail(
  db: Db,
  {
    limit,
    after,
    state,
  }: {
    readonly limit: number;
    readonly after?: string | undefined;
    readonly state?: OutboxMail['state'] | undefined;
  },
): Promise<readonly OutboxMail[]> {
  let query = db
    .selectFrom('mail')
    .select([
      'id',
      'createdAt',
      'recipient',
      'subject',
      'kind',
      'accountId',
      'state',
      'attempts',
      'dueAt',
      'sentAt',
      'lastError',
    ]);
  if (after !== undefined) query = query.where('id', '<', after);
  if (state !== undefined) query = query.where('state', '=', state);
  const rows = await query
    .orderBy('id', 'desc')
    .limit(Math.max(1, Math.min(limit, 101)))
    .execute();
  return rows.map((row) => ({ ...row, body: null, attachments: null }));
}

export async function getMail(db: Db, { id }: { readonly id: string }): Promise<OutboxMail | undefined> {
  return await db.selectFrom('mail').selectAll().where('id', '=', id).executeTakeFirst();
}

/** Deletes mail from before a time, and the oldest beyond a maximum; a bounded number per call. Returns how many. */
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
      is.or([is('createdAt', '<', before), ...(surplus === undefined ? [] : [is('id', '<=', surplus.id)])]),
    )
    .orderBy('id')
    .limit(forgottenAtOnce);
  const { numDeletedRows } = await db.deleteFrom('mail').where('id', 'in', doomed).executeTakeFirst();
  return Number(numDeletedRows);
}

const forgottenAtOnce = 500;
