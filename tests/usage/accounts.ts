/** Accounts and keys as rows, for tests of reports alone. */
import type { Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';

export async function makeAccounts(
  db: Kysely<Database>,
  ids: readonly string[],
  keys: readonly { readonly id: string; readonly accountId: string; readonly userId: string | null }[],
): Promise<void> {
  for (const id of ids)
    await db
      .insertInto('account')
      .values({
        id,
        kind: 0,
        name: id,
        status: 'active',
        available: 0n,
        credit_limit: 10n ** 17n,
        version: 1,
        created_at: 0,
      })
      .execute();
  for (const { id, accountId, userId } of keys)
    await db
      .insertInto('api_key')
      .values({
        id,
        account_id: accountId,
        user_id: userId,
        name: id,
        display: id,
        hash: Uint8Array.from(Buffer.from(id.padEnd(32))),
        pepper_id: 'x',
        status: 'active',
        limits: null,
        models: null,
        created_at: 0,
        expires_at: null,
        revoked_at: null,
      })
      .execute();
}
