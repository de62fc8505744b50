import { sql, type Kysely } from 'kysely';
import type { Database } from './database.ts';
import { promotionUnused } from './promotion-queries.ts';
import { uuidText } from '../ids/uuid.ts';

/** As `Difference` in verify.ts. */
type Report = (difference: {
  readonly accountId: string | null;
  readonly what: string;
  readonly expected: bigint | string;
  readonly found: bigint | string;
}) => void;

const pageRows = 1000;

/** What was recorded with movements of money, against the movements: payments, what was taken back, and promotions that ended. */
export async function verifyPayments(db: Kysely<Database>, report: Report): Promise<void> {
  await comparePayments(db, report);
  await compareReturns(db, report);
  await comparePromotions(db, report);
}

/** A payment and its movement are one, and its top-up says so; no other movement stands for a payment. */
async function comparePayments(db: Kysely<Database>, report: Report): Promise<void> {
  const wrong = await db
    .selectFrom('payment')
    .leftJoin('transfer', 'transfer.id', 'payment.transfer_id')
    .leftJoin('topup', 'topup.id', 'payment.topup_id')
    .select(['payment.id', 'payment.account_id', 'payment.amount', 'transfer.amount as moved', 'topup.status'])
    .where(
      sql<boolean>`transfer.amount is null or transfer.amount <> payment.amount
        or transfer.credit_account <> payment.account_id or transfer.kind <> 'topup'
        or topup.payment_id is null or topup.payment_id <> payment.id or topup.amount <> payment.amount
        or topup.account_id <> payment.account_id or topup.status not in ('paid', 'refunded', 'disputed')`,
    )
    .limit(pageRows)
    .execute();
  for (const row of wrong)
    report({
      accountId: row.account_id,
      what: `payment ${row.id}`,
      expected: row.amount,
      found: `${row.moved ?? 'no movement'}, top-up ${row.status ?? 'missing'}`,
    });
  const stray = await db
    .selectFrom('transfer')
    .leftJoin('payment', 'payment.transfer_id', 'transfer.id')
    .select(['transfer.id', 'transfer.credit_account', 'transfer.amount'])
    .where('transfer.idempotency_key', 'like', 'payment:%')
    .where('transfer.kind', '=', 'topup')
    .where('payment.id', 'is', null)
    .limit(pageRows)
    .execute();
  for (const row of stray)
    report({
      accountId: row.credit_account,
      what: `transfer ${uuidText(row.id)}`,
      expected: 'a payment',
      found: 'none',
    });
  const unpaid = await db
    .selectFrom('topup')
    .leftJoin('payment', 'payment.topup_id', 'topup.id')
    .select(['topup.id', 'topup.account_id', 'topup.status'])
    .where('topup.status', 'in', ['paid', 'refunded', 'disputed'])
    .where('payment.id', 'is', null)
    .limit(pageRows)
    .execute();
  for (const row of unpaid)
    report({ accountId: row.account_id, what: `top-up ${row.id}`, expected: 'a payment', found: row.status });
}

/** A refund or a dispute has taken from the account what its row says. The rest follows by itself when it is not there yet. */
async function compareReturns(db: Kysely<Database>, report: Report): Promise<void> {
  const key = sql<string>`payment_return.kind || ':' || payment_return.provider || ':' || payment_return.id`;
  const wrong = await db
    .selectFrom('payment_return')
    .leftJoin('transfer', (join) => join.on('transfer.idempotency_key', '=', key))
    .select(['payment_return.id', 'payment_return.account_id', 'payment_return.taken', 'transfer.amount as moved'])
    .where(sql<boolean>`coalesce(transfer.amount, 0) <> payment_return.taken`)
    .limit(pageRows)
    .execute();
  for (const row of wrong)
    report({ accountId: row.account_id, what: `return ${row.id}`, expected: row.taken, found: row.moved ?? 0n });
}

/** What was left of each promotion that ended is derived again from the charges; no more than that was taken. */
async function comparePromotions(db: Kysely<Database>, report: Report): Promise<void> {
  let last = new Uint8Array(0);
  for (;;) {
    const rows = await db
      .selectFrom('promotion')
      .selectAll()
      .where('transfer_id', '>', last)
      .orderBy('transfer_id')
      .limit(pageRows)
      .execute();
    for (const row of rows) {
      const what = `promotion ${uuidText(row.transfer_id)}`;
      const accountId = row.account_id;
      const taken = await db
        .selectFrom('transfer')
        .select('amount')
        .where('idempotency_key', '=', `expiry:${uuidText(row.transfer_id)}`)
        .executeTakeFirst();
      const found = taken?.amount ?? 0n;
      if (found !== (row.taken ?? 0n)) report({ accountId, what: `${what}: taken`, expected: row.taken ?? 0n, found });
      if (row.unused === null) continue;
      const unused = await promotionUnused(db, { accountId, transferId: row.transfer_id });
      if (unused !== row.unused) report({ accountId, what: `${what}: unused`, expected: unused, found: row.unused });
      if (found > unused) report({ accountId, what, expected: `at most ${unused}`, found });
    }
    if (rows.length < pageRows) return;
    last = Uint8Array.from(rows.at(-1)!.transfer_id);
  }
}
