/** The operator's way of helping a user who can no longer sign in. */
import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { rowsOn } from '../schema/codec.ts';
import { addMail } from '../repositories/mail.ts';
import { endSecrets } from '../repositories/one-time-secrets.ts';

/** Removes all proofs of identity except the password, ends the sessions, and queues a mail. undefined: no such user. */
export async function releasePerson(
  db: Kysely<Database>,
  request: {
    readonly email: string;
    readonly at: number;
    readonly notice: { readonly id: string; readonly subject: string; readonly body: string };
  },
): Promise<
  | {
      readonly userId: string;
      readonly hadTwoFactor: boolean;
      readonly passkeys: number;
      readonly sessions: number;
    }
  | undefined
> {
  const { email, at, notice } = request;
  return await db.transaction().execute(async (transaction) => {
    const person = await transaction
      .selectFrom('auth_user')
      .where('email', '=', email)
      .select(['id', 'twoFactorEnabled'])
      .executeTakeFirst();
    if (person === undefined) return undefined;
    const { id: userId, twoFactorEnabled } = person;
    const remove = async (table: 'auth_two_factor' | 'auth_passkey'): Promise<number> =>
      Number((await transaction.deleteFrom(table).where('userId', '=', userId).executeTakeFirst()).numDeletedRows);
    await remove('auth_two_factor');
    const passkeys = await remove('auth_passkey');
    const sessions = await endSecrets(transaction, 'released', { userId });
    await transaction
      .updateTable('auth_user')
      .set({ twoFactorEnabled: 0, updatedAt: at })
      .where('id', '=', userId)
      .execute();
    const mail = { recipient: email, kind: 'released', accountId: null, attachments: null, idempotencyKey: null, at };
    await addMail(rowsOn(transaction), { ...notice, ...mail });
    return { userId, hadTwoFactor: twoFactorEnabled === 1n, passkeys, sessions };
  });
}
