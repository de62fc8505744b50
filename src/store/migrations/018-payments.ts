import { sql, type Kysely } from 'kysely';
import { columnTypes, strict, type SchemaDialect } from './columns.ts';

/** Top-ups, what the payment provider has reported about them, automatic top-ups, and promotional credit that expires. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, money, time, count, bytes } = columnTypes(dialect);

  const topup = db.schema
    .createTable('topup')
    // `top_` and the 32 hex digits of a UUIDv7, so it sorts by time.
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('amount', money, (column) => column.notNull().check(sql`amount > 0`))
    .addColumn('status', text, (column) =>
      column.notNull().check(sql`status in ('pending', 'paid', 'failed', 'expired', 'refunded', 'disputed')`),
    )
    .addColumn('origin', text, (column) => column.notNull().check(sql`origin in ('checkout', 'auto')`))
    .addColumn('provider', text, (column) => column.notNull())
    .addColumn('checkout_id', text)
    .addColumn('checkout_url', text)
    .addColumn('payment_id', text)
    // How much of it refunds have returned and disputes taken.
    .addColumn('returned', money, (column) => column.notNull().defaultTo(0))
    .addColumn('idempotency_key', text, (column) => column.notNull())
    .addColumn('success_url', text)
    .addColumn('cancel_url', text)
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('paid_at', time)
    .addColumn('by', text, (column) => column.notNull());
  await strict(topup, dialect).execute();
  await db.schema.createIndex('topup_account').on('topup').columns(['account_id', 'id']).execute();
  await db.schema
    .createIndex('topup_idempotency')
    .on('topup')
    .columns(['account_id', 'idempotency_key'])
    .unique()
    .execute();

  const payment = db.schema
    .createTable('payment')
    .addColumn('provider', text, (column) => column.notNull())
    .addColumn('id', text, (column) => column.notNull())
    // A top-up is paid once.
    .addColumn('topup_id', text, (column) => column.notNull().unique())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('amount', money, (column) => column.notNull().check(sql`amount > 0`))
    // The movement that has credited it.
    .addColumn('transfer_id', bytes, (column) => column.notNull())
    .addColumn('at', time, (column) => column.notNull())
    .addPrimaryKeyConstraint('payment_key', ['provider', 'id']);
  await strict(payment, dialect).execute();

  const event = db.schema
    .createTable('payment_event')
    .addColumn('provider', text, (column) => column.notNull())
    .addColumn('id', text, (column) => column.notNull())
    .addColumn('kind', text, (column) => column.notNull())
    .addColumn('subject', text)
    // `applied`, or why it changed nothing.
    .addColumn('outcome', text, (column) => column.notNull())
    // By the provider's clock.
    .addColumn('created_at', time, (column) => column.notNull())
    .addColumn('received_at', time, (column) => column.notNull())
    .addPrimaryKeyConstraint('payment_event_key', ['provider', 'id']);
  await strict(event, dialect).execute();
  await db.schema.createIndex('payment_event_time').on('payment_event').columns(['provider', 'created_at']).execute();

  const taken = db.schema
    .createTable('payment_return')
    .addColumn('provider', text, (column) => column.notNull())
    // Id of the refund or the dispute.
    .addColumn('id', text, (column) => column.notNull())
    .addColumn('kind', text, (column) => column.notNull().check(sql`kind in ('refund', 'dispute')`))
    .addColumn('payment_id', text, (column) => column.notNull())
    .addColumn('topup_id', text, (column) => column.notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('amount', money, (column) => column.notNull().check(sql`amount > 0`))
    // How much of it the account had; the rest is bad debt.
    .addColumn('taken', money, (column) => column.notNull().check(sql`taken >= 0 and taken <= amount`))
    .addColumn('at', time, (column) => column.notNull())
    .addPrimaryKeyConstraint('payment_return_key', ['provider', 'id']);
  await strict(taken, dialect).execute();
  await db.schema.createIndex('payment_return_topup').on('payment_return').column('topup_id').execute();

  const method = db.schema
    .createTable('payment_method')
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('provider', text, (column) => column.notNull())
    // References only: the provider keeps what they stand for.
    .addColumn('customer_id', text, (column) => column.notNull())
    .addColumn('method_id', text, (column) => column.notNull())
    .addColumn('saved_at', time, (column) => column.notNull())
    .addPrimaryKeyConstraint('payment_method_key', ['account_id', 'provider']);
  await strict(method, dialect).execute();

  const auto = db.schema
    .createTable('auto_topup')
    .addColumn('account_id', text, (column) => column.primaryKey().notNull())
    .addColumn('enabled', count, (column) => column.notNull())
    .addColumn('threshold', money, (column) => column.notNull().check(sql`threshold >= 0`))
    .addColumn('amount', money, (column) => column.notNull().check(sql`amount > 0`))
    .addColumn('monthly_cap', money, (column) => column.notNull().check(sql`monthly_cap >= amount`))
    // Consecutive failures; it stops at three.
    .addColumn('failures', count, (column) => column.notNull())
    .addColumn('stopped_at', time)
    .addColumn('stop_reason', text)
    // Counts the charges: the next one's number is part of its idempotency key.
    .addColumn('charges', count, (column) => column.notNull())
    // The charge that is under way.
    .addColumn('pending_topup', text)
    .addColumn('updated_at', time, (column) => column.notNull())
    .addColumn('by', text, (column) => column.notNull());
  await strict(auto, dialect).execute();

  const promotion = db.schema
    .createTable('promotion')
    // The movement that has granted it.
    .addColumn('transfer_id', bytes, (column) => column.primaryKey().notNull())
    .addColumn('account_id', text, (column) => column.notNull())
    .addColumn('amount', money, (column) => column.notNull().check(sql`amount > 0`))
    .addColumn('granted_at', time, (column) => column.notNull())
    .addColumn('expires_at', time, (column) => column.notNull())
    .addColumn('closed_at', time)
    // What was left of it at its end, and how much of that the account still had.
    .addColumn('unused', money)
    .addColumn('taken', money)
    .addCheckConstraint('promotion_span', sql`expires_at > granted_at`);
  await strict(promotion, dialect).execute();
  await db.schema.createIndex('promotion_account').on('promotion').columns(['account_id', 'granted_at']).execute();
  await db.schema
    .createIndex('promotion_due')
    .on('promotion')
    .column('expires_at')
    .where(sql.ref('closed_at'), 'is', null)
    .execute();

  // What the built-in provider keeps, as a provider elsewhere would: checkouts, payments, refunds, disputes and events.
  const demo = db.schema
    .createTable('demo_payment_object')
    .addColumn('id', text, (column) => column.primaryKey().notNull())
    .addColumn('kind', text, (column) => column.notNull())
    // Two requests with the same key make one object.
    .addColumn('idempotency_key', text, (column) => column.unique())
    .addColumn('version', count, (column) => column.notNull())
    .addColumn('created_at', time, (column) => column.notNull())
    // JSON.
    .addColumn('body', text, (column) => column.notNull());
  await strict(demo, dialect).execute();
  await db.schema
    .createIndex('demo_payment_object_kind')
    .on('demo_payment_object')
    .columns(['kind', 'created_at'])
    .execute();
}
