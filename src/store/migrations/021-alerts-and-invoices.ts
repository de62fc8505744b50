import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';
import { forbidChanges } from './immutable.ts';

/** Invoices, alerts, webhook endpoints with their deliveries, and events that are still to be announced. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  await createInvoices(db, dialect);
  await createAlerts(db, dialect);
  await createWebhooks(db, dialect);
}

async function createInvoices(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, count } = columnTypes(dialect);
  const invoice = db.schema
    .createTable('invoice')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('kind', text, (column) => column.notNull().check(sql`kind in ('statement', 'credit_note')`))
    // The number as it is printed: prefix, year and sequence.
    .addColumn('number', text, (column) => column.notNull().unique())
    .addColumn('year', count, (column) => column.notNull())
    .addColumn('sequence', count, (column) => column.notNull().check(sql`sequence > 0`))
    // `2026-10`: the month that it closes; for a credit note, the month of the refunds.
    .addColumn('month', text, (column) => column.notNull())
    // What a credit note corrects; empty for a statement.
    .addColumn('corrects', text, (column) => column.notNull())
    .addColumn('period_start', time, (column) => column.notNull())
    .addColumn('period_end', time, (column) => column.notNull())
    .addColumn('issued_at', time, (column) => column.notNull())
    .addColumn('total', money, (column) => column.notNull())
    .addColumn('closing', money, (column) => column.notNull())
    // JSON: all its content, so that it always prints the same.
    .addColumn('data', text, (column) => column.notNull())
    .addUniqueConstraint('invoice_sequence', ['year', 'sequence'])
    .addUniqueConstraint('invoice_once', ['account_id', 'month', 'corrects']);
  await strict(invoice, dialect).execute();
  await db.schema.createIndex('invoice_account').on('invoice').columns(['account_id', 'year', 'sequence']).execute();
  await forbidChanges(db, dialect, 'invoice');

  // Until when the books of an account have been closed: the next statement begins there.
  const closed = db.schema
    .createTable('closed_until')
    .addColumn('account_id', text, (column) => column.primaryKey().notNull())
    .addColumn('at', time, (column) => column.notNull());
  await strict(closed, dialect).execute();
}

async function createAlerts(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, count } = columnTypes(dialect);
  const alert = db.schema
    .createTable('alert')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('kind', text, (column) => column.notNull().check(sql`kind in ('spend', 'balance')`))
    .addColumn('name', text, (column) => column.notNull())
    // Threshold of spending or of the balance; null where the threshold is days of runway.
    .addColumn('threshold', money, (column) => column.check(sql`threshold >= 0`))
    .addColumn('runway_days', count)
    .addColumn('per', text, (column) => column.check(sql`per in ('day', 'week', 'month')`))
    .addColumn('subject_kind', text, (column) =>
      column.notNull().check(sql`subject_kind in ('account', 'key', 'member', 'tag')`),
    )
    // Id of the key or the member, or the tag; null: the whole account.
    .addColumn('subject', text)
    // JSON: {"members": [id], "addresses": [text]}.
    .addColumn('recipients', text, (column) => column.notNull())
    .addColumn('webhook', count, (column) => column.notNull())
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('updated_at', time, (column) => column.notNull())
    .addColumn('state', text, (column) => column.notNull().check(sql`state in ('ok', 'fired')`))
    // The value at the last look, in microcents; null: none yet.
    .addColumn('observed', money)
    .addColumn('looked_at', time)
    .addColumn('fired_at', time)
    .addColumn('ended_at', time)
    // Grows with every change: a look that began before one changes nothing.
    .addColumn('version', count, (column) => column.notNull());
  await strict(alert, dialect).execute();
  await db.schema.createIndex('alert_account').on('alert').columns(['account_id', 'id']).execute();

  // Events that are still to be announced by mail and webhooks. Written in the transaction that caused them.
  const notice = db.schema
    .createTable('notice')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('type', text, (column) => column.notNull())
    // JSON: the `data` of the event.
    .addColumn('data', text, (column) => column.notNull())
    // JSON: recipients of mail, besides the webhooks.
    .addColumn('recipients', text, (column) => column.notNull())
    .addColumn('webhook', count, (column) => column.notNull())
    .addColumn('at', time, (column) => column.notNull());
  await strict(notice, dialect).execute();
}

async function createWebhooks(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, time, count } = columnTypes(dialect);
  const endpoint = db.schema
    .createTable('webhook_endpoint')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('url', text, (column) => column.notNull())
    .addColumn('description', text, (column) => column.notNull())
    // JSON list of types; null: all, including future ones.
    .addColumn('events', text)
    // Version of the signing secret, which is derived from this number and stored nowhere.
    .addColumn('secret_version', count, (column) => column.notNull())
    .addColumn('status', text, (column) => column.notNull().check(sql`status in ('active', 'disabled', 'deleted')`))
    // Why it is disabled: `asked` or `failing`.
    .addColumn('reason', text)
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('updated_at', time, (column) => column.notNull())
    // Since when deliveries have failed; null: the last one has arrived.
    .addColumn('failing_since', time);
  await strict(endpoint, dialect).execute();
  await db.schema
    .createIndex('webhook_endpoint_account')
    .on('webhook_endpoint')
    .columns(['account_id', 'id'])
    .execute();

  const delivery = db.schema
    .createTable('webhook_delivery')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('endpoint_id', text, (column) => column.notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    // The same for all endpoints and tries: `Webhook-Id`.
    .addColumn('event_id', text, (column) => column.notNull())
    .addColumn('type', text, (column) => column.notNull())
    // The body as it is sent.
    .addColumn('body', text, (column) => column.notNull())
    .addColumn('state', text, (column) =>
      column.notNull().check(sql`state in ('waiting', 'delivered', 'failed', 'dropped')`),
    )
    .addColumn('tries', count, (column) => column.notNull())
    // When it is tried next, or, during a try, when another process may take over; null: never.
    .addColumn('next_at', time)
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('tried_at', time)
    .addColumn('delivered_at', time)
    .addColumn('status', count)
    // The beginning of the last answer.
    .addColumn('answer', text)
    // Why the last try failed, in our words.
    .addColumn('failure', text)
    .addUniqueConstraint('webhook_delivery_once', ['endpoint_id', 'event_id']);
  await strict(delivery, dialect).execute();
  await db.schema
    .createIndex('webhook_delivery_next')
    .on('webhook_delivery')
    .column('next_at')
    .where(sql.ref('next_at'), 'is not', null)
    .execute();
  await db.schema
    .createIndex('webhook_delivery_endpoint')
    .on('webhook_delivery')
    .columns(['endpoint_id', 'id'])
    .execute();
  await db.schema
    .createIndex('webhook_delivery_account')
    .on('webhook_delivery')
    .columns(['account_id', 'state'])
    .execute();
  await db.schema.createIndex('webhook_delivery_age').on('webhook_delivery').column('created_at').execute();
}
