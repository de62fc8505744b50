/** Counts of errors on a real PostgreSQL; the same as on SQLite. */
import { after, before, test } from 'node:test';

import { countsErrors } from '../../store/count-errors.ts';
import { openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test('errors are added up, reported, folded and erased', async (t) => {
  const { store } = await openReplica(t, await server.databaseWithTables());
  await countsErrors(store);
});
