/** What the tests of budgets share: an account whose keys, members and models have budgets, and processes that come and go. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

import { issueKey } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import { budgetsOf } from '../../src/billing/bill.ts';
import type { Bill } from '../../src/billing/bill.ts';
import { Billing, freeBalancesOf } from '../../src/billing/billing.ts';
import { ApiError } from '../../src/platform/errors.ts';
import { chargedPeriods } from '../../src/store/budget.ts';
import type { Budget, BudgetOwner } from '../../src/store/budget.ts';
import type { SqliteStore } from '../../src/store/sqlite/store.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { customer, temporaryFolder, uuid } from '../store/fixture.ts';
import { bill, receipt } from './bills.ts';

export const accountId = 'acct_a';
export const userId = 'a'.repeat(32);
const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });

/** A process on the file: what is in its memory goes when it ends. */
export class Counter {
  readonly file: string;
  store!: SqliteStore;
  billing!: Billing;

  constructor(file: string) {
    this.file = file;
  }

  async start(): Promise<void> {
    this.store = await openSqliteStore({
      file: this.file,
      onFatal: (error) => {
        throw error;
      },
      free: freeBalancesOf(() => this.billing),
    });
    this.billing = new Billing({
      ledger: this.store.ledger,
      newId: uuid,
      topupUrl: () => 'http://test/topup',
      log: () => assert.fail('nothing is repaired'),
    });
  }

  async newKey(userId: string | null = null): Promise<string> {
    const { row } = issueKey({ accountId, name: 'x', secret, now: 0 });
    await this.store.repositories.createKey({ key: { ...row, userId }, changeId: uuid() });
    return row.id;
  }

  async newMember(userId: string): Promise<void> {
    const { repositories } = this.store;
    const tokenHash = new Uint8Array(32).fill(7);
    const email = 'm@example.com';
    const invited = { id: `inv_${'0'.repeat(32)}`, email, role: 'developer' as const, invitedBy: '', createdAt: 0 };
    await repositories.createInvitation({ ...invited, expiresAt: 1e15, accountId, tokenHash });
    const person = { userId, credentialId: 'b'.repeat(32), name: 'M', passwordHash: 'x' };
    assert.ok(await repositories.joinAnew({ ...person, tokenHash, email, at: 1 }));
  }

  /** As the operation does it. */
  async setBudget(of: BudgetOwner, subject: string, budget: Budget | null, at: number): Promise<void> {
    const { repositories, ledger } = this.store;
    const spent = budget === null ? 0n : await repositories.spentBesideBudget({ of, subject, per: budget.per, at });
    await ledger.setBudget({
      kind: `${of}_budget`,
      subject,
      budget,
      spentBeforeMicrocents: spent!,
      at,
      changeId: uuid(),
    });
  }
}

export async function openCounter(t: TestContext, credit: bigint): Promise<Counter> {
  const counter = new Counter(join(temporaryFolder(t), 'ledger.db'));
  await counter.start();
  t.after(() => counter.store.close());
  await customer(counter.store, accountId, credit);
  return counter;
}

export interface Subject {
  readonly of: BudgetOwner;
  readonly id: string;
  /** Of a key: the member it belongs to. */
  readonly member?: Subject | undefined;
  /** Of a key or an account: its part for one model. */
  readonly ofModel?: Subject | undefined;
  budget: Budget | undefined;
}

export const modelId = 'Org/Model:8b';
const byModel = ({ ofModel }: Subject): ReadonlyMap<string, Budget> | undefined =>
  ofModel?.budget === undefined ? undefined : new Map([[modelId.toLowerCase(), ofModel.budget]]);

export const billOf = (
  key: Subject,
  account: Subject,
  startedAt: number,
  promptTokens: number,
  completionTokensMax: number,
  model = 'model',
) =>
  bill(accountId, promptTokens, completionTokensMax, {
    // As they are now: a request keeps the budgets that it began with.
    key: {
      id: key.id,
      budget: key.budget,
      modelBudgets: byModel(key),
      member: key.member?.budget === undefined ? undefined : { id: key.member.id, budget: key.member.budget },
    },
    account: { id: accountId, budget: account.budget, modelBudgets: byModel(account) },
    model: { id: model },
    startedAt,
  });

export function receiptOf(
  made: Bill,
  promptTokens: number,
  completionTokens: number,
  ending: 'finished' | 'failed' | 'credit',
) {
  const ofOwner = (of: BudgetOwner, isForModel = false) =>
    budgetsOf(made)?.find((one) => one.of === of && (one.modelId !== undefined) === isForModel);
  const perOf = (of: BudgetOwner) => chargedPeriods(ofOwner(of)?.budget.per, ofOwner(of, true)?.budget.per);
  const row = receipt(made, promptTokens, completionTokens, ending);
  const { key, startedAt } = made;
  const memberBudget = ofOwner('member')?.balance.id ?? null;
  const budgets = { keyBudget: perOf('key'), accountBudget: perOf('account'), memberBudget };
  return { ...row, keyId: key.id, modelId: made.model.id, startedAt, endedAt: startedAt, ...budgets };
}

export const refusalOf = async (promise: Promise<unknown>): Promise<ApiError> => {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error;
  }
  return assert.fail('was not refused');
};
