import { join } from 'node:path';
import type { TestContext } from 'node:test';

import { differencesOf, MemoryBalances, openStore, temporaryFolder } from '../../store/fixture.ts';
import type { OpenLedger } from './claims.ts';

export const openLedger = async (t: TestContext): Promise<OpenLedger> => {
  const file = join(temporaryFolder(t), 'x.db');
  const free = new MemoryBalances();
  const store = await openStore(t, file, { free });
  return {
    store,
    release: (accountId, microcents) => {
      free.credit(accountId, microcents);
      store.ledger.leases.freed(accountId);
    },
    differences: () => differencesOf(file),
    hold: async (accountId, microcents) => {
      if (free.reserve(accountId, microcents)) return;
      free.credit(accountId, await store.ledger.leases.lease(accountId, microcents));
      if (!free.reserve(accountId, microcents)) throw new Error('there is not enough to be held');
    },
  };
};
