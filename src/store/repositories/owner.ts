/** The operators of the server, and the link that creates the owner. */
import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { storedOn, type Rows } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';
import { endSecrets } from './one-time-secrets.ts';
import { insertCredential, insertUser, type NewUser } from './users.ts';

type Db = Kysely<Rows>;

/** Whether the server has an operator. */
export async function hasOperator(db: Db, _request: object): Promise<boolean> {
  return (await db.selectFrom('server_operator').select('userId').limit(1).executeTakeFirst()) !== undefined;
}

/** Ids of the accounts that operators are members of; before the server has an operator, its only account. */
export async function listOperatorAccounts(db: Db, _request: object): Promise<readonly string[]> {
  const own = await db
    .selectFrom('member')
    .innerJoin('server_operator as operator', 'operator.userId', 'member.userId')
    .select('member.accountId as id')
    .distinct()
    .orderBy('id')
    .execute();
  if (own.length > 0 || (await hasOperator(db, {}))) return own.map(({ id }) => id);
  const accounts = await db
    .selectFrom('account')
    .select('id')
    .where('kind', '=', 0)
    .where('deletedAt', 'is', null)
    .limit(2)
    .execute();
  return accounts.length === 1 ? accounts.map(({ id }) => id) : [];
}

/** Replaces the owner link. */
export async function setOwnerLink(
  db: Db,
  { tokenHash, expiresAt }: { readonly tokenHash: Uint8Array; readonly expiresAt: number },
): Promise<void> {
  const link = { tokenHash, expiresAt };
  await db
    .insertInto('owner_link')
    .values({ id: 1, ...link })
    .onConflict((conflict) => conflict.column('id').doUpdateSet(link))
    .execute();
}

/** The last unused owner link, even if it has expired. */
export async function getOwnerLink(
  db: Db,
  _request: object,
): Promise<{ readonly tokenHash: Uint8Array; readonly expiresAt: number } | undefined> {
  return await db.selectFrom('owner_link').select(['tokenHash', 'expiresAt']).executeTakeFirst();
}

/** Whether this token opens the owner's form now. */
export async function isOwnerLink(
  db: Db,
  { tokenHash, at }: { readonly tokenHash: Uint8Array; readonly at: number },
): Promise<boolean> {
  const row = await db
    .selectFrom('owner_link')
    .where('tokenHash', '=', tokenHash)
    .where('expiresAt', '>', at)
    .select('id')
    .executeTakeFirst();
  return row !== undefined;
}

/**
 * Creates a user with a password who operates the server and owns its oldest account, atomically. With `tokenHash`, only while it is the
 * current owner link's, which this uses up; undefined: it is not. An existing user with the address becomes the owner, with this password
 * and no other way to sign in: their current sessions end.
 */
export async function createOwner(
  db: Db,
  request: NewUser & { readonly tokenHash: Uint8Array | undefined },
): Promise<{ readonly userId: string } | undefined> {
  const { tokenHash, at } = request;
  return await db.transaction().execute(async (transaction) => {
    if (tokenHash !== undefined) {
      const used = await transaction
        .deleteFrom('owner_link')
        .where('tokenHash', '=', tokenHash)
        .where('expiresAt', '>', at)
        .executeTakeFirst();
      if (used.numDeletedRows === 0n) return undefined;
    }
    // A person who finds an older link cannot use it.
    else await transaction.deleteFrom('owner_link').execute();
    const first = await transaction
      .selectFrom('account')
      .where('kind', '=', 0)
      .orderBy('createdAt')
      .orderBy('id')
      .select('id')
      .limit(1)
      .executeTakeFirst();
    if (first === undefined) throw new StoreError('not_found', 'There is no account yet. Start the service once.');
    const userId = await putUser(storedOn(transaction), request);
    await transaction
      .insertInto('server_operator')
      .values({ userId, createdAt: at })
      .onConflict((conflict) => conflict.column('userId').doNothing())
      .execute();
    await transaction
      .insertInto('member')
      .values({ accountId: first.id, userId, role: 'owner', createdAt: at })
      .onConflict((conflict) => conflict.columns(['accountId', 'userId']).doUpdateSet({ role: 'owner' }))
      .execute();
    return { userId };
  });
}

/** Creates the user with this address, or gives the existing one this password and name. Returns its id. */
async function putUser(transaction: Kysely<Database>, user: NewUser): Promise<string> {
  const { name, email, at } = user;
  const known = await transaction.selectFrom('auth_user').where('email', '=', email).select('id').executeTakeFirst();
  if (known === undefined) {
    await insertUser(transaction, user);
    return user.userId;
  }
  // The operator vouches for the address: the user is theirs, however it was created.
  for (const table of ['auth_account', 'auth_passkey', 'auth_two_factor'] as const)
    await transaction.deleteFrom(table).where('userId', '=', known.id).execute();
  await endSecrets(transaction, 'owner_made', { userId: known.id });
  await transaction
    .updateTable('auth_user')
    .set({ name, emailVerified: 1, twoFactorEnabled: 0, updatedAt: at })
    .where('id', '=', known.id)
    .execute();
  await insertCredential(transaction, { ...user, userId: known.id });
  return known.id;
}
