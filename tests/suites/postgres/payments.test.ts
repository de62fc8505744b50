/** Payments on a real PostgreSQL: what tests/payments proves on SQLite, by a replica that leases. */
import { after, before } from 'node:test';

import { paymentClaims } from '../../payments/claims.ts';
import { differencesOf, hold, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

paymentClaims(async (t) => {
  const url = await server.createDatabase();
  const replica = await openReplica(t, url);
  return {
    store: replica.store,
    differences: () => differencesOf(url),
    hold: async (accountId, microcents) => {
      if (!(await hold(replica, accountId, microcents))) throw new Error('there is not enough to be held');
    },
  };
});
