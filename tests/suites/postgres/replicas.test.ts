/** Several ledgers on one database: nothing is overspent, nothing stranded, and who has expired charges nothing. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import pg from 'pg';
import type { UsageRow } from '../../../src/store/ledger.ts';
import { clientConfig, type Run } from '../../../src/store/postgres/connection.ts';
import { move } from '../../../src/store/postgres/run-steps.ts';
import { chargeback, grant, usage } from '../../store/fixture.ts';
import { until } from '../../support/service.ts';
import { assertRight, balanceOf, customer, hold, openReplica, soon, type Replica } from './fixture.ts';
import { PostgresServer } from './server.ts';

let server: PostgresServer;
before(async () => {
  server = await PostgresServer.start();
});
after(() => server.dispose());

test('a balance for 20 requests, 1000 offered to three ledgers at once: exactly 20', async (t) => {
  const url = await server.databaseWithTables();
  const replicas = await Promise.all([1, 2, 3].map(() => openReplica(t, url)));
  await customer(replicas[0]!.store, 'acct_a', 2000n);
  const offered = Array.from({ length: 1000 }, (_, index) => replicas[index % 3]!);
  const outcomes = await Promise.all(
    offered.map(async (replica) => {
      if (!(await hold(replica, 'acct_a', 100n))) return 'refused';
      return await replica.store.ledger.settle(usage('acct_a', 100n));
    }),
  );
  const billed = outcomes.filter((one) => one === 'billed').length;
  assert.equal(outcomes.filter((one) => one === 'refused').length, 1000 - billed);
  assert.ok(billed > 0 && billed <= 20, String(billed));
  // Of two who need the last of it at the same moment, both may be refused; who comes again is served.
  for (let count = billed; count < 20; count++) {
    assert.ok(await soon(true, () => hold(replicas[0]!, 'acct_a', 100n)));
    assert.equal(await replicas[0]!.store.ledger.settle(usage('acct_a', 100n)), 'billed');
  }
  assert.ok(!(await hold(replicas[0]!, 'acct_a', 100n)));
  t.diagnostic(`${billed} in the crowd`);
  assert.equal(await balanceOf(replicas[0]!.store, 'acct_a'), 0n);
  await assertRight(url);
});

test('remainders that three replicas hold apart are brought together for one who needs them', async (t) => {
  const url = await server.databaseWithTables();
  const replicas = await Promise.all([1, 2, 3].map(() => openReplica(t, url)));
  await customer(replicas[0]!.store, 'acct_a', 300n);
  for (const replica of replicas) {
    assert.ok(await hold(replica, 'acct_a', 100n));
    assert.equal(await replica.store.ledger.settle(usage('acct_a', 60n, { holdMicrocents: 100n })), 'billed');
    replica.free.credit('acct_a', 40n); // what its hold did not use
  }
  assert.ok(await soon(true, () => hold(replicas[1]!, 'acct_a', 120n)), '40 + 40 + 40');
  assert.equal(await replicas[1]!.store.ledger.settle(usage('acct_a', 120n)), 'billed');
  assert.equal(await balanceOf(replicas[0]!.store, 'acct_a'), 0n);
  await assertRight(url);
});

test('money that arrives while a lease waits for it is leased', async (t) => {
  const url = await server.databaseWithTables();
  const replica = await openReplica(t, url);
  await customer(replica.store, 'acct_a', 100n);
  const client = new pg.Client(clientConfig({ url }));
  await client.connect();
  t.after(() => client.end());
  const run: Run = async (statement, values) => {
    const { rows, rowCount } = await client.query({ ...statement, values: [...values] });
    return { rows: rows as never[], count: rowCount ?? 0 };
  };
  await run({ text: 'begin' }, []);
  assert.equal(await move(run, grant('acct_a', 1_000n)), true);
  const holding = hold(replica, 'acct_a', 300n);
  const waiting = `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%leased%'`;
  await until(async () => (await server.sql(url, waiting)).length > 0, 30_000);
  await run({ text: 'commit' }, []);
  assert.equal(await holding, true);
  assert.equal(await replica.store.ledger.settle(usage('acct_a', 300n)), 'billed');
  assert.equal(await balanceOf(replica.store, 'acct_a'), 800n);
  await assertRight(url);
});

test('M6: a replica that has expired loses its holds, charges nothing, and begins anew', async (t) => {
  const url = await server.databaseWithTables();
  const [one, two] = [await openReplica(t, url), await openReplica(t, url)];
  await customer(one.store, 'acct_a', 1000n);
  assert.ok(await hold(one, 'acct_a', 400n));
  const beforeDeath = usage('acct_a', 100n);
  assert.equal(await one.store.ledger.settle(beforeDeath), 'billed');
  // As a reaper does it, between two heartbeats: what comes from the old epoch meets a fencing token that is gone.
  await server.sql(url, 'delete from replica');
  const late = await one.store.ledger.settle(usage('acct_a', 100n));
  if (late === 'billed') t.diagnostic('settled before the sweep');
  await until(() => one.free.epoch > 0 && two.free.epoch > 0, 30_000);
  await until(async () => (await server.sql(url, 'select 1 from credit_lease')).length === 0, 30_000);
  assert.equal(one.free.freeMicrocents('acct_a'), 0n);
  assert.equal(await one.store.ledger.settle(beforeDeath), 'billed', 'what is there stays');
  const spent = late === 'billed' ? 200n : 100n;
  assert.ok(await soon(true, () => hold(two, 'acct_a', 1000n - spent)), 'all of it can be had again');
  assert.equal(await two.store.ledger.settle(usage('acct_a', 1000n - spent)), 'billed');
  assert.equal(await balanceOf(one.store, 'acct_a'), 0n);
  await assertRight(url);
});

interface Held {
  readonly replica: Replica;
  /** The replica's epoch when it was made: later ones have lost it. */
  readonly epoch: number;
  readonly accountId: string;
  amount: bigint;
}

test('two ledgers agree with a few lines of TypeScript over thousands of random steps', async (t) => {
  const url = await server.databaseWithTables();
  const replicas = [await openReplica(t, url), await openReplica(t, url)];
  const accounts = ['acct_a', 'acct_b'];
  const balance = new Map(accounts.map((id) => [id, 0n]));
  for (const id of accounts) await customer(replicas[0]!.store, id, 0n);
  const seed = Number(process.env['TOKENHOUSE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  t.diagnostic(`TOKENHOUSE_SEED=${seed}`);
  const random = randomOf(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  const steps = Number(process.env['TOKENHOUSE_STEPS'] ?? 2000);
  let held: Held[] = [];
  const settled: { readonly row: UsageRow; readonly replica: Replica }[] = [];
  const counts = new Map<string, number>();
  const count = (what: string): void => void counts.set(what, (counts.get(what) ?? 0) + 1);
  const heldOf = (id: string): bigint =>
    held.filter((one) => one.accountId === id).reduce((sum, { amount }) => sum + amount, 0n);

  for (let step = 0; step < steps; step++) {
    const replica = replicas[below(2)]!;
    const accountId = accounts[below(2)]!;
    const amount = BigInt(1 + below(300));
    const dice = below(100);
    if (dice < 35) {
      const free = balance.get(accountId)! - heldOf(accountId);
      // One more than there is too: in some runs the accounts never get poor by themselves.
      const requested = below(20) === 0 ? free + 1n : amount;
      const fundable = free >= requested;
      // M5: funded exactly when what nobody holds covers it, wherever it lies.
      const isHeld = await soon(fundable, () => hold(replica, accountId, requested));
      assert.equal(isHeld, fundable, `step ${step}`);
      count(isHeld ? 'held' : 'refused');
      if (isHeld) held.push({ replica, epoch: replica.free.epoch, accountId, amount: requested });
    } else if (dice < 65 && held.length > 0) {
      const [one] = held.splice(below(held.length), 1) as [Held];
      const cost = BigInt(below(Number(one.amount) + 1));
      const row = usage(one.accountId, cost, { holdMicrocents: one.amount });
      assert.equal(await one.replica.store.ledger.settle(row), 'billed', `step ${step}`);
      one.replica.free.credit(one.accountId, one.amount - cost);
      balance.set(one.accountId, balance.get(one.accountId)! - cost);
      settled.push({ row, replica: one.replica });
      count('settled');
    } else if (dice < 70 && held.length > 0) {
      const one = held[below(held.length)]!;
      const fundable = balance.get(one.accountId)! - heldOf(one.accountId) >= amount;
      const isExtended = await soon(fundable, () => hold(one.replica, one.accountId, amount));
      assert.equal(isExtended, fundable, `step ${step}`);
      if (isExtended) one.amount += amount;
      count('extended');
    } else if (dice < 78 && settled.length > 0) {
      const again = settled[below(settled.length)]!;
      assert.equal(await replica.store.ledger.settle(again.row), 'billed', `step ${step}`); // M3
      count('settled again');
    } else if (dice < 88) {
      assert.equal(await replica.store.ledger.transfer(grant(accountId, amount * 3n)), true);
      balance.set(accountId, balance.get(accountId)! + amount * 3n);
      count('topped up');
    } else if (dice < 97) {
      const covered = balance.get(accountId)! - heldOf(accountId) >= amount;
      const debit = chargeback(accountId, amount);
      const moved = await soon(covered, () => replica.store.ledger.transfer(debit).catch(() => false));
      assert.equal(moved, covered, `step ${step}`);
      if (moved) balance.set(accountId, balance.get(accountId)! - amount);
      count('charged back');
    } else if (dice === 97) {
      // A sweep that takes this replica for dead.
      const before = replicas.map(({ free }) => free.epoch); // now: one that expires may notice at once
      const [gone] = await server.sql(
        url,
        `with one as (select id from replica order by id ${below(2) === 0 ? 'desc' : ''} limit 1)
         delete from replica where id in (select id from one) returning 1`,
      );
      assert.ok(gone !== undefined);
      await until(() => replicas.some(({ free }, index) => free.epoch > before[index]!), 30_000);
      await until(
        async () =>
          (await server.sql(url, 'select 1 from credit_lease where replica_id not in (select id from replica)'))
            .length === 0,
        30_000,
      );
      // Its holds are void.
      held = held.filter((one) => one.epoch === one.replica.free.epoch);
      count('expired');
    }
    if (step % 100 === 0) await assertRight(url);
  }
  for (const id of accounts) assert.equal(await balanceOf(replicas[0]!.store, id), balance.get(id));
  await assertRight(url);
  t.diagnostic([...counts].map(([what, times]) => `${times} ${what}`).join(', '));
  for (const what of ['held', 'refused', 'settled', 'extended', 'settled again', 'topped up', 'charged back'])
    assert.ok((counts.get(what) ?? 0) > 0, what);
});

/** Mulberry32: the same steps for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
