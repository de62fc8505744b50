/** What the tests of billing share: bills, receipts, and billing over a real SQLite ledger. */
import type { TestContext } from 'node:test';

import { Billing, freeBalancesOf } from '../../src/billing/billing.ts';
import { type Bill } from '../../src/billing/bill.ts';
import type { Receipt } from '../../src/billing/hold.ts';
import type { RepairLog } from '../../src/billing/repair.ts';
import { costMicrocents } from '../../src/catalog/pricing.ts';
import type { Usage } from '../../src/generation/event.ts';
import type { Ledger } from '../../src/store/ledger.ts';
import type { SqliteStore } from '../../src/store/sqlite/store.ts';
import { openStore, temporaryFolder, usage, uuid } from '../store/fixture.ts';

/** Microcents per million tokens: 2 and 7 microcents for a token. */
export const prices = { input: 2_000_000n, output: 7_000_000n, cacheRead: 1_000_000n };

export const used = (promptTokens: number, completionTokens: number): Usage => ({
  promptTokens,
  cachedTokens: 0,
  completionTokens,
  reasoningTokens: 0,
});
export const costOf = (promptTokens: number, completionTokens: number, at = prices): bigint =>
  costMicrocents(used(promptTokens, completionTokens), at);

export function bill(
  accountId: string,
  promptTokens: number,
  completionTokensMax: number,
  changes: Partial<Bill> = {},
): Bill {
  return {
    id: uuid(),
    account: { id: accountId },
    key: { id: 'key_000000000000' },
    model: { id: 'model' },
    startedAt: Date.now(),
    plan: null,
    prices,
    promptTokensMax: promptTokens,
    completionTokensMax,
    ...changes,
  };
}

export function receipt(
  { id, account, prices: at }: Bill,
  promptTokens: number,
  completionTokens: number,
  ending: Receipt['ending'],
): Receipt {
  return usage(account.id, 0n, {
    requestId: id,
    ending,
    promptTokens,
    completionTokens,
    finish: ending === 'finished' ? 'stop' : null,
    inputPrice: at.input,
    outputPrice: at.output,
    cacheReadPrice: at.cacheRead,
  });
}

export interface Counter {
  readonly file: string;
  readonly store: SqliteStore;
  readonly billing: Billing;
  /** What repair has reported. */
  readonly repairs: Parameters<RepairLog>[0][];
}

/** Billing over a ledger on a real file. `between` may stand in between, to make its answers go astray. */
export async function openCounter(
  t: TestContext,
  between: (ledger: Ledger) => Ledger = (ledger) => ledger,
  backlogMax = 10_000,
): Promise<Counter> {
  const file = `${temporaryFolder(t)}/ledger.db`;
  const store = await openStore(t, file, {
    free: freeBalancesOf(() => billing),
  });
  const repairs: Counter['repairs'] = [];
  const billing: Billing = new Billing({
    ledger: between(store.ledger),
    newId: uuid,
    topupUrl: () => 'http://test/topup',
    log: (event) => repairs.push(event),
    backlogMax,
  });
  return { file, store, billing, repairs };
}
