/** What is erased when a user is deleted. */
import { memberSubject } from '../budget.ts';
import { sql, type Kysely, type SqlBool } from 'kysely';
import { recordAudit } from '../repositories/audit.ts';
import type { Database } from '../database.ts';
import type { Recipients } from '../repositories/notices.ts';
import { lockAccount } from '../repositories/members.ts';
import { endInvitationsBy } from '../repositories/one-time-secrets.ts';
import { rowsOn } from '../schema/codec.ts';

type Db = Kysely<Database>;

/** Why a user cannot be deleted now. */
export type PersonStays =
  | { readonly kind: 'last_owner'; readonly accountId: string }
  | { readonly kind: 'last_operator' }
  /** Live keys in their name, which have to be revoked first. */
  | { readonly kind: 'keys'; readonly ids: readonly string[] };

const ofPerson = ['auth_session', 'auth_account', 'auth_passkey', 'auth_two_factor'] as const;
const keysAtOnce = 100;
const earlierEmailsMax = 100;

/** What prevents the deletion of a user; undefined: nothing does. */
export async function whyPersonStays(
  db: Db,
  { userId }: { readonly userId: string },
): Promise<PersonStays | undefined> {
  const alone = await db
    .selectFrom('member')
    .where('user_id', '=', userId)
    .where('role', '=', 'owner')
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('member as other')
            .select('other.user_id')
            .whereRef('other.account_id', '=', 'member.account_id')
            .where('other.role', '=', 'owner')
            .where('other.user_id', '<>', userId),
        ),
      ),
    )
    .orderBy('account_id')
    .select('account_id as accountId')
    .limit(1)
    .executeTakeFirst();
  if (alone !== undefined) return { kind: 'last_owner', accountId: alone.accountId };
  const operators = await db.selectFrom('server_operator').select('user_id').limit(2).execute();
  if (operators.length === 1 && operators[0]!.user_id === userId) return { kind: 'last_operator' };
  const keys = await db
    .selectFrom('api_key')
    .where('user_id', '=', userId)
    .where('status', '=', 'active')
    .orderBy('id')
    .limit(keysAtOnce)
    .select('id')
    .execute();
  return keys.length === 0 ? undefined : { kind: 'keys', ids: keys.map(({ id }) => id) };
}

/**
 * Erases all data about a user: how they sign in, their memberships, their mail, and their name and address throughout the audit log, where
 * ids stay. undefined: done, even if they were already gone.
 */
export async function erasePerson(
  db: Db,
  request: {
    readonly userId: string;
    readonly at: number;
    readonly requestId: string | null;
    /** Ids for audit log entries: one, and one for each account that they leave; this limits the number of accounts. */
    readonly entryIds: readonly Uint8Array[];
  },
): Promise<PersonStays | undefined> {
  const { userId, at, requestId, entryIds } = request;
  return await db.transaction().execute(async (transaction) => {
    const person = await transaction
      .selectFrom('auth_user')
      .where('id', '=', userId)
      .select('email')
      .executeTakeFirst();
    if (person === undefined) return undefined;
    const accounts = (
      await transaction
        .selectFrom('member')
        .where('user_id', '=', userId)
        .orderBy('account_id')
        .select('account_id as id')
        .execute()
    ).map(({ id }) => id);
    for (const id of accounts) await lockAccount(rowsOn(transaction), id);
    const stays = await whyPersonStays(transaction, { userId });
    if (stays !== undefined) return stays;
    for (const table of ofPerson) await transaction.deleteFrom(table).where('userId', '=', userId).execute();
    await transaction.deleteFrom('auth_verification').where('value', '=', userId).execute();
    await transaction.deleteFrom('member').where('user_id', '=', userId).execute();
    for (const id of accounts) {
      await transaction.deleteFrom('budget').where('subject', '=', memberSubject(id, userId)).execute();
      await endInvitationsBy(transaction, { by: userId, accountId: id, role: null });
    }
    await transaction.deleteFrom('server_operator').where('user_id', '=', userId).execute();
    const emails = [person.email, ...(await earlierEmails(transaction, userId))];
    await transaction.deleteFrom('invitation').where('email', 'in', emails).execute();
    await transaction.deleteFrom('mail').where('recipient', 'in', emails).execute();
    for (const id of accounts) await leaveRecipients(transaction, id, userId, emails);
    await transaction.deleteFrom('auth_user').where('id', '=', userId).execute();
    const [own, ...ofAccounts] = entryIds;
    const entry = {
      at,
      actor: { kind: 'user', id: userId, name: null },
      target: userId,
      before: null,
      after: null,
      requestId,
      address: null,
    } as const;
    await recordAudit(rowsOn(transaction), { ...entry, id: own!, accountId: null, action: 'person.delete' });
    for (const [index, accountId] of accounts.entries()) {
      const id = ofAccounts[index];
      if (id !== undefined)
        await recordAudit(rowsOn(transaction), { ...entry, id, accountId, action: 'member.remove' });
    }
    await eraseFromLog(transaction, userId, emails);
    return undefined;
  });
}

/** Their earlier addresses from the audit log that no other user has now. */
async function earlierEmails(transaction: Db, userId: string): Promise<readonly string[]> {
  const changes = await transaction
    .selectFrom('audit_log')
    .where('actor_id', '=', userId)
    .where('action', '=', 'email.change')
    .where('before', 'is not', null)
    .orderBy('id', 'desc')
    .limit(earlierEmailsMax)
    .select('before')
    .execute();
  const emails = new Set(changes.map(({ before }) => (JSON.parse(before!) as { readonly email: string }).email));
  if (emails.size === 0) return [];
  const taken = await transaction
    .selectFrom('auth_user')
    .where('email', 'in', [...emails])
    .select('email')
    .execute();
  for (const { email } of taken) emails.delete(email);
  return [...emails];
}

/** Removes the user from the recipients of an account's alerts. */
async function leaveRecipients(
  transaction: Db,
  accountId: string,
  userId: string,
  emails: readonly string[],
): Promise<void> {
  for (const table of ['alert', 'notice'] as const) {
    const rows = await transaction
      .selectFrom(table)
      .where('account_id', '=', accountId)
      .select(['id', 'recipients'])
      .execute();
    for (const { id, recipients } of rows) {
      const { members, addresses } = JSON.parse(recipients) as Recipients;
      const left: Recipients = {
        members: members.filter((one) => one !== userId),
        addresses: addresses.filter((one) => !emails.includes(one.toLowerCase())),
      };
      if (left.members.length === members.length && left.addresses.length === addresses.length) continue;
      await transaction
        .updateTable(table)
        .set({ recipients: JSON.stringify(left) })
        .where('id', '=', id)
        .execute();
    }
  }
}

/** Erases from entries by them, about them, or with one of their addresses. This reads the whole log, but happens rarely. */
async function eraseFromLog(transaction: Db, userId: string, emails: readonly string[]): Promise<void> {
  const nothing = { actor_name: null, address: null, before: null, after: null, input: null };
  await transaction
    .updateTable('audit_log')
    .set(nothing)
    .where((is) => is.or([is('actor_id', '=', userId), is('target', '=', userId)]))
    .execute();
  const isNamed = emails.map((email) => {
    const quoted = JSON.stringify(email).replaceAll(/[\\%_]/g, (letter) => `\\${letter}`);
    return `%${quoted}%`;
  });
  await transaction
    .updateTable('audit_log')
    .set(nothing)
    .where(({ or, fn }) =>
      or(
        (['before', 'after', 'input'] as const).flatMap((column) =>
          isNamed.map((named) => sql<SqlBool>`${fn('lower', [column])} like ${named} escape '\\'`),
        ),
      ),
    )
    .execute();
}
