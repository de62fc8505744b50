/** Two versions side by side: what a later one does to the tables beside this one must not stop it (docs/postgresql.md). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { grant, openRequest, usage, uuid } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { assertRight, balanceOf, customer, hold, openReplica, type Replica } from './fixture.ts';
import { report } from '../../support/workers.ts';
import { asked, serviceOn, stream } from './replica-service.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

const tables = async (url: string): Promise<readonly string[]> =>
  (
    await server.sql(
      url,
      `select relname as name from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
         and not relispartition and relname not like 'kysely%' order by 1`,
    )
  ).map(({ name }) => String(name));

/** As a migration of a later version would, in one transaction that gives way to readers. */
async function addColumns(url: string): Promise<void> {
  const alterations = (await tables(url)).map((name) => `alter table "${name}" add column later text;`).join('\n');
  for (let tries = 1; ; tries++) {
    try {
      await server.sql(
        url,
        `begin; set local lock_timeout = '2s';\n${alterations}\n
         insert into kysely_migration (name, timestamp) values ('999-future', '2030-01-01'); commit`,
      );
      return;
    } catch (error) {
      if (tries === 20 || !/lock timeout|deadlock/.test(String(error))) throw error;
    }
  }
}

/** Every statement of the ledger, and each kind of the repositories'. */
async function everything({ store, free }: Replica, accountId: string): Promise<void> {
  const { ledger, repositories } = store;
  await customer(store, accountId, 1_000n);
  assert.ok(await hold({ store, free }, accountId, 100n));
  const row = usage(accountId, 60n, { holdMicrocents: 100n, clientId: 'theirs' });
  assert.equal(await ledger.settle(row), 'billed');
  assert.equal(await ledger.settle(row), 'billed');
  free.credit(accountId, 40n);
  assert.equal((await ledger.readBack(row.requestId))?.costMicrocents, 60n);
  const running = openRequest(accountId, 10n);
  ledger.open(running);
  await until(async () => (await server.sql(databaseOf(store), 'select 1 from open_request')).length === 1, 30_000);
  await ledger.settle(usage(accountId, 0n, { requestId: running.requestId, ending: 'failed', finish: null }));
  await ledger.probe();
  await ledger.setCreditLimit(accountId, 5n, Date.now(), uuid());
  await ledger.setAccountStatus(accountId, 'suspended', Date.now(), uuid());
  await ledger.setAccountStatus(accountId, 'active', Date.now(), uuid());
  await repositories.planAccount({ accountId, plan: 'some', at: Date.now(), changeId: uuid() });
  await repositories.addLimitWindows({
    changes: [{ subject: accountId, kind: 'quota', lengthMs: 1_000, startsAt: 0, used: 1 }],
  });
  assert.equal((await repositories.listUsage({ accountId })).length, 2);
  assert.equal((await repositories.findUsage({ accountId, id: row.publicId })).length, 1);
  assert.equal((await repositories.listTransfers({ accountId })).length, 1);
  assert.equal((await repositories.sumUsage({ accountId, from: 0, to: Date.now() + 60_000 }))[0]?.requests, 2);
  await repositories.recomputeUsageHours({ now: Date.now() });
  const claim = {
    accountId,
    keyHash: new Uint8Array(32),
    fingerprint: new Uint8Array(32).fill(1),
    owner: store.ledger.replicaId,
  };
  const times = { now: Date.now(), expiredAt: 0 };
  const claimed = await repositories.claimRequest({ ...claim, ...times, requestId: uuid(), publicId: 'req_0' });
  assert.equal(claimed.outcome, 'claimed');
  await repositories.keepItems({ items: [{ accountId, id: 'item', keptAt: Date.now(), body: '{}' }] });
  const bounds = { filesMax: 1, bytesMax: 1 };
  assert.equal(
    await repositories.beginFile({ id: accountId.padEnd(32, '0'), accountId, bytesMax: 1, at: Date.now(), bounds }),
    true,
  );
  await store.tidy();
}

const urls = new WeakMap<object, string>();
const databaseOf = (store: Replica['store']): string => urls.get(store)!;

test('every statement goes on when a later version adds columns to every table', async (t) => {
  const url = await server.createDatabase();
  const [one, other] = [await openReplica(t, url), await openReplica(t, url)];
  for (const { store } of [one, other]) urls.set(store, url);
  let loads = 0;
  const feed = await one.store.follow({
    loadAll: (repositories) => (loads++, repositories.loadKeys({}).then(() => {})),
    follow: (_changes, repositories) => repositories.getAccount({ accountId: 'acct_1' }).then(() => {}),
  });
  t.after(() => feed.close());
  // All are prepared on each connection before.
  await everything(one, 'acct_1');
  await everything(other, 'acct_2');
  let settled = 0;
  let goesOn = true;
  await customer(one.store, 'acct_load', 10n ** 9n);
  const load = [one, other].map(async (replica) => {
    while (goesOn) {
      assert.ok(await hold(replica, 'acct_load', 10n));
      assert.equal(await replica.store.ledger.settle(usage('acct_load', 10n)), 'billed');
      settled++;
    }
  });
  await until(() => settled > 50, 30_000);
  await addColumns(url);
  const before = settled;
  await until(() => settled > before + 50, 30_000);
  goesOn = false;
  await Promise.all(load);
  await everything(one, 'acct_3');
  await everything(other, 'acct_4');
  assert.equal(await balanceOf(one.store, 'acct_load'), 10n ** 9n - 10n * BigInt(settled));
  assert.ok(await feed.catchUp());
  assert.equal(loads, 1);
  assert.deepEqual([one.free.epoch, other.free.epoch], [0, 0], 'no replica expired');
  // The dead of either version are recorded by a replica that is alive.
  const orphan = openRequest('acct_1', 10n);
  one.store.ledger.open(orphan);
  await until(async () => (await server.sql(url, 'select 1 from open_request')).length === 1, 30_000);
  await one.store.close();
  assert.deepEqual(await other.store.ledger.readBack(orphan.requestId), { costMicrocents: 0n, ending: 'crashed' });
  assert.equal(await other.store.ledger.transfer(grant('acct_load', 1n)), true);
  await assertRight(url);
});

test('the service goes on while the tables change below it, in the middle of answers; it cannot be started again', async (t) => {
  const url = await server.createDatabase();
  const service = serviceOn(url);
  t.after(() => service.dispose());
  await service.start();
  assert.equal((await asked(service)).status, 200);
  const answers = await Promise.all(Array.from({ length: 4 }, () => service.chat(stream('paced'))));
  const texts = answers.map((answer) => answer.text());
  await addColumns(url);
  for (const text of await Promise.all(texts)) assert.match(text, /"finish_reason":"stop".*data: \[DONE\]\n\n$/s);
  assert.equal((await asked(service)).status, 200);
  await report(service, { kind: 'create_key', accountId: undefined, name: 'later', expiresAt: undefined });
  const rows = await server.sql(url, `select ending, count(*)::int as n from usage group by 1`);
  assert.deepEqual(rows, [{ ending: 'finished', n: 6 }]);
  assert.equal(await service.stop(), 0);
  await assert.rejects(service.start(), /written by a newer version of Tokenhouse: it has 999-future/);
  await assertRight(url, false);
});
