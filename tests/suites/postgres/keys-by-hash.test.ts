import { after, before, test } from 'node:test';
import { keysAreFoundByHash } from '../../store/keys-by-hash.ts';
import { customer, openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => void (server = await PostgresServer.start()));
after(() => server.dispose());

test('keys are found by the hash of either secret; hashes are listed in their order', async (t) => {
  const { store } = await openReplica(t, await server.databaseWithTables());
  await customer(store, 'acct_a', 0n);
  await keysAreFoundByHash(store.repositories, 'acct_a');
});
