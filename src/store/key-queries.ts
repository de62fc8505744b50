/** Who presents a key to the account host. */
import type { Kysely } from 'kysely';
import type { AccountStatus, Database } from './database.ts';

/** A live key, as the account host needs it. */
export interface PresentedKey {
  readonly id: string;
  readonly accountId: string;
  readonly name: string;
  /** null: an inference key, which manages nothing. */
  readonly role: string | null;
  readonly isOperator: boolean;
  /** JSON; see accounts/key-limits.ts. */
  readonly limits: string | null;
  readonly accountStatus: AccountStatus;
}

/** The live key with this hash, also by a secret that a rotation has left for a while. */
export async function findPresentedKey(
  db: Kysely<Database>,
  { hash, at }: { readonly hash: Uint8Array; readonly at: number },
): Promise<PresentedKey | undefined> {
  const row = await db
    .selectFrom('api_key')
    .innerJoin('account', 'account.id', 'api_key.account_id')
    .select(['api_key.id', 'api_key.account_id', 'api_key.name', 'api_key.role', 'api_key.is_operator'])
    .select(['api_key.limits', 'account.status'])
    .where('api_key.status', '=', 'active')
    .where((by) => by.or([by('expires_at', 'is', null), by('expires_at', '>', BigInt(at))]))
    .where((by) =>
      by.or([
        by('hash', '=', hash),
        by.and([by('previous_hash', '=', hash), by('previous_hash_until', '>', BigInt(at))]),
      ]),
    )
    .executeTakeFirst();
  return row === undefined
    ? undefined
    : {
        id: row.id,
        accountId: row.account_id,
        name: row.name,
        role: row.role,
        isOperator: row.is_operator !== 0n,
        limits: row.limits,
        accountStatus: row.status,
      };
}
