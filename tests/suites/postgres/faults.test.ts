/** The database goes away, in the worst moments: defined answers, and exact money afterwards (reliability D3 to D5, S1). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql } from 'kysely';

import { kyselyOnPostgres } from '../../../src/store/postgres/dialect.ts';
import { StoreError } from '../../../src/store/store-error.ts';
import { grant, usage } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { assertRight, balanceOf, customer, hold, lockTable, openReplica } from './fixture.ts';
import { ask, serviceOn } from './replica-service.ts';
import { PostgresServer } from './server.ts';
import { Wire } from './wire.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test('D5: a connection that is lost while it commits charges once, and says so', async (t) => {
  const url = await server.databaseWithTables();
  const wire = await Wire.open(server.port);
  t.after(() => wire.close());
  const replica = await openReplica(t, wire.url(url));
  await customer(replica.store, 'acct_a', 10_000n);
  for (let times = 1; times <= 10; times++) {
    assert.ok(await hold(replica, 'acct_a', 100n));
    const row = usage('acct_a', 100n, { clientId: `lost-${times}` });
    wire.loseAnswerTo = `lost-${times}`;
    assert.equal(await replica.store.ledger.settle(row), 'billed');
    assert.equal(wire.lost, times);
  }
  assert.equal(await balanceOf(replica.store, 'acct_a'), 9_000n);

  // A transfer whose answer is lost is unknown to its caller, who asks again with the same key.
  const transfer = grant('acct_a', 500n, 'once');
  wire.loseAnswerTo = 'commit';
  await assert.rejects(
    replica.store.ledger.transfer(transfer),
    (error) => error instanceof StoreError && error.code === 'failed',
  );
  assert.equal(await replica.store.ledger.transfer(transfer), false);
  assert.equal(await balanceOf(replica.store, 'acct_a'), 9_500n);
  await assertRight(url);
});

test('D3: a connection that is lost between two statements of a report fails the report, not the process', async (t) => {
  const url = await server.databaseWithTables();
  const wire = await Wire.open(server.port);
  t.after(() => wire.close());
  const db = kyselyOnPostgres({ url: wire.url(url), password: undefined }, 1);
  t.after(() => db.destroy());
  await db.connection().execute(async (connection) => {
    await sql`select 1`.execute(connection);
    wire.cut();
    await until(async () => {
      try {
        await sql`select 1`.execute(connection);
        return false;
      } catch {
        return true;
      }
    });
  });
  wire.mend();
  await sql`select 1`.execute(db);
});

test('S1: the server is killed under load; what was acknowledged is there, nothing twice, and it goes on', async (t) => {
  const url = await server.databaseWithTables();
  const replicas = [await openReplica(t, url), await openReplica(t, url)];
  await customer(replicas[0]!.store, 'acct_a', 1_000_000n);
  const billed = new Set<string>();
  const others: (readonly [string, unknown])[] = [];
  let goesOn = true;
  const load = replicas.flatMap((replica) =>
    Array.from({ length: 8 }, async () => {
      while (goesOn) {
        try {
          const { epoch } = replica.free;
          if (!(await hold(replica, 'acct_a', 10n))) continue;
          const row = usage('acct_a', 7n, { holdMicrocents: 10n });
          if (replica.free.epoch !== epoch) continue;
          const id = Buffer.from(row.requestId).toString('hex');
          const outcome = await replica.store.ledger.settle(row).catch((error: unknown) => error);
          if (outcome === 'billed') billed.add(id);
          else others.push([id, outcome]);
          if (outcome === 'billed' && replica.free.epoch === epoch) replica.free.credit('acct_a', 3n);
        } catch {
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      }
    }),
  );
  for (let kills = 1; kills <= 3; kills++) {
    const before = billed.size;
    await until(() => billed.size > before + 50, 60_000);
    await server.kill();
    await until(() => replicas.every(({ store }) => store.ledger.silentMs > 1_000), 30_000); // admission is closed then
    await server.resume();
    const down = billed.size;
    await until(() => billed.size > down + 50, 60_000);
  }
  goesOn = false;
  await Promise.all(load);
  const rows = await server.sql(url, `select encode(request_id, 'hex') as id from usage`);
  const there = new Set(rows.map(({ id }) => String(id)));
  assert.deepEqual(
    [...billed].filter((id) => !there.has(id)),
    [],
    'M1: acknowledged, so it is there',
  );
  assert.ok(others.every(([, outcome]) => outcome === 'lost' || outcome instanceof StoreError));
  t.diagnostic(`${billed.size} acknowledged, ${others.length} not, ${there.size} rows`);
  assert.equal(await balanceOf(replicas[0]!.store, 'acct_a'), 1_000_000n - 7n * BigInt(there.size));
  await assertRight(url);
});

test('a server that stops answering fails calls in bounded time, and goes on where it was', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  const { ledger } = replica.store;
  await customer(replica.store, 'acct_a', 1_000n);
  assert.ok(await hold(replica, 'acct_a', 100n));
  server.pause();
  try {
    const row = usage('acct_a', 10n);
    const outcome = await ledger.settle(row).catch((error: unknown) => error);
    assert.ok(outcome instanceof StoreError && outcome.code === 'failed');
    assert.ok(ledger.silentMs > 1_000);
    await assert.rejects(ledger.probe());
    await assert.rejects(ledger.leases.lease('acct_a', 10_000n));
  } finally {
    server.unpause();
  }
  await until(() => ledger.silentMs < 1_000, 30_000);
  const again = usage('acct_a', 10n);
  await until(async () => await hold(replica, 'acct_a', 100n).catch(() => false), 30_000);
  assert.equal(await ledger.settle(again), 'billed');
  await assertRight(url);
});

test('D3: while settlements wait for a lock and the rest answers, the service is not ready, and is again without a request', async (t) => {
  const url = await server.databaseWithTables();
  const service = serviceOn(url);
  t.after(() => service.dispose());
  await service.start();
  const readiness = (): Promise<readonly number[]> =>
    Promise.all([service.url, service.accountUrl].map(async (host) => (await fetch(`${host}/readyz`)).status));
  const statusOfOne = async (): Promise<number> => {
    const { status, body } = await service.chat(ask);
    await body?.cancel();
    return status;
  };
  await until(async () => (await statusOfOne()) === 200, 30_000);
  assert.deepEqual(await readiness(), [200, 200]);
  const release = await lockTable(t, url, 'usage');
  await until(async () => {
    const [status, ready] = await Promise.all([statusOfOne(), readiness()]);
    return status === 500 && ready.every((each) => each === 503);
  }, 60_000);
  await release();
  await until(async () => (await readiness()).every((status) => status === 200), 30_000);
  assert.equal(await statusOfOne(), 200);
});
