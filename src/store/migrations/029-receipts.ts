import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';
import { forbidChanges } from './immutable.ts';

/** Receipts for payments, issued at once. Earlier payments have none: the statement of the month that uses them has their tax. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, count, bytes } = columnTypes(dialect);
  const receipt = db.schema
    .createTable('receipt')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('kind', text, (column) =>
      column.notNull().check(sql`kind in ('receipt', 'credit_note', 'credit_note_reversal')`),
    )
    // As it is printed: prefix, year and sequence.
    .addColumn('number', text, (column) => column.notNull().unique())
    .addColumn('year', count, (column) => column.notNull())
    .addColumn('sequence', count, (column) => column.notNull().check(sql`sequence > 0`))
    // The movement of the payment; null: it is about a return.
    .addColumn('transfer_id', bytes, (column) => column.unique())
    // Provider of the refund or the dispute; null: it is about a payment.
    .addColumn('provider', text)
    .addColumn('return_id', text)
    // Id of the document that it corrects; empty for a receipt.
    .addColumn('corrects', text, (column) => column.notNull())
    .addColumn('topup_id', text)
    .addColumn('issued_at', time, (column) => column.notNull())
    .addColumn('total', money, (column) => column.notNull())
    // How it was paid, in words.
    .addColumn('method', text, (column) => column.notNull())
    // JSON: all its content, so that it always prints the same.
    .addColumn('data', text, (column) => column.notNull())
    .addUniqueConstraint('receipt_sequence', ['year', 'sequence'])
    .addUniqueConstraint('receipt_return', ['provider', 'return_id', 'kind']);
  await strict(receipt, dialect).execute();
  await db.schema.createIndex('receipt_account').on('receipt').columns(['account_id', 'year', 'sequence']).execute();
  await db.schema.createIndex('receipt_topup').on('receipt').column('topup_id').execute();
  await forbidChanges(db, dialect, 'receipt');
  // For finding payments that have none yet.
  await db.schema
    .createIndex('transfer_topup')
    .on('transfer')
    .column('at')
    .where(sql.ref('kind'), '=', sql.lit('topup'))
    .execute();
}
