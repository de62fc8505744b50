/** Claims of idempotency keys on SQLite, where one process has the store. */
import { join } from 'node:path';
import { testClaims } from './claims.ts';
import { customer, openStore, temporaryFolder } from './fixture.ts';

testClaims(async (t) => {
  const { repositories, ledger, ...store } = await openStore(t, join(temporaryFolder(t), 'a.db'));
  await customer({ repositories, ledger, ...store }, 'acct_a', 0n);
  return { repositories, ledger, owner: ledger.replicaId, otherOwner: undefined };
});
