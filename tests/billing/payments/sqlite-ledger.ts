import { join } from 'node:path';
import type { TestContext } from 'node:test';

import { differencesOf, openStore, temporaryFolder } from '../../store/fixture.ts';
import type { OpenLedger } from './claims.ts';

/** Free balances as billing keeps them, in a few lines. */
export const openLedger = async (t: TestContext): Promise<OpenLedger> => {
  const file = join(temporaryFolder(t), 'x.db');
  const free = new Map<string, bigint>();
  const credit = (id: string, microcents: bigint): unknown => free.set(id, (free.get(id) ?? 0n) + microcents);
  const reserve = (id: string, microcents: bigint): boolean => {
    if ((free.get(id) ?? 0n) < microcents) return false;
    credit(id, -microcents);
    return true;
  };
  const store = await openStore(t, file, { free: { credit, reserve } });
  return {
    store,
    differences: () => differencesOf(file),
    hold: async (accountId, microcents) => {
      if (reserve(accountId, microcents)) return;
      credit(accountId, await store.ledger.lease(accountId, microcents));
      if (!reserve(accountId, microcents)) throw new Error('there is not enough to be held');
    },
  };
};
