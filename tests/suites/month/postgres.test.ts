import { after, before, test } from 'node:test';
import { makePartitions } from '../../../src/store/postgres/partitions.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { openPostgresStore } from '../../../src/store/postgres/store.ts';
import { model } from '../../month/asked.ts';
import { proveMonth } from '../../month/month.ts';
import { secret } from '../../month/places.ts';
import { statementSpan } from '../../month/timeline.ts';
import { TestService } from '../../support/service.ts';
import { differencesOf } from '../postgres/fixture.ts';
import { PostgresServer } from '../postgres/server.ts';
import { fullMonth } from './size.ts';

let server: PostgresServer;
before(async () => {
  // What survives a crash is for the suite postgres to prove.
  server = await PostgresServer.start({ fsync: 'off' });
});
after(() => server.dispose());

test(`a month of ${fullMonth.requests} requests comes to the same everywhere, to the microcent`, async (t) => {
  const url = await server.createDatabase();
  const service = new TestService({
    config: `storage: env:TEST_DATABASE\n${model}`,
    environment: { TEST_DATABASE: url, TOKENHOUSE_SECRET: secret },
  });
  t.after(() => service.dispose());
  const open = async (free: Parameters<Parameters<typeof proveMonth>[1]['open']>[0]) => {
    const db = kyselyOnPostgres({ url }, 1);
    await makePartitions(db, statementSpan.from);
    await db.destroy();
    const store = await openPostgresStore({ address: { url }, shown: 'the test', free });
    t.after(() => store.close());
    return store;
  };
  await proveMonth(t, { service, open, differences: () => differencesOf(url) }, fullMonth);
});
