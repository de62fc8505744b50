/** Operators who view an account, on a real PostgreSQL; the same as on SQLite. */
import { after, before } from 'node:test';

import { viewClaims } from '../../account-api/view-claims.ts';
import { openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

viewClaims(async (t) => (await openReplica(t, await server.databaseWithTables())).store);
