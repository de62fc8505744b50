import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { systemAccounts, type TransferKind } from '../ledger.ts';
import { inOrderOfTime } from '../one-moment.ts';
import { leased } from '../repositories/accounts.ts';
import { verifyHeads } from './verify-heads.ts';
import { verifyPayments } from './verify-payments.ts';
import { retentionOf } from '../retention/retention.ts';
import { add, refuseLabels, sumRows, type RowTotals } from './verify-rows.ts';
import { verifyRollUps } from './verify-usage.ts';
import type { Difference, Report } from './difference.ts';
import { pagesByKey } from './pages.ts';
import { BudgetTotals } from './verify-budgets.ts';
import { uuidText } from '../../platform/ids/uuid.ts';

export interface Verification {
  /** Empty if every balance and every row is right. At most `differencesMax`. */
  readonly differences: readonly Difference[];
  readonly accounts: number;
  readonly transfers: number;
  readonly usageRows: number;
  /** Number of requests whose rows are removed; their sums are still compared. */
  readonly prunedRequests: number;
  /** Number of hours of usage_hour that were compared. */
  readonly hours: number;
}

export interface VerifyOptions {
  /** Whether a process owns the database now. Without an owner, nothing can be running (M8). */
  readonly owned: boolean;
}

const differencesMax = 1000;
const pageRows = 2000;
const byBytes = { first: new Uint8Array(0), size: pageRows };

/**
 * Recomputes every balance, budget and roll-up from the underlying rows, and every price from its tokens. Sums are computed here in bigint,
 * so they are exact at any size, and no figure computed by the hot path is used. Reads one moment of the database, even beside a running
 * service.
 */
export function verifyLedger(db: Kysely<Database>, options: VerifyOptions): Promise<Verification> {
  return inOrderOfTime(db, async (moment) => {
    const differences: Difference[] = [];
    const report: Report = (difference) => {
      if (differences.length < differencesMax) differences.push(difference);
    };
    const transfers = await sumTransfers(moment, report);
    const budgets = await BudgetTotals.read(moment);
    const { keptSince } = await retentionOf(moment);
    const usage = await sumRows(moment, { budgets, keptSince, report });
    const prunedRequests = await addPruned(moment, budgets, usage, report);
    for (const difference of budgets.differences()) report(difference);
    const accounts = await compareBalances(moment, transfers.net, usage.cost, report);
    if (!options.owned) await refuseOpenRequests(moment, report);
    const rollUps = { everywhere: usage.strays > 0, keptSince, older: usage.older };
    const hours = await verifyRollUps(moment, rollUps, report);
    await verifyPayments(moment, report);
    await verifyHeads(moment, keptSince, report);
    return { differences, accounts, transfers: transfers.count, usageRows: usage.count, prunedRequests, hours };
  });
}

const kinds: Readonly<Record<TransferKind, true>> = {
  topup: true,
  grant: true,
  refund: true,
  adjust: true,
  chargeback: true,
  expiry: true,
  usage_closed: true,
};

/** Credits less debits of every account. */
async function sumTransfers(
  db: Kysely<Database>,
  report: Report,
): Promise<{ net: Map<string, bigint>; count: number }> {
  const net = new Map<string, bigint>();
  let count = 0;
  const pages = pagesByKey({
    ...byBytes,
    read: (after) =>
      db
        .selectFrom('transfer')
        .select(['id', 'debit_account', 'credit_account', 'amount', 'kind'])
        .where('id', '>', after)
        .orderBy('id'),
    keyOf: ({ id }) => Uint8Array.from(id),
  });
  for await (const rows of pages) {
    for (const row of rows) {
      add(net, row.debit_account, -row.amount);
      add(net, row.credit_account, row.amount);
      if (!Object.hasOwn(kinds, row.kind))
        report({
          accountId: row.credit_account,
          what: `transfer ${uuidText(row.id)}: kind`,
          expected: Object.keys(kinds).join(', '),
          found: row.kind,
        });
    }
    count += rows.length;
  }
  return { net, count };
}

/** Adds the sums of removed rows. Resolves with the number of rows. */
async function addPruned(
  db: Kysely<Database>,
  budgets: BudgetTotals,
  { cost, older }: Pick<RowTotals, 'cost' | 'older'>,
  report: Report,
): Promise<number> {
  let count = 0n;
  const pages = pagesByKey({
    ...byBytes,
    read: (after) => db.selectFrom('pruned_usage').selectAll().where('id', '>', after).orderBy('id'),
    keyOf: ({ id }) => Uint8Array.from(id),
  });
  for await (const rows of pages)
    for (const row of rows) {
      add(cost, row.account_id, row.cost);
      budgets.add({ ...row, started_at: row.day });
      older.add(row);
      refuseLabels(row, (fault) => report({ ...fault, what: `removed usage ${uuidText(row.id)}: ${fault.what}` }));
      count += row.requests;
    }
  return Number(count);
}

const systemIds: ReadonlySet<string> = new Set(Object.values(systemAccounts));

/** M4: credits − debits − usage = available + what is leased, for each account and in total. */
async function compareBalances(
  db: Kysely<Database>,
  net: ReadonlyMap<string, bigint>,
  cost: ReadonlyMap<string, bigint>,
  report: Report,
): Promise<number> {
  let count = 0;
  let total = 0n;
  const unknown = new Set([...net.keys(), ...cost.keys()]);
  const pages = pagesByKey({
    first: '',
    size: pageRows,
    read: (after) =>
      db
        .selectFrom('account')
        .select(['id', 'kind', 'available', 'credit_limit', leased()])
        .where('id', '>', after)
        .orderBy('id'),
    keyOf: ({ id }) => id,
  });
  for await (const rows of pages) {
    for (const { id, kind, available, leased: inSlices, credit_limit } of rows) {
      unknown.delete(id);
      const balance = available + inSlices;
      total += balance;
      const expected = (net.get(id) ?? 0n) - (cost.get(id) ?? 0n);
      if (balance !== expected) report({ accountId: id, what: 'balance', expected, found: balance });
      if ((kind === 0n) === systemIds.has(id))
        report({ accountId: id, what: 'kind', expected: kind === 0n ? 'of the service' : '0', found: kind });
      if (kind === 0n && available < -credit_limit) {
        report({ accountId: id, what: 'balance', expected: `at least ${-credit_limit}`, found: available }); // I2
      }
    }
    count += rows.length;
  }
  for (const id of unknown) report({ accountId: id, what: 'account', expected: 'exists', found: 'missing' });
  // Transfers move money between accounts and create none; the missing total is what has been used.
  const used = [...cost.values()].reduce((sum, value) => sum + value, 0n);
  if (total + used !== 0n)
    report({ accountId: null, what: 'all balances and all usage', expected: 0n, found: total + used });
  return count;
}

/** M8. */
async function refuseOpenRequests(db: Kysely<Database>, report: Report): Promise<void> {
  const rows = await db.selectFrom('open_request').select(['request_id', 'account_id']).limit(differencesMax).execute();
  for (const row of rows) {
    const what = `open request ${uuidText(row.request_id)}`;
    report({ accountId: row.account_id, what, expected: 'none, because no process runs', found: 'open' });
  }
}
