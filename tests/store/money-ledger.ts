/** A ledger with rows in the tables that speak of money, as the service writes them. */
import type { Kysely } from 'kysely';
import { issueKey } from '../../src/accounts/key.ts';
import { closePromotions } from '../../src/billing/payments/promotions.ts';
import { uuidMaker } from '../../src/platform/ids/uuid.ts';
import { balanceAt } from '../../src/store/budget.ts';
import type { Database } from '../../src/store/database.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { recomputeUsageDays, recomputeUsageHours } from '../../src/store/reports/roll-ups.ts';
import { removeUsage, type RemovalCursor } from '../../src/store/retention/removal.ts';
import { paperOn, refunded } from '../billing/invoices/invoicing.ts';
import type { OpenLedger } from '../billing/payments/claims.ts';
import { payAndReturn } from '../billing/payments/pay-and-return.ts';
import { grant, usage, uuid } from './fixture.ts';
import { dayMs, hourMs, secretOf, signUntil } from './heads.ts';

const accountId = 'acct_a';
/** The first day of requests; its month ends with it. In the future: papers are of payments from after the first start. */
const start = Date.UTC(2036, 9, 31);
/** The clock of its store. */
export const moneyNow = start + 2 * dayMs + 3 * hourMs;

/** Of `acct_a`: payments, a promotion that ended, budgets, statements, and requests, of which those of the first day have no details any more. */
export async function makeMoneyLedger(store: OpenLedger['store'], db: Kysely<Database>): Promise<void> {
  const { ledger, repositories } = store;
  const [at, changeId] = [start - 14 * dayMs, uuid()];
  await ledger.createAccount({ id: accountId, name: 'A', creditLimitMicrocents: 0n, at, changeId });
  await ledger.transfer({ ...grant(accountId, 10n ** 12n), at });
  const promotion = { ...grant(accountId, 5_000n), at: start + hourMs };
  await ledger.transfer({
    ...promotion,
    recording: [{ name: 'promotion', values: [promotion.id, accountId, 5_000n, promotion.at, start + dayMs] }],
  });
  const { row: key } = issueKey({ accountId, name: 'x', secret: secretOf('s'.repeat(32)), now: start });
  await repositories.createKey({ key, budget: { amountMicrocents: 10_000n, per: 'total' }, changeId: uuid() });
  await ledger.setBudget({
    kind: 'account_budget',
    subject: accountId,
    budget: { amountMicrocents: 50_000n, per: 'month' },
    spentBeforeMicrocents: 0n,
    at: moneyNow,
    changeId: uuid(),
  });
  for (const id of [`${key.id}:total`, balanceAt(accountId, 'month', moneyNow).id]) await ledger.leases.lease(id, 1n);
  const spend = async (at: number, cost: bigint, changes: Partial<UsageRow> = {}): Promise<UsageRow> => {
    const requestId = uuidMaker(() => at)();
    const times = { startedAt: at, endedAt: at + 60, firstTokenMs: 20, totalMs: 60 };
    const row = usage(accountId, cost, {
      requestId,
      keyId: key.id,
      ...times,
      tier: 'default',
      tags: '["red"]',
      ...changes,
    });
    await ledger.settle(row);
    return row;
  };
  for (const hour of [3, 4, 27, 28]) await spend(start + hour * hourMs, BigInt(100 + hour));
  const late = await spend(start + 30 * hourMs, 9n);
  await spend(moneyNow - hourMs, 5n, { keyBudget: 'total', accountBudget: 'month' });
  const paper = paperOn(store, moneyNow);
  await refunded(paper, late, 9n, moneyNow - 1);
  await payAndReturn(store);
  await closePromotions({ ledger, repositories, now: () => moneyNow, newId: uuid });
  while (await paper.invoices.issueDue());
  await recomputeUsageHours(db, { now: moneyNow });
  while ((await recomputeUsageDays(db)).isMore);
  await signUntil(db, start + dayMs + hourMs);
  await signUntil(db, moneyNow);
  await db
    .updateTable('usage_retention')
    .set({ kept_since: start + dayMs, removed_at: null })
    .execute();
  await db
    .updateTable('account')
    .set((is) => ({ available: is('available', '-', 3n) }))
    .where('id', '=', accountId)
    .execute();
  await db.insertInto('credit_lease').values({ replica_id: uuid(), account_id: accountId, remaining: 3n }).execute();
  const balance = `${key.id}:total`;
  await db
    .updateTable('budget_balance')
    .set((is) => ({ available: is('available', '-', 2n) }))
    .where('id', '=', balance)
    .execute();
  await db.insertInto('budget_lease').values({ replica_id: uuid(), balance_id: balance, remaining: 2n }).execute();
  let after: RemovalCursor | undefined;
  for (let state = 'more'; state === 'more';)
    ({ state, next: after } = await removeUsage(db, { after, now: moneyNow }));
}
