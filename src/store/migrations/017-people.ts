import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/**
 * The outbox of mail; users, how they sign in, and their role in each account. better-auth works on the tables `auth_…`, column
 * by column (decision 014).
 */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, time, count, bytes } = columnTypes(dialect);
  const flag = (name: string) => sql`${sql.ref(name)} in (0, 1)`;

  const mail = db.schema
    .createTable('mail')
    // Grows with time, so that the newest are last.
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('idempotency_key', text, (column) => column.unique())
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('recipient', text, (column) => column.notNull())
    .addColumn('subject', text, (column) => column.notNull())
    // Null once it is sent or given up: links in it open accounts.
    .addColumn('body', text)
    .addColumn('kind', text, (column) => column.notNull())
    .addColumn('account_id', text, (column) => column.references('account.id'))
    // JSON list, with the contents in base64.
    .addColumn('attachments', text)
    .addColumn('state', text, (column) => column.notNull().check(sql`state in ('waiting', 'sent', 'failed')`))
    .addColumn('attempts', count, (column) => column.notNull())
    // Time of the next attempt.
    .addColumn('due_at', time, (column) => column.notNull())
    .addColumn('sent_at', time)
    .addColumn('last_error', text);
  await strict(mail, dialect).execute();
  await db.schema.createIndex('mail_due').on('mail').columns(['state', 'due_at']).execute();
  await db.schema.createIndex('mail_age').on('mail').column('created_at').execute();

  const user = db.schema
    .createTable('auth_user')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('name', text, (column) => column.notNull())
    .addColumn('email', text, (column) => column.notNull().unique())
    .addColumn('emailVerified', count, (column) => column.notNull().check(flag('emailVerified')))
    .addColumn('image', text)
    .addColumn('createdAt', time, (column) => column.notNull())
    .addColumn('updatedAt', time, (column) => column.notNull())
    .addColumn('twoFactorEnabled', count, (column) => column.check(flag('twoFactorEnabled')));
  await strict(user, dialect).execute();

  const session = db.schema
    .createTable('auth_session')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('expiresAt', time, (column) => column.notNull())
    .addColumn('token', text, (column) => column.notNull().unique())
    .addColumn('createdAt', time, (column) => column.notNull())
    .addColumn('updatedAt', time, (column) => column.notNull())
    .addColumn('ipAddress', text)
    .addColumn('userAgent', text)
    .addColumn('userId', text, (column) => column.notNull().references('auth_user.id').onDelete('cascade'));
  await strict(session, dialect).execute();
  await db.schema.createIndex('auth_session_user').on('auth_session').column('userId').execute();
  await db.schema.createIndex('auth_session_end').on('auth_session').column('expiresAt').execute();

  const account = db.schema
    .createTable('auth_account')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('accountId', text, (column) => column.notNull())
    .addColumn('providerId', text, (column) => column.notNull())
    .addColumn('userId', text, (column) => column.notNull().references('auth_user.id').onDelete('cascade'))
    .addColumn('accessToken', text)
    .addColumn('refreshToken', text)
    .addColumn('idToken', text)
    .addColumn('accessTokenExpiresAt', time)
    .addColumn('refreshTokenExpiresAt', time)
    .addColumn('scope', text)
    .addColumn('password', text)
    .addColumn('createdAt', time, (column) => column.notNull())
    .addColumn('updatedAt', time, (column) => column.notNull())
    // Else two concurrent sign-ups could give one subject to two users.
    .addUniqueConstraint('auth_account_subject', ['providerId', 'accountId']);
  await strict(account, dialect).execute();
  await db.schema.createIndex('auth_account_user').on('auth_account').column('userId').execute();

  const verification = db.schema
    .createTable('auth_verification')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('identifier', text, (column) => column.notNull())
    .addColumn('value', text, (column) => column.notNull())
    .addColumn('expiresAt', time, (column) => column.notNull())
    .addColumn('createdAt', time, (column) => column.notNull())
    .addColumn('updatedAt', time, (column) => column.notNull());
  await strict(verification, dialect).execute();
  await db.schema.createIndex('auth_verification_name').on('auth_verification').column('identifier').execute();
  await db.schema.createIndex('auth_verification_end').on('auth_verification').column('expiresAt').execute();

  const twoFactor = db.schema
    .createTable('auth_two_factor')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('secret', text, (column) => column.notNull())
    .addColumn('backupCodes', text, (column) => column.notNull())
    .addColumn('userId', text, (column) => column.notNull().references('auth_user.id').onDelete('cascade'))
    .addColumn('verified', count, (column) => column.check(flag('verified')))
    .addColumn('failedVerificationCount', count)
    .addColumn('lockedUntil', time);
  await strict(twoFactor, dialect).execute();
  await db.schema.createIndex('auth_two_factor_user').on('auth_two_factor').column('userId').execute();

  const passkey = db.schema
    .createTable('auth_passkey')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('name', text)
    .addColumn('publicKey', text, (column) => column.notNull())
    .addColumn('userId', text, (column) => column.notNull().references('auth_user.id').onDelete('cascade'))
    .addColumn('credentialID', text, (column) => column.notNull().unique())
    .addColumn('counter', count, (column) => column.notNull())
    .addColumn('deviceType', text, (column) => column.notNull())
    .addColumn('backedUp', count, (column) => column.notNull().check(flag('backedUp')))
    .addColumn('transports', text)
    .addColumn('createdAt', time)
    .addColumn('aaguid', text);
  await strict(passkey, dialect).execute();
  await db.schema.createIndex('auth_passkey_user').on('auth_passkey').column('userId').execute();

  // The operators of the server. A table of its own: nothing that users submit about themselves comes near it.
  const operator = db.schema
    .createTable('server_operator')
    .addColumn('user_id', text, (column) =>
      column.primaryKey().notNull().references('auth_user.id').onDelete('cascade'),
    )
    .addColumn('created_at', time, (column) => column.notNull());
  await strict(operator, dialect).execute();

  const role = sql`role in ('owner', 'admin', 'billing', 'developer', 'viewer')`;
  const member = db.schema
    .createTable('member')
    .addColumn('account_id', text, (column) => column.notNull().references('account.id'))
    .addColumn('user_id', text, (column) => column.notNull().references('auth_user.id').onDelete('cascade'))
    .addColumn('role', text, (column) => column.notNull().check(role))
    .addColumn('created_at', time, (column) => column.notNull())
    .addPrimaryKeyConstraint('member_key', ['account_id', 'user_id']);
  await strict(member, dialect).execute();
  await db.schema.createIndex('member_user').on('member').columns(['user_id', 'created_at']).execute();

  const invitation = db.schema
    .createTable('invitation')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull().references('account.id'))
    // In lower case.
    .addColumn('email', text, (column) => column.notNull())
    .addColumn('role', text, (column) => column.notNull().check(role))
    .addColumn('token_hash', bytes, (column) => column.notNull().unique())
    // Id of the user or the management key.
    .addColumn('invited_by', text, (column) => column.notNull())
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('expires_at', time, (column) => column.notNull());
  await strict(invitation, dialect).execute();
  await db.schema.createIndex('invitation_account').on('invitation').columns(['account_id', 'id']).execute();
  await db.schema.createIndex('invitation_email').on('invitation').column('email').execute();
  await db.schema.createIndex('invitation_end').on('invitation').column('expires_at').execute();

  // The link that creates the owner; one row at most.
  const ownerLink = db.schema
    .createTable('owner_link')
    .addColumn('id', count, (column) =>
      column
        .primaryKey()
        .notNull()
        .check(sql`id = 1`),
    )
    .addColumn('token_hash', bytes, (column) => column.notNull())
    .addColumn('expires_at', time, (column) => column.notNull());
  await strict(ownerLink, dialect).execute();
}
