/** Claims of idempotency keys on SQLite, where one process has the store. */
import { join } from 'node:path';
import { testClaims } from './claims.ts';
import { customer, openStore, temporaryFolder } from './fixture.ts';

testClaims(async (t) => {
  const { desk, ledger, ...store } = await openStore(t, join(temporaryFolder(t), 'a.db'));
  await customer({ desk, ledger, ...store }, 'acct_a', 0n);
  return { desk, ledger, owner: ledger.replicaId, otherOwner: undefined };
});
