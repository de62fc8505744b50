/** What a process keeps of accounts does not grow with all that have ever used it (docs/decisions/035-many-keys.md). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Leases } from '../../src/store/leases.ts';
import { balanceOf, customer, differencesOf, MemoryBalances } from '../store/fixture.ts';
import { bill, costOf, openCounter, receipt, used, type Counter } from './bills.ts';

const accounts = 40;
const creditMicrocents = 100_000n;
const idOf = (index: number): string => `acct_${String(index).padStart(12, '0')}`;

/** A request of 10 prompt tokens and 5 of an answer. */
async function serve({ billing }: Counter, index: number): Promise<void> {
  const asked = bill(idOf(index), 10, 20);
  const hold = await billing.hold(asked);
  await hold.cover(used(10, 5));
  await hold.close(receipt(asked, 10, 5, 'finished'));
}

test('a process that has the balances alone returns what is idle beyond its bound, and pays on as before', async (t) => {
  const counter = await openCounter(t);
  const { store, billing, file } = counter;
  const leases = store.ledger.leases as Leases;
  for (let index = 0; index < accounts; index++) await customer(store, idOf(index), creditMicrocents);
  for (let index = 0; index < accounts; index++) await serve(counter, index);
  assert.deepEqual([billing.balances, leases.size], [accounts, accounts]);

  // One request runs on while its account goes back.
  const running = bill(idOf(0), 10, 20);
  const hold = await billing.hold(running);
  leases.sweep(performance.now(), 10);
  assert.equal(leases.size, accounts, 'all were used a moment ago');
  leases.sweep(performance.now() + 700_000, 10);
  assert.deepEqual([billing.balances, leases.size], [10, 10]);
  leases.sweep(performance.now() + 700_000, 10);
  assert.equal(leases.size, 10, 'up to the bound they stay');
  await hold.cover(used(10, 5));
  await hold.close(receipt(running, 10, 5, 'finished'));

  for (let index = 0; index < accounts; index++) await serve(counter, index);
  for (let index = 0; index < accounts; index++) {
    const spent = creditMicrocents - (await balanceOf(store, idOf(index)));
    assert.equal(spent, (index === 0 ? 3n : 2n) * costOf(10, 5), idOf(index));
  }
  await store.close();
  assert.deepEqual(await differencesOf(file), []);
});

test('where others share them, nothing stays of an account that was idle for ten seconds', async () => {
  const balances = new MemoryBalances();
  const returned = new Map<string, bigint>();
  const leases = new Leases({
    free: balances,
    leaseServer: {
      grant: () => Promise.resolve({ leased: 100n, isElsewhere: false, isThere: true }),
      returnUnused: (balanceId, microcents) => {
        returned.set(balanceId, (returned.get(balanceId) ?? 0n) + microcents);
        return Promise.resolve();
      },
      callOthers: () => Promise.resolve(),
    },
  });
  for (let index = 0; index < accounts; index++) {
    balances.credit(idOf(index), await leases.lease(idOf(index), 10n));
    assert.ok(balances.reserve(idOf(index), 60n));
  }
  leases.sweep(performance.now() + 20_000);
  assert.deepEqual([balances.of.size, leases.size], [0, 0]);
  // What a hold leaves over goes back as well, and is not remembered.
  balances.credit(idOf(0), 60n);
  leases.freed(idOf(0));
  assert.equal(balances.of.size, 0);
  assert.equal(returned.get(idOf(0)), 100n);
  await leases.close();
});
