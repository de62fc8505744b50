/** The history of the service on a real PostgreSQL; the same as on SQLite. */
import { after, before, test } from 'node:test';

import { keepsHistory } from '../../store/keep-history.ts';
import { openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test('what happened is added up in every step, reported, and removed when it is not shown any more', async (t) => {
  const { store } = await openReplica(t, await server.databaseWithTables());
  await keepsHistory(store);
});
