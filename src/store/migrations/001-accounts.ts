import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Accounts, their keys, and the feed of changes that every replica must hear of. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, count, bytes } = columnTypes(dialect);
  const account = db.schema
    .createTable('account')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('kind', count, (column) => column.notNull())
    .addColumn('name', text, (column) => column.notNull())
    .addColumn('status', text, (column) => column.notNull().check(sql`status in ('active', 'suspended')`))
    .addColumn('available', money, (column) => column.notNull())
    .addColumn('credit_limit', money, (column) => column.notNull().check(sql`credit_limit >= 0`))
    .addColumn('version', count, (column) => column.notNull())
    .addColumn('created_at', time, (column) => column.notNull())
    // M2: holds come out of what is free, so no settlement ever violates this.
    .addCheckConstraint('account_not_overdrawn', sql`kind <> 0 or available >= -credit_limit`);
  await strict(account, dialect).execute();

  const apiKey = db.schema
    .createTable('api_key')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull().references('account.id'))
    .addColumn('user_id', text)
    .addColumn('name', text, (column) => column.notNull())
    .addColumn('display', text, (column) => column.notNull())
    .addColumn('hash', bytes, (column) =>
      column
        .notNull()
        .unique()
        .check(sql`length(hash) = 32`),
    )
    .addColumn('pepper_id', text, (column) => column.notNull())
    .addColumn('status', text, (column) => column.notNull().check(sql`status in ('active', 'revoked')`))
    .addColumn('limits', text)
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('expires_at', time)
    .addColumn('revoked_at', time)
    .addCheckConstraint('api_key_revoked_once', sql`(status = 'revoked') = (revoked_at is not null)`);
  await strict(apiKey, dialect).execute();
  await db.schema.createIndex('api_key_account').on('api_key').columns(['account_id', 'created_at']).execute();

  const change = db.schema
    .createTable('change')
    .addColumn('id', bytes, (column) => column.primaryKey().notNull())
    .addColumn('at', time, (column) => column.notNull())
    .addColumn('kind', text, (column) => column.notNull())
    .addColumn('ref', text, (column) => column.notNull());
  await strict(change, dialect).execute();
  await db.schema.createIndex('change_at').on('change').column('at').execute();
}
