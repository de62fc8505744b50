/** How a user signs in: a password, providers, passkeys. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { passwordProvider } from '../row-facts.ts';
import { endSecrets } from './one-time-secrets.ts';

type Db = Kysely<Database>;

export type WayIn =
  { readonly kind: 'provider'; readonly id: string } | { readonly kind: 'passkey'; readonly id: string };

/**
 * Removes a provider's subject or a passkey from a user. `last`: it stays, because they could not sign in without it; providers that are no
 * longer configured do not count. `absent`: they do not have it.
 */
export async function removeWayIn(
  db: Db,
  request: {
    readonly userId: string;
    /** The session in which it happens. */
    readonly sessionId: string;
    readonly way: WayIn;
    readonly providers: readonly string[];
  },
): Promise<'removed' | 'absent' | 'last'> {
  const { userId, sessionId, way, providers } = request;
  return await db.transaction().execute(async (transaction) => {
    // Removals of each other's last way in are serialized: a write that changes nothing locks the row on PostgreSQL.
    await transaction
      .updateTable('auth_user')
      .set({ name: sql`name` })
      .where('id', '=', userId)
      .execute();
    const subjects = transaction.selectFrom('auth_account').where('userId', '=', userId);
    const linked = await subjects.select('providerId').execute();
    const keys = transaction.selectFrom('auth_passkey').where('userId', '=', userId);
    const passkeys = await keys.select('id').execute();
    const ways: readonly WayIn[] = [
      ...linked.map(({ providerId: id }) => ({ kind: 'provider', id }) as const),
      ...passkeys.map(({ id }) => ({ kind: 'passkey', id }) as const),
    ];
    const isIt = ({ kind, id }: WayIn): boolean => kind === way.kind && id === way.id && id !== passwordProvider;
    if (!ways.some(isIt)) return 'absent';
    const works = ({ kind, id }: WayIn): boolean =>
      kind === 'passkey' || id === passwordProvider || providers.includes(id);
    if (!ways.some((other) => !isIt(other) && works(other))) return 'last';
    if (way.kind === 'passkey')
      await transaction.deleteFrom('auth_passkey').where('userId', '=', userId).where('id', '=', way.id).execute();
    else
      await transaction
        .deleteFrom('auth_account')
        .where('userId', '=', userId)
        .where('providerId', '=', way.id)
        .execute();
    await endSecrets(transaction, 'way_in_removed', { userId, sessionId });
    return 'removed';
  });
}
