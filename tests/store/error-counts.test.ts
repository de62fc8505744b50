/** Counts of errors on SQLite; on PostgreSQL in `tests/suites/postgres/error-counts.test.ts`. */
import { join } from 'node:path';
import { test } from 'node:test';

import { countsErrors } from './count-errors.ts';
import { openStore, temporaryFolder } from './fixture.ts';

test('errors are added up, reported, folded and erased', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await countsErrors(store);
});
