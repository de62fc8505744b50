/** Users and their sessions: better-auth's rows, with its column names (decision 014). */
import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { passwordProvider } from '../row-facts.ts';

type Db = Kysely<Database>;

export interface SessionRow {
  readonly sessionId: string;
  readonly userId: string;
  readonly name: string;
  readonly email: string;
  readonly isOperator: boolean;
  /** Whether their sign-in requires an authenticator code. */
  readonly hasTwoFactor: boolean;
  /** When they signed in. */
  readonly createdAt: number;
  /** The account that this operator looks at as a viewer. */
  readonly viewing: Viewing | undefined;
}

export interface Viewing {
  readonly accountId: string;
  readonly name: string;
  readonly isSuspended: boolean;
  readonly expiresAt: number;
}

/** The session that a cookie refers to, with its user; undefined: it does not exist or is over, or the address is not verified. */
export async function findSession(
  db: Db,
  { token, at }: { readonly token: string; readonly at: number },
): Promise<SessionRow | undefined> {
  const row = await db
    .selectFrom('auth_session as session')
    .innerJoin('auth_user as person', 'person.id', 'session.userId')
    .leftJoin('server_operator as operator', 'operator.user_id', 'person.id')
    .leftJoin('account_view as view', (on) =>
      on.onRef('view.session_id', '=', 'session.id').on('view.expires_at', '>', BigInt(at)),
    )
    .leftJoin('account as viewed', (on) =>
      on.onRef('viewed.id', '=', 'view.account_id').on('viewed.deleted_at', 'is', null),
    )
    .where('session.token', '=', token)
    .where('session.expiresAt', '>', BigInt(at))
    .where('person.emailVerified', '=', 1n)
    .select([
      'session.id as sessionId',
      'session.createdAt as createdAt',
      'person.id as userId',
      'person.name as name',
      'person.email as email',
      'person.twoFactorEnabled as twoFactorEnabled',
      'operator.user_id as operator',
      'view.expires_at as viewedUntil',
      'viewed.id as viewedId',
      'viewed.name as viewedName',
      'viewed.status as viewedStatus',
    ])
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const { operator, twoFactorEnabled, createdAt, viewedUntil, viewedId, viewedName, viewedStatus, ...person } = row;
  return {
    ...person,
    viewing:
      operator === null || viewedUntil === null || viewedId === null
        ? undefined
        : {
            accountId: viewedId,
            name: viewedName ?? '',
            isSuspended: viewedStatus !== 'active',
            expiresAt: Number(viewedUntil),
          },
    isOperator: operator !== null,
    hasTwoFactor: twoFactorEnabled === 1n,
    createdAt: Number(createdAt),
  };
}

/** The live sessions of a user, newest first, at most a hundred. */
export async function listSessions(db: Db, { userId, at }: { readonly userId: string; readonly at: number }) {
  const rows = await db
    .selectFrom('auth_session')
    .where('userId', '=', userId)
    .where('expiresAt', '>', BigInt(at))
    .orderBy('createdAt', 'desc')
    .limit(100)
    .select(['id', 'createdAt', 'expiresAt', 'ipAddress', 'userAgent'])
    .execute();
  return rows.map((row) => ({ ...row, createdAt: Number(row.createdAt), expiresAt: Number(row.expiresAt) }));
}

/** Ends one session of a user, or all except one; returns how many. */
export async function endSessions(
  db: Db,
  { userId, only, except }: { readonly userId: string; readonly only?: string; readonly except?: string },
): Promise<number> {
  let query = db.deleteFrom('auth_session').where('userId', '=', userId);
  if (only !== undefined) query = query.where('id', '=', only);
  if (except !== undefined) query = query.where('id', '<>', except);
  return Number((await query.executeTakeFirst()).numDeletedRows);
}

/** Deletes expired sessions, verifications and invitations, a bounded number of each, and returns how many. */
export async function forgetExpired(db: Db, { at }: { readonly at: number }): Promise<number> {
  let forgotten = 0n;
  for (const table of ['auth_session', 'auth_verification'] as const) {
    const over = db.selectFrom(table).select('id').where('expiresAt', '<=', BigInt(at)).limit(500);
    forgotten += (await db.deleteFrom(table).where('id', 'in', over).executeTakeFirst()).numDeletedRows;
  }
  const over = db.selectFrom('invitation').select('id').where('expires_at', '<=', BigInt(at)).limit(500);
  forgotten += (await db.deleteFrom('invitation').where('id', 'in', over).executeTakeFirst()).numDeletedRows;
  return Number(forgotten);
}

/** Whether a user has this address. */
export async function hasPerson(db: Db, { email }: { readonly email: string }): Promise<boolean> {
  return (await db.selectFrom('auth_user').where('email', '=', email).select('id').executeTakeFirst()) !== undefined;
}

/** A new user with a confirmed address and a password. */
export interface NewUser {
  readonly userId: string;
  readonly credentialId: string;
  readonly email: string;
  readonly name: string;
  readonly passwordHash: string;
  readonly at: number;
}

export async function insertUser(db: Db, { userId: id, name, email, at, ...rest }: NewUser): Promise<void> {
  await db
    .insertInto('auth_user')
    .values({ id, name, email, emailVerified: 1, image: null, createdAt: at, updatedAt: at })
    .execute();
  await insertCredential(db, { userId: id, at, ...rest });
}

export async function insertCredential(
  db: Db,
  { userId, credentialId, passwordHash, at }: Omit<NewUser, 'email' | 'name'>,
): Promise<void> {
  await db
    .insertInto('auth_account')
    .values({
      id: credentialId,
      accountId: userId,
      providerId: passwordProvider,
      userId,
      password: passwordHash,
      createdAt: at,
      updatedAt: at,
    })
    .execute();
}
