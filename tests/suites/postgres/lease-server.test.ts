/** The database as the lease server of each of its replicas. */
import { after, before } from 'node:test';
import { Session } from '../../../src/store/postgres/connection.ts';
import { postgresLeaseServer } from '../../../src/store/postgres/lease-server.ts';
import { Settlements } from '../../../src/store/postgres/settlements.ts';
import { register, returnLeases } from '../../../src/store/postgres/statements.ts';
import { uuid } from '../../store/fixture.ts';
import { describeLeaseServer, type LeaseClient } from '../../store/lease-server-contract.ts';
import { assertRight, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

describeLeaseServer('PostgreSQL', async (t) => {
  const url = await server.databaseWithTables();
  const { store } = await openReplica(t, url);
  return {
    ledger: store.ledger,
    check: () => assertRight(url),
    join: async (): Promise<LeaseClient> => {
      const replicaId = uuid();
      const session = new Session({ address: { url } });
      t.after(() => session.close());
      const hour = `heartbeat_at = heartbeat_at + 3600000`; // it lives as long as the test
      await session.query(register, [replicaId], 10_000);
      await session.query({ text: `update replica set ${hour} where id = $1` }, [replicaId], 10_000);
      const settlements = new Settlements({ session, replica: () => replicaId, onBatch: undefined });
      return {
        leaseServer: postgresLeaseServer(session, () => replicaId),
        settle: (row) => settlements.settle(row),
        end: async () => {
          await session.query({ text: 'delete from replica where id = $1' }, [replicaId], 10_000);
          await session.query(returnLeases, [], 10_000);
        },
      };
    },
  };
});
