/** The history of the service on SQLite; on PostgreSQL in `tests/suites/postgres/history.test.ts`. */
import { join } from 'node:path';
import { test } from 'node:test';

import { openStore, temporaryFolder } from './fixture.ts';
import { keepsHistory } from './keep-history.ts';

test('what happened is added up in every step, reported, and removed when it is not shown any more', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await keepsHistory(store);
});
