import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { systemAccounts } from '../ledger.ts';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Money: transfers, usage, the requests that are still running, and the system accounts. */
export async function up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  await createTransfer(db, dialect);
  await createUsage(db, dialect);
  await createOpenRequest(db, dialect);
  for (const table of ['transfer', 'usage']) await forbidChanges(db, dialect, table);

  const kinds = {
    [systemAccounts.cash]: 1,
    [systemAccounts.promo]: 2,
    [systemAccounts.revenue]: 3,
    [systemAccounts.badDebt]: 4,
  };
  for (const [id, kind] of Object.entries(kinds)) {
    await db
      .insertInto('account')
      .values({ id, kind, name: '', status: 'active', available: 0n, credit_limit: 0n, version: 1, created_at: 0 })
      .execute();
  }
}

async function createTransfer(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, bytes } = columnTypes(dialect);
  const transfer = db.schema
    .createTable('transfer')
    .addColumn('id', bytes, (column) => column.primaryKey().notNull())
    .addColumn('debit_account', text, (column) => column.notNull().references('account.id'))
    .addColumn('credit_account', text, (column) => column.notNull().references('account.id'))
    .addColumn('amount', money, (column) => column.notNull().check(sql`amount > 0`))
    .addColumn('kind', text, (column) => column.notNull())
    .addColumn('idempotency_key', text, (column) => column.notNull().unique())
    .addColumn('reference', text)
    .addColumn('by', text, (column) => column.notNull())
    .addColumn('at', time, (column) => column.notNull())
    .addCheckConstraint('transfer_between_two', sql`debit_account <> credit_account`);
  await strict(transfer, dialect).execute();
  await db.schema.createIndex('transfer_debit').on('transfer').columns(['debit_account', 'at']).execute();
  await db.schema.createIndex('transfer_credit').on('transfer').columns(['credit_account', 'at']).execute();
}

async function createUsage(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, count, bytes } = columnTypes(dialect);
  const usage = db.schema
    .createTable('usage')
    .addColumn('request_id', bytes, (column) =>
      column
        .primaryKey()
        .notNull()
        .check(sql`length(request_id) = 16`),
    )
    .addColumn('public_id', text, (column) => column.notNull())
    .addColumn('client_id', text)
    // No foreign key: on PostgreSQL it would lock the account's row for every request.
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('key_id', text, (column) => column.notNull())
    .addColumn('model_id', text, (column) => column.notNull())
    .addColumn('api', text, (column) => column.notNull())
    .addColumn('streamed', count, (column) => column.notNull())
    .addColumn('started_at', time, (column) => column.notNull())
    .addColumn('ended_at', time, (column) => column.notNull())
    .addColumn('prompt_tokens', count, (column) => column.notNull())
    .addColumn('cached_tokens', count, (column) => column.notNull())
    .addColumn('completion_tokens', count, (column) => column.notNull())
    .addColumn('reasoning_tokens', count, (column) => column.notNull())
    .addColumn('cost', money, (column) => column.notNull())
    .addColumn('uncharged', money, (column) => column.notNull().check(sql`uncharged >= 0`))
    .addColumn('hold', money, (column) => column.notNull())
    .addColumn('ending', text, (column) => column.notNull())
    .addColumn('finish', text)
    .addColumn('error_code', text)
    .addColumn('counted', count, (column) => column.notNull())
    .addColumn('input_price', money, (column) => column.notNull())
    .addColumn('output_price', money, (column) => column.notNull())
    .addColumn('cache_read_price', money, (column) => column.notNull())
    .addColumn('backend', text)
    .addColumn('first_token_ms', count)
    .addColumn('total_ms', count, (column) => column.notNull())
    .addColumn('tags', text)
    .addCheckConstraint('usage_within_hold', sql`cost >= 0 and cost <= hold`) // M2
    .addCheckConstraint('usage_cached', sql`cached_tokens >= 0 and cached_tokens <= prompt_tokens`)
    .addCheckConstraint('usage_reasoning', sql`reasoning_tokens >= 0 and reasoning_tokens <= completion_tokens`);
  await strict(usage, dialect).execute();
  await db.schema.createIndex('usage_account').on('usage').columns(['account_id', 'ended_at']).execute();
  // 48 bits are not unique: look-ups by the public id stay inside an account.
  await db.schema
    .createIndex('usage_client_id')
    .on('usage')
    .columns(['account_id', 'client_id'])
    .where(sql.ref('client_id'), 'is not', null)
    .execute();
}

async function createOpenRequest(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, bytes } = columnTypes(dialect);
  const openRequest = db.schema
    .createTable('open_request')
    .addColumn('request_id', bytes, (column) =>
      column
        .primaryKey()
        .notNull()
        .check(sql`length(request_id) = 16`),
    )
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('key_id', text, (column) => column.notNull())
    .addColumn('model_id', text, (column) => column.notNull())
    .addColumn('hold', money, (column) => column.notNull().check(sql`hold >= 0`))
    .addColumn('started_at', time, (column) => column.notNull())
    .addColumn('replica_id', bytes);
  await strict(openRequest, dialect).execute();
}

/** M7: rows of the ledger are only added. */
async function forbidChanges(db: Kysely<Database>, dialect: SchemaDialect, table: string): Promise<void> {
  if (dialect === 'postgres') {
    await sql
      .raw(
        `create function ${table}_is_immutable() returns trigger language plpgsql as $$ begin raise exception '${table} is immutable'; end $$`,
      )
      .execute(db);
  }
  for (const change of ['update', 'delete']) {
    const action =
      dialect === 'sqlite'
        ? `begin select raise(abort, '${table} is immutable'); end`
        : `for each row execute function ${table}_is_immutable()`;
    await sql.raw(`create trigger ${table}_no_${change} before ${change} on ${table} ${action}`).execute(db);
  }
}
