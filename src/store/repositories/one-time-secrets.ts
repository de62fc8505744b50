/** Which events end which one-time secrets and sessions (docs/people.md, "What ends what"). */
import type { Kysely } from 'kysely';
import type { Database, MemberRole } from '../database.ts';

type Db = Kysely<Database>;

/**
 * Every event ends all links sent to the person (a new password, a new address) and all sign-ins that wait for a code; this defines which
 * sessions end with them. `others`: all except the one in which it happened.
 */
const sessionsEnded = {
  password_set: 'all',
  /** The browser in which it happens gets a new session. */
  codes_switched: 'all',
  address_changed: 'others',
  way_in_removed: 'others',
  way_in_added: 'none',
  backup_codes_made: 'none',
  released: 'all',
  owner_made: 'all',
} as const;

export type PersonEvent = keyof typeof sessionsEnded;

/** Runs in the transaction of the event, so nothing that it ends outlives it. Returns how many sessions ended. */
export async function endSecrets(
  transaction: Db,
  event: PersonEvent,
  { userId, sessionId }: { readonly userId: string; readonly sessionId?: string | undefined },
): Promise<number> {
  // Both kinds have the person's id as their value; provider states and passkey challenges, which belong to a browser, do not.
  await transaction.deleteFrom('auth_verification').where('value', '=', userId).execute();
  const ended = sessionsEnded[event];
  if (ended === 'none') return 0;
  let sessions = transaction.deleteFrom('auth_session').where('userId', '=', userId);
  if (ended === 'others' && sessionId !== undefined) sessions = sessions.where('id', '<>', sessionId);
  return Number((await sessions.executeTakeFirst()).numDeletedRows);
}

/** The same for an event that changes nothing else in the repositories. */
export async function endSecretsOf(
  db: Db,
  { event, userId }: { readonly event: PersonEvent; readonly userId: string },
): Promise<number> {
  return await db.transaction().execute((transaction) => endSecrets(transaction, event, { userId }));
}

/** Which roles a member with this role can invite others to (`account-api/routes/members.ts` refuses more). */
const invites: Partial<Record<MemberRole, readonly MemberRole[]>> = {
  owner: ['owner', 'admin', 'billing', 'developer', 'viewer'],
  admin: ['admin', 'billing', 'developer', 'viewer'],
};

/**
 * Ends open invitations by a member, or by a management key, that they could no longer create: otherwise a removed person could come back.
 * `role`: their role now; null: no role.
 */
export async function endInvitationsBy(
  transaction: Db,
  { by, accountId, role }: { readonly by: string; readonly accountId: string; readonly role: MemberRole | null },
): Promise<void> {
  const may = (role === null ? undefined : invites[role]) ?? [];
  let open = transaction.deleteFrom('invitation').where('account_id', '=', accountId).where('invited_by', '=', by);
  if (may.length > 0) open = open.where('role', 'not in', may);
  await open.execute();
}
