/** The ledger on a real PostgreSQL, by one replica: what the tests of tests/store prove on SQLite. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { publicIdOf } from '../../../src/platform/ids/uuid.ts';
import { systemAccounts } from '../../../src/store/ledger.ts';
import { migrate, migrationNames } from '../../../src/store/migrations/migrate.ts';
import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { openPostgresStore } from '../../../src/store/postgres/store.ts';
import { StoreError } from '../../../src/store/store-error.ts';
import { chargeback, grant, openRequest, usage, uuid } from '../../store/fixture.ts';
import { rowsAreJudgedAlike, withoutChecks } from '../../store/judged-rows.ts';
import { until } from '../../support/service.ts';
import { assertRight, balanceOf, customer, hold, openReplica, soon } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const refused = (code: StoreError['code']) => (error: unknown) => error instanceof StoreError && error.code === code;

test('three replicas that start at once bring an empty database up to date once', async (t) => {
  const url = await server.createDatabase();
  const replicas = await Promise.all([1, 2, 3].map(() => openReplica(t, url)));
  const ran = replicas.map(({ store }) => store.migrated.length).toSorted((one, other) => one - other);
  assert.deepEqual(ran, [0, 0, migrationNames().length]);
  await assertRight(url);
});

test('a database of a newer version is refused in words, untouched', async (t) => {
  const url = await server.databaseWithTables();
  await (await openReplica(t, url)).store.close();
  await server.sql(url, `insert into kysely_migration (name, timestamp) values ('999-future', '2030-01-01')`);
  await assert.rejects(
    openPostgresStore({ address: { url }, shown: 'the test' }),
    (error) => refused('unusable')(error) && /newer version of Tokenhouse: it has 999-future/.test(String(error)),
  );
});

test('what cannot be used is refused in words', async () => {
  const opening = (url: string) => openPostgresStore({ address: { url }, shown: 'the test' });
  await assert.rejects(opening(server.url('nowhere')), /the database does not exist/);
  await assert.rejects(opening('postgres://tokenhouse@127.0.0.1:1/x'), /the test cannot be reached: .*Check that/);
  await server.sql('postgres', `create database latin encoding 'LATIN1' template template0`);
  await assert.rejects(opening(server.url('latin')), /encoding LATIN1/);
});

test('a settlement is durable, debits once however often it is sent, and never more than is leased', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  const { ledger } = replica.store;
  await customer(replica.store, 'acct_a', 1000n);
  await customer(replica.store, 'acct_b', 1000n);
  assert.ok(await hold(replica, 'acct_a', 100n));
  const row = usage('acct_a', 60n, { holdMicrocents: 100n });
  const outcomes = await Promise.all([ledger.settle(row), ledger.settle(row), ledger.settle(row)]);
  assert.deepEqual(outcomes, ['billed', 'billed', 'billed']); // M3
  assert.equal(await ledger.settle(row), 'billed');
  assert.deepEqual(await ledger.readBack(row.requestId), { costMicrocents: 60n, ending: 'finished' });
  assert.equal(await ledger.readBack(uuid()), undefined);
  assert.equal(await balanceOf(replica.store, 'acct_a'), 940n);

  const other = usage('acct_b', 1n);
  assert.equal(await ledger.settle(other), 'lost', 'nothing is charged to a lease that is not there (M6)');
  assert.equal(await ledger.readBack(other.requestId), undefined);
  const free = usage('acct_b', 0n, { ending: 'failed', finish: null });
  assert.equal(await ledger.settle(free), 'billed', 'what costs nothing needs no lease');
  await assertRight(url);
});

test('a bad row fails alone, and its neighbours are written', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  const { ledger } = replica.store;
  await customer(replica.store, 'acct_a', 1000n);
  assert.ok(await hold(replica, 'acct_a', 500n));
  const good = Array.from({ length: 5 }, () => usage('acct_a', 10n));
  const bad = [
    usage('acct_a', 10n, { holdMicrocents: 9n }), // M2
    usage('acct_a', 10_000n), // more than is leased
    usage('acct_a', 10n, { cachedTokens: 11 }),
  ];
  const settled = await Promise.allSettled([...good, ...bad].map((row) => ledger.settle(row)));
  assert.deepEqual(
    settled.map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as StoreError).code)),
    [...good.map(() => 'billed'), ...bad.map(() => 'invalid')],
  );
  assert.equal(await balanceOf(replica.store, 'acct_a'), 950n);
  await assertRight(url);
});

test('D9: no label can fail a settlement', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  await customer(replica.store, 'acct_a', 10n);
  assert.ok(await hold(replica, 'acct_a', 1n));
  const odd = 'a\0b\ud800c"\\,{}\n\u{1F600}';
  const row = usage('acct_a', 1n, { clientId: odd, modelId: odd, finish: odd, backend: odd, tags: odd });
  assert.equal(await replica.store.ledger.settle(row), 'billed');
  const [found] = await replica.store.repositories.listUsage({ accountId: 'acct_a' });
  assert.equal(found?.tags, 'a\ufffdb\ufffdc"\\,{}\n\u{1F600}');
  assert.deepEqual(found?.requestId, row.requestId);
});

test('money beyond 2^53 is exact', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  const much = 2n ** 60n + 1n;
  await customer(replica.store, 'acct_a', much);
  assert.ok(await hold(replica, 'acct_a', 3n));
  assert.equal(await replica.store.ledger.settle(usage('acct_a', 3n)), 'billed');
  assert.equal(await balanceOf(replica.store, 'acct_a'), much - 3n);
  await assertRight(url);
});

test('M7: the same idempotency key moves money once, and stands for one movement only', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await openReplica(t, url), await openReplica(t, url)];
  await customer(one.store, 'acct_a', 0n);
  const twins = await Promise.all(
    [one, two, one, two].map(({ store }) => store.ledger.transfer({ ...grant('acct_a', 7n, 'key'), id: uuid() })),
  );
  assert.equal(twins.filter(Boolean).length, 1);
  assert.equal(await balanceOf(two.store, 'acct_a'), 7n);
  await assert.rejects(one.store.ledger.transfer(grant('acct_a', 8n, 'key')), refused('conflict'));
  await assert.rejects(one.store.ledger.transfer(grant('acct_none', 8n)), refused('not_found'));
  await assert.rejects(one.store.ledger.transfer(chargeback('acct_a', 8n)), refused('insufficient'));
  await assertRight(url);
});

test('a debit takes what is idle in leases, and never what is held', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await openReplica(t, url), await openReplica(t, url)];
  await customer(one.store, 'acct_a', 1000n);
  for (const replica of [one, two]) assert.ok(await hold(replica, 'acct_a', 100n));
  await assert.rejects(one.store.ledger.transfer(chargeback('acct_a', 801n)), refused('insufficient'));
  const debit = chargeback('acct_a', 800n);
  assert.ok(await soon(true, () => one.store.ledger.transfer(debit).catch(() => false)));
  assert.equal(await two.store.ledger.settle(usage('acct_a', 100n)), 'billed');
  assert.equal(await one.store.ledger.settle(usage('acct_a', 100n)), 'billed');
  assert.equal(await balanceOf(one.store, 'acct_a'), 0n);
  await assertRight(url);
});

test('a credit limit is spendable, and is not taken away from those who use it', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  const { ledger } = replica.store;
  await customer(replica.store, 'acct_a', 0n);
  assert.ok(!(await hold(replica, 'acct_a', 100n)));
  await ledger.setCreditLimit('acct_a', 300n, Date.now(), uuid());
  assert.ok(await hold(replica, 'acct_a', 100n));
  assert.equal(await ledger.settle(usage('acct_a', 100n)), 'billed');
  await ledger.setCreditLimit('acct_a', 100n, Date.now(), uuid());
  await assert.rejects(ledger.setCreditLimit('acct_a', 99n, Date.now(), uuid()), refused('insufficient'));
  assert.equal(await balanceOf(replica.store, 'acct_a'), -100n);
  await assertRight(url);
});

test('M7: usage and transfer refuse to be changed, deleted or emptied', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  await customer(replica.store, 'acct_a', 10n);
  assert.ok(await hold(replica, 'acct_a', 1n));
  await replica.store.ledger.settle(usage('acct_a', 1n));
  for (const [table, column] of [
    ['usage', 'account_id'],
    ['transfer', 'kind'],
  ] as const) {
    for (const statement of [
      `update ${table} set ${column} = 'x'`,
      `delete from ${table}`,
      `truncate ${table} cascade`,
      `insert into ${table} select * from ${table} on conflict (${table === 'usage' ? 'request_id' : 'id'}) do update set ${column} = 'x'`,
    ])
      await assert.rejects(server.sql(url, statement), new RegExp(`${table} is immutable`), statement);
    const rows = await server.sql(url, `select 1 from ${table}`);
    assert.equal(rows.length, 1);
  }
  for (const statement of [
    `update account set available = -1 where id = 'acct_a'`,
    `update credit_lease set remaining = -1`, // M2
  ])
    await assert.rejects(server.sql(url, statement), /violates check constraint/, statement);
  await assert.rejects(
    server
      .sql(url, `update account set available = available + 1 where id = '${systemAccounts.cash}'`)
      .then(async () => {
        await assertRight(url);
      }),
    /balance/,
    'verify sees one microcent',
  );
});

test('who leaves gives everything back; what it was running is recorded as crashed, uncharged', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await openReplica(t, url), await openReplica(t, url)];
  await customer(one.store, 'acct_a', 1000n);
  assert.ok(await hold(one, 'acct_a', 100n));
  const request = openRequest('acct_a', 100n);
  one.store.ledger.open(request);
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 1);
  await one.store.close();
  assert.deepEqual(await two.store.ledger.readBack(request.requestId), { costMicrocents: 0n, ending: 'crashed' }); // M8
  const [found] = await two.store.repositories.listUsage({ accountId: 'acct_a' });
  assert.equal(found?.publicId, publicIdOf(request.requestId));
  assert.deepEqual(await server.sql(url, 'select 1 from credit_lease'), []);
  assert.ok(await hold(two, 'acct_a', 1000n));
  two.free.credit('acct_a', 1000n);
  await two.store.close();
  await assertRight(url, false);
});

test('sums by the hour are the same from usage and from usage_hour, and two jobs at once write them once', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await openReplica(t, url), await openReplica(t, url)];
  await customer(one.store, 'acct_a', 1000n);
  assert.ok(await hold(one, 'acct_a', 500n));
  const now = Date.now();
  const hourMs = 3_600_000;
  for (let hours = 4; hours >= 0; hours--) {
    const at = now - hours * hourMs;
    await one.store.ledger.settle(usage('acct_a', BigInt(10 + hours), { startedAt: at, endedAt: at }));
  }
  const span = { from: now - 10 * hourMs, to: now + hourMs } as const;
  const before = await one.store.repositories.sumUsage({ ...span, by: ['day'] });
  const written = await Promise.all(
    [one, two, one, two].map(({ store }) => store.repositories.recomputeUsageHours({ now: now + 2 * hourMs })),
  );
  assert.ok(Math.max(...written.map((one) => one.written)) >= 5);
  assert.deepEqual(await one.store.repositories.sumUsage({ ...span, by: ['day'] }), before);
  const [total] = await two.store.repositories.sumUsage(span);
  assert.deepEqual([total?.requests, total?.costMicrocents], [5, 60n]);
  await assertRight(url);
});

test('verification finds the rows of usage that have a fault, and adds up as on SQLite', async (t) => {
  const db = kyselyOnPostgres({ url: await server.createDatabase() }, 1);
  t.after(() => db.destroy());
  await migrate(db, 'postgres');
  await withoutChecks(db, '(like usage)');
  await rowsAreJudgedAlike(db);
});
