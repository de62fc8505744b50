import { join } from 'node:path';

import { openStore, temporaryFolder, uuid } from '../../store/fixture.ts';
import { endingClaims } from './ending-claims.ts';

endingClaims(async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'store.db'));
  const at = Date.now();
  await store.ledger.createAccount({
    id: 'acct_first',
    name: 'first',
    creditLimitMicrocents: 0n,
    at,
    changeId: uuid(),
  });
  return store;
});
