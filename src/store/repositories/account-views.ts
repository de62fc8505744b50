/** Operators who look at an account as a viewer (`account_view`): each beginning and end is in the audit log of the account. */
import type { Kysely } from 'kysely';
import { rowsOn } from '../schema/codec.ts';
import type { Database } from '../database.ts';
import { recordAudit, type NewAuditEntry } from './audit.ts';

type Db = Kysely<Database>;

/** Rejects with a StoreError `conflict` if the session looks at an account already. */
export async function beginView(
  db: Db,
  {
    sessionId,
    userId,
    expiresAt,
    entry,
  }: {
    readonly sessionId: string;
    readonly userId: string;
    readonly expiresAt: number;
    readonly entry: NewAuditEntry & { readonly accountId: string };
  },
): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    await transaction
      .insertInto('account_view')
      .values({
        session_id: sessionId,
        user_id: userId,
        account_id: entry.accountId,
        created_at: entry.at,
        expires_at: expiresAt,
      })
      .execute();
    await recordAudit(rowsOn(transaction), entry);
  });
}

/**
 * Ends the view of a session, and every view that is over: its time is up, its session has ended, its operator is one no longer, or its
 * account is deleted. `entryIds`: ids for the entries of the audit log, which limit their number; returns how many ended.
 */
export async function endViews(
  db: Db,
  request: {
    /** The session that leaves the account now. */
    readonly sessionId?: string | undefined;
    /** Only views of this user; omitted: of all. */
    readonly userId?: string | undefined;
    readonly at: number;
    readonly requestId: string | null;
    readonly address: string | null;
    readonly entryIds: readonly Uint8Array[];
  },
): Promise<number> {
  const { sessionId, userId, at, requestId, address, entryIds } = request;
  return await db.transaction().execute(async (transaction) => {
    let query = transaction
      .selectFrom('account_view as view')
      .leftJoin('auth_session as session', 'session.id', 'view.session_id')
      .leftJoin('server_operator as operator', 'operator.user_id', 'view.user_id')
      .leftJoin('auth_user as person', 'person.id', 'view.user_id')
      .innerJoin('account', 'account.id', 'view.account_id')
      .where((is) =>
        is.or([
          is('view.expires_at', '<=', BigInt(at)),
          is('session.id', 'is', null),
          is('session.expiresAt', '<=', BigInt(at)),
          is('operator.user_id', 'is', null),
          is('account.deleted_at', 'is not', null),
          ...(sessionId === undefined ? [] : [is('view.session_id', '=', sessionId)]),
        ]),
      )
      .select(['view.session_id', 'view.user_id', 'view.account_id', 'view.created_at', 'view.expires_at'])
      .select(['session.expiresAt', 'operator.user_id as operator', 'person.email as email'])
      .orderBy('view.expires_at')
      .limit(entryIds.length);
    if (userId !== undefined) query = query.where('view.user_id', '=', userId);
    let ended = 0;
    for (const view of await query.execute()) {
      const gone = await transaction
        .deleteFrom('account_view')
        .where('session_id', '=', view.session_id)
        .executeTakeFirst();
      // Another replica was first.
      if (gone.numDeletedRows === 0n) continue;
      const isOver = view.expires_at <= BigInt(at);
      const hasSession = view.expiresAt !== null && view.expiresAt > BigInt(at);
      const because = isOver ? 'time' : !hasSession ? 'session' : view.operator === null ? 'rights' : 'left';
      await recordAudit(rowsOn(transaction), {
        id: entryIds[ended]!,
        at,
        accountId: view.account_id,
        actor: { kind: 'user', id: view.user_id, name: view.email },
        action: 'account.view_end',
        target: view.account_id,
        before: null,
        after: JSON.stringify({ began_at: Number(view.created_at / 1000n), because }),
        // The end of a session that nobody asks about has no request.
        requestId,
        address,
      });
      ended++;
    }
    return ended;
  });
}
