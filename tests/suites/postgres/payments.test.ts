/** Payments on a real PostgreSQL: what tests/payments proves on SQLite, by a replica that leases. */
import { after, before, type TestContext } from 'node:test';

import { paymentClaims, type Books } from '../../payments/claims.ts';
import { moreClaims } from '../../payments/more-claims.ts';
import { differencesOf, hold, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const open = async (t: TestContext): Promise<Books> => {
  const url = await server.createDatabase();
  const replica = await openReplica(t, url);
  return {
    store: replica.store,
    differences: () => differencesOf(url),
    hold: async (accountId, microcents) => {
      if (!(await hold(replica, accountId, microcents))) throw new Error('there is not enough to be held');
    },
  };
};

paymentClaims(open);
moreClaims(open);
