import { type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Requests that carried an `Idempotency-Key`, and their answers. Holds content, for a day. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, time, count, bytes } = columnTypes(dialect);
  const table = db.schema
    .createTable('idempotent_request')
    // No foreign key: on PostgreSQL it would lock the account's row for every request.
    .addColumn('account_id', text, (column) => column.notNull())
    // Hash of the key, which is the client's text and is not kept.
    .addColumn('key_hash', bytes, (column) => column.notNull())
    // Hash of the body and of everything else that decides the answer.
    .addColumn('fingerprint', bytes, (column) => column.notNull())
    // Its row in `usage` says whether it was answered and charged.
    .addColumn('request_id', bytes, (column) => column.notNull())
    .addColumn('public_id', text, (column) => column.notNull())
    // The process that runs it, or ran it.
    .addColumn('owner', bytes, (column) => column.notNull())
    .addColumn('created_at', time, (column) => column.notNull())
    // Bytes that the row takes.
    .addColumn('bytes', count, (column) => column.notNull())
    // The answer as it was sent; null: none yet, or not kept.
    .addColumn('answer', text)
    .addPrimaryKeyConstraint('idempotent_request_key', ['account_id', 'key_hash']);
  await strict(table, dialect).execute();
  // For expiry, and for sums, which must not read the answers.
  await db.schema
    .createIndex('idempotent_request_at')
    .on('idempotent_request')
    .columns(['created_at', 'bytes'])
    .execute();
  await db.schema
    .createIndex('idempotent_request_size')
    .on('idempotent_request')
    .columns(['account_id', 'created_at', 'bytes'])
    .execute();
}
