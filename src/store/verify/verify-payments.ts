import { sql, type Kysely, type RawBuilder } from 'kysely';
import type { Database } from '../database.ts';
import { rowsOn } from '../schema/codec.ts';
import { systemAccounts } from '../ledger.ts';
import { recordedProvider } from '../recordings.ts';
import { pagesByKey } from './pages.ts';
import type { Report } from './difference.ts';
import { verifyDocuments } from './verify-documents.ts';
import { promotionUnused } from '../repositories/promotions.ts';
import { uuidText } from '../../platform/ids/uuid.ts';

const pageRows = 1000;

/** Compares records with the money movements that they belong to: payments, returns, promotions that ended, and receipts. */
export async function verifyPayments(db: Kysely<Database>, report: Report): Promise<void> {
  await comparePayments(db, report);
  await compareReturns(db, report);
  await compareStrays(db, report);
  await comparePayers(db, report);
  await compareReturned(db, report);
  await compareRecordedReturns(db, report);
  await comparePromotions(db, report);
  await compareReceipts(db, report);
  await verifyDocuments(db, report);
}

/** A payment corresponds to one movement, and its top-up agrees; no other movement represents a payment. */
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
        or topup.account_id <> payment.account_id or topup.provider <> payment.provider or topup.status not in ('paid', 'refunded', 'disputed')`,
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

/** Parts of the keys of a return's movements. */
const undone = sql<string>`case when payment_return.kind = 'refund' then 'refund_failed:' else 'dispute_won:' end`;
const key = sql<string>`payment_return.provider || ':' || payment_return.id`;
const kind = sql<string>`payment_return.kind || ':'`;

/**
 * A refund or a dispute has taken from the account what its row says, once, and given all back if it is undone. The rest, which the
 * operator bears, follows on its own if it is not there yet.
 */
async function compareReturns(db: Kysely<Database>, report: Report): Promise<void> {
  const moved = (start: RawBuilder<string>, end: '' | ':rest') =>
    sql<bigint>`coalesce((select amount from transfer where idempotency_key = ${start} || ${key} || ${sql.lit(end)}), 0)`;
  const pages = pagesByKey({
    first: { provider: '', id: '' },
    size: pageRows,
    read: ({ provider, id }) =>
      db
        .selectFrom('payment_return')
        .where('provider', '<>', recordedProvider)
        .where((is) => is(is.refTuple('provider', 'id'), '>', is.tuple(provider, id)))
        .select(['provider', 'id', 'kind', 'account_id', 'amount', 'taken', 'owed', 'beyond', 'undone_at'])
        .select([
          moved(kind, '').as('debited'),
          moved(kind, ':rest').as('rest'),
          moved(undone, '').as('credited'),
          moved(undone, ':rest').as('restored'),
        ])
        .orderBy('provider')
        .orderBy('id'),
    keyOf: ({ provider, id }) => ({ provider, id }),
  });
  for await (const rows of pages)
    for (const row of rows) {
      const { account_id: accountId, amount, taken, credited, restored } = row;
      const what = `return ${row.id}`;
      const back = row.undone_at === null ? 0n : taken;
      const lost = amount - taken - row.owed - row.beyond;
      const name = `${row.kind}:${row.provider}:${row.id}`;
      const debited = row.debited === taken ? taken : row.debited + (await furtherMoved(db, name));
      const rest = row.rest === lost ? lost : row.rest + (await furtherMoved(db, `${name}:rest`));
      if (debited !== taken) report({ accountId, what, expected: taken, found: debited });
      if (credited !== back) report({ accountId, what: `${what}: given back`, expected: back, found: credited });
      if (rest !== 0n && rest !== lost) report({ accountId, what: `${what}: rest`, expected: lost, found: rest });
      // For a return that is being undone, the rest comes first.
      if (restored !== rest && (row.undone_at !== null || restored !== 0n))
        report({ accountId, what: `${what}: rest given back`, expected: rest, found: restored });
    }
}

/** No other movement has the form of a return's movement. */
async function compareStrays(db: Kysely<Database>, report: Report): Promise<void> {
  const stray = await db
    .selectFrom('transfer')
    .select(['transfer.id', 'transfer.debit_account', 'transfer.amount'])
    .where('transfer.by', '=', 'system')
    .where('transfer.kind', 'in', ['refund', 'chargeback'])
    .where((is) =>
      is.or([
        is('transfer.debit_account', '=', systemAccounts.cash),
        is('transfer.credit_account', '=', systemAccounts.cash),
      ]),
    )
    .where((is) =>
      is.not(
        is.exists(
          is
            .selectFrom('payment_return')
            .select(sql`1`.as('one'))
            .whereRef('payment_return.topup_id', '=', 'transfer.reference')
            .where(
              sql<boolean>`transfer.idempotency_key in (${kind} || ${key}, ${kind} || ${key} || ':rest',
                ${undone} || ${key}, ${undone} || ${key} || ':rest')
                or rtrim(transfer.idempotency_key, '0123456789') in (${kind} || ${key} || ':', ${kind} || ${key} || ':rest:')`,
            ),
        ),
      ),
    )
    .limit(pageRows)
    .execute();
  for (const row of stray)
    report({
      accountId: row.debit_account,
      what: `transfer ${uuidText(row.id)}`,
      expected: 'a refund or a dispute',
      found: 'none',
    });
}

/** A return is of the payment of its top-up, and of its account. */
async function comparePayers(db: Kysely<Database>, report: Report): Promise<void> {
  const wrong = await db
    .selectFrom('payment_return')
    .innerJoin('topup', 'topup.id', 'payment_return.topup_id')
    .select(['payment_return.id', 'payment_return.account_id', 'payment_return.payment_id', 'topup.payment_id as paid'])
    .select('topup.account_id as payer')
    .where(
      sql<boolean>`topup.payment_id is null or topup.payment_id <> payment_return.payment_id
        or topup.account_id <> payment_return.account_id`,
    )
    .limit(pageRows)
    .execute();
  for (const { id, account_id: accountId, payment_id: found, paid, payer } of wrong)
    report({
      accountId,
      what: `return ${id}: payment`,
      expected: `${paid ?? 'none'} of ${payer}`,
      found: `${found} of ${accountId}`,
    });
}

/** Top-ups record how much of the returns counts, and accounts how much of them they owe. */
async function compareReturned(db: Kysely<Database>, report: Report): Promise<void> {
  const sums = await db
    .selectFrom('topup')
    .leftJoin('payment_return', (join) =>
      join.onRef('payment_return.topup_id', '=', 'topup.id').on('payment_return.undone_at', 'is', null),
    )
    .select(['topup.id', 'topup.account_id', 'topup.returned'])
    .select(sql<bigint>`coalesce(sum(payment_return.amount - payment_return.beyond), 0)`.as('sum'))
    .groupBy(['topup.id', 'topup.account_id', 'topup.returned'])
    .having(sql<boolean>`topup.returned <> coalesce(sum(payment_return.amount - payment_return.beyond), 0)`)
    .limit(pageRows)
    .execute();
  for (const row of sums)
    report({ accountId: row.account_id, what: `top-up ${row.id}: returned`, expected: row.sum, found: row.returned });
  const owing = await db
    .selectFrom('account')
    .select(['account.id', 'account.owed'])
    .select(
      sql<bigint>`cast(coalesce((select sum(owed) from payment_return where account_id = account.id and owed > 0), 0) as bigint)`.as(
        'sum',
      ),
    )
    .where(
      sql<boolean>`account.owed <> coalesce((select sum(owed) from payment_return where account_id = account.id and owed > 0), 0)`,
    )
    .limit(pageRows)
    .execute();
  for (const { id, owed, sum } of owing) report({ accountId: id, what: 'owed', expected: sum, found: owed });
}

/** A return takes several times if running requests held a part: its further movements are numbered. */
async function furtherMoved(db: Kysely<Database>, key: string): Promise<bigint> {
  let sum = 0n;
  for (let number = 2; ; number++) {
    const row = await db
      .selectFrom('transfer')
      .select('amount')
      .where('idempotency_key', '=', `${key}:${number}`)
      .executeTakeFirst();
    if (row === undefined) return sum;
    sum += row.amount;
  }
}

/** What an operator recorded as returned was fully taken from the account, by the movement with its key. */
async function compareRecordedReturns(db: Kysely<Database>, report: Report): Promise<void> {
  const wrong = await db
    .selectFrom('payment_return')
    .leftJoin('transfer', 'transfer.idempotency_key', 'payment_return.id')
    .select(['payment_return.id', 'payment_return.account_id', 'payment_return.amount', 'transfer.amount as moved'])
    .where('payment_return.provider', '=', recordedProvider)
    .where((is) =>
      is.or([
        is('transfer.amount', 'is', null),
        is('payment_return.amount', '<>', is.ref('transfer.amount')),
        is('payment_return.taken', '<>', is.ref('payment_return.amount')),
        is('payment_return.account_id', '<>', is.ref('transfer.debit_account')),
        is('transfer.credit_account', '<>', systemAccounts.cash),
        is('payment_return.owed', '<>', 0n),
        is('payment_return.beyond', '<>', 0n),
        is('payment_return.undone_at', 'is not', null),
      ]),
    )
    .limit(pageRows)
    .execute();
  for (const row of wrong)
    report({
      accountId: row.account_id,
      what: `recorded return ${row.id}`,
      expected: row.amount,
      found: row.moved ?? 'no movement',
    });
}

/** The unused part of each ended promotion is derived again from the charges; no more than that was taken. */
async function comparePromotions(db: Kysely<Database>, report: Report): Promise<void> {
  const pages = pagesByKey({
    first: new Uint8Array(0),
    size: pageRows,
    read: (after) => db.selectFrom('promotion').selectAll().where('transfer_id', '>', after).orderBy('transfer_id'),
    keyOf: ({ transfer_id: id }) => Uint8Array.from(id),
  });
  for await (const rows of pages)
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
      const unused = await promotionUnused(rowsOn(db), { accountId, transferId: row.transfer_id });
      if (unused !== row.unused) report({ accountId, what: `${what}: unused`, expected: unused, found: row.unused });
      if (found > unused) report({ accountId, what, expected: `at most ${unused}`, found });
    }
}

/** A receipt matches its payment's movement, a correction its return. A payment without a receipt is not a difference: it follows a moment later. */
async function compareReceipts(db: Kysely<Database>, report: Report): Promise<void> {
  const wrong = await db
    .selectFrom('receipt')
    .leftJoin('transfer', 'transfer.id', 'receipt.transfer_id')
    .leftJoin('payment_return', (join) =>
      join
        .onRef('payment_return.provider', '=', 'receipt.provider')
        .onRef('payment_return.id', '=', 'receipt.return_id'),
    )
    .select(['receipt.number', 'receipt.account_id', 'receipt.total'])
    .select(['transfer.amount as moved', 'payment_return.amount as returned'])
    .where(
      sql<boolean>`case when receipt.kind = 'receipt'
        then transfer.amount is null or transfer.kind <> 'topup' or transfer.amount <> receipt.total
          or transfer.credit_account <> receipt.account_id or receipt.provider is not null or receipt.return_id is not null
        else receipt.transfer_id is not null or payment_return.amount is null or payment_return.amount <> receipt.total
          or payment_return.account_id <> receipt.account_id end`,
    )
    .limit(pageRows)
    .execute();
  for (const row of wrong)
    report({
      accountId: row.account_id,
      what: `receipt ${row.number}`,
      expected: row.moved ?? row.returned ?? 'a payment or a return',
      found: row.total,
    });
}
