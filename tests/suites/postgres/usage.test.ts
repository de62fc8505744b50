/** Reports on PostgreSQL, as in tests/usage. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { makeAccounts } from '../../usage/accounts.ts';
import { compareWithRows, keys, users } from '../../usage/sums.ts';
import { openReplica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test('reports are what the rows come to, whatever has been added up, in every zone', async (t) => {
  const url = await server.createDatabase();
  await openReplica(t, url);
  const db = kyselyOnPostgres({ url }, 2);
  t.after(() => db.destroy());
  const owned = keys.map((id) => ({ id, accountId: 'acct_a', userId: users[id] ?? null }));
  await makeAccounts(db, ['acct_a', 'acct_b'], owned);
  const seed = Math.floor(Math.random() * 2 ** 31);
  t.diagnostic(`seed ${seed}`);
  await compareWithRows(db, seed, 15);
  assert.ok(await db.selectFrom('usage_day').select('day').executeTakeFirst(), 'days were added up');

  const wrong = async () =>
    (await verifyLedger(db, { owned: true })).differences.filter(({ what }) => what.startsWith('usage_'));
  assert.deepEqual(await wrong(), []);
  await server.sql(url, 'update usage_day set cost = cost + 1 where day = (select min(day) from usage_day)');
  const found = await wrong();
  assert.ok(found.length > 0 && found.every(({ what }) => /^usage_day .*: cost$/.test(what)));
});
