import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { systemAccounts } from '../../src/store/ledger.ts';
import { StoreError } from '../../src/store/store-error.ts';
import {
  balanceOf,
  chargeback,
  customer,
  differencesOf,
  grant,
  MemoryBalances,
  openStore,
  temporaryFolder,
  usage,
  uuid,
} from './fixture.ts';

const refused = (code: StoreError['code']) => (error: unknown) => error instanceof StoreError && error.code === code;

test('M7: the same idempotency key credits once, and stands for one movement only', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  await customer(store, 'acct_b', 0n);
  const both = await Promise.all([
    store.ledger.transfer(grant('acct_a', 500n, 'evt_1')),
    store.ledger.transfer(grant('acct_a', 500n, 'evt_1')),
  ]);
  assert.deepEqual(both, [true, false]);
  await assert.rejects(store.ledger.transfer(grant('acct_a', 501n, 'evt_1')), refused('conflict'));
  await assert.rejects(store.ledger.transfer(grant('acct_b', 500n, 'evt_1')), refused('conflict'));
  assert.equal(await balanceOf(store, 'acct_a'), 500n);
  assert.equal(await balanceOf(store, systemAccounts.promo), -500n);
  await store.close();
  const again = await openStore(t, file);
  assert.equal(await again.ledger.transfer(grant('acct_a', 500n, 'evt_1')), false);
  assert.equal(await balanceOf(again, 'acct_a'), 500n);
  assert.deepEqual(await differencesOf(file), []);
});

test('a transfer that makes no sense moves nothing', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 100n);
  await assert.rejects(store.ledger.transfer(grant('acct_none', 1n)), refused('not_found'));
  await assert.rejects(store.ledger.transfer(grant('acct_a', 0n)), refused('invalid'));
  await assert.rejects(store.ledger.transfer(grant('acct_a', -1n)), refused('invalid'));
  await assert.rejects(store.ledger.transfer(grant(systemAccounts.promo, 1n)), refused('invalid'));
  await assert.rejects(store.ledger.transfer(grant('acct_a', 2n ** 63n - 1n)), refused('invalid')); // 100 + that overflows
  await assert.rejects(store.ledger.transfer(chargeback('acct_a', 101n)), refused('insufficient'));
  assert.equal(await store.ledger.transfer(chargeback('acct_a', 100n)), true);
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
  assert.deepEqual(await differencesOf(file), []);
});

test('a process alone leases the whole spendable balance; later credits are free as soon as they are durable', async (t) => {
  const free = new MemoryBalances();
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'), { free });
  await customer(store, 'acct_a', 100n);
  assert.equal(free.of.size, 0, 'nobody has asked for a lease: it will be in the lease');
  const [leased, , again] = await Promise.all([
    store.ledger.leases.lease('acct_a', 1n),
    store.ledger.transfer(grant('acct_a', 7n)),
    store.ledger.leases.lease('acct_a', 1n),
  ]);
  assert.deepEqual([leased, again], [1n, 1n]);
  assert.equal(free.of.get('acct_a'), 105n);
  assert.equal(await store.ledger.transfer(grant('acct_a', 3n, 'k')), true);
  assert.equal(await store.ledger.transfer(grant('acct_a', 3n, 'k')), false);
  assert.equal(free.of.get('acct_a'), 108n);
  assert.equal(await store.ledger.leases.lease('acct_a', 109n), 0n);
  assert.equal(await store.ledger.leases.lease('acct_none', 1n), 0n);
  await store.ledger.setAccountStatus('acct_a', 'suspended', Date.now(), uuid());
  await assert.rejects(store.ledger.setAccountStatus('acct_none', 'active', Date.now(), uuid()), refused('not_found'));
});

test('a debit takes only what is free in memory: money on hold stays with the requests that hold it', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const free = new MemoryBalances();
  const store = await openStore(t, file, { free });
  await customer(store, 'acct_a', 100n);
  // A debit that is asked for beside the lease waits until the lease has arrived.
  const asked = store.ledger.leases.lease('acct_a', 1n).then((leased) => free.credit('acct_a', leased));
  const early = store.ledger.transfer(chargeback('acct_a', 10n));
  await asked;
  assert.equal(await early, true);
  assert.equal(free.of.get('acct_a'), 90n);

  assert.ok(free.reserve('acct_a', 60n)); // a running request
  await assert.rejects(store.ledger.transfer(chargeback('acct_a', 31n)), refused('insufficient'));
  assert.equal(free.of.get('acct_a'), 30n, 'a refused debit gives its reservation back');
  assert.equal(await store.ledger.transfer(chargeback('acct_a', 30n, 'cb')), true);
  assert.equal(free.of.get('acct_a'), 0n);
  assert.equal(await store.ledger.transfer(chargeback('acct_a', 30n, 'cb')), false, 'said again, with nothing free');
  assert.equal(await store.ledger.settle(usage('acct_a', 60n)), 'billed');
  assert.equal(await balanceOf(store, 'acct_a'), 0n);

  await store.ledger.transfer(grant('acct_a', 50n));
  await assert.rejects(store.ledger.transfer({ ...chargeback('acct_a', 20n), creditAccount: 'acct_none' }));
  assert.equal(free.of.get('acct_a'), 50n, 'a failed debit gives its reservation back');
  assert.deepEqual(await differencesOf(file), []);
});

test('a credit limit is spendable, and can be taken away only while it is not in use', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const free = new MemoryBalances();
  const store = await openStore(t, file, { free });
  await customer(store, 'acct_a', 10n);
  await store.ledger.setCreditLimit('acct_a', 40n, Date.now(), uuid());
  free.credit('acct_a', await store.ledger.leases.lease('acct_a', 1n));
  assert.equal(free.of.get('acct_a'), 50n);
  assert.ok(free.reserve('acct_a', 30n));
  await store.ledger.settle(usage('acct_a', 30n));
  assert.equal(await balanceOf(store, 'acct_a'), -20n);
  await assert.rejects(store.ledger.setCreditLimit('acct_a', 19n, Date.now(), uuid()), refused('insufficient'));
  await store.ledger.setCreditLimit('acct_a', 20n, Date.now(), uuid());
  assert.equal(free.of.get('acct_a'), 0n);
  await store.ledger.setCreditLimit('acct_a', 25n, Date.now(), uuid());
  assert.equal(free.of.get('acct_a'), 5n);
  await assert.rejects(store.ledger.setCreditLimit('acct_none', 1n, Date.now(), uuid()), refused('not_found'));
  assert.deepEqual(await differencesOf(file), []);
});

test('an account is made once', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 5n);
  await assert.rejects(customer(store, 'acct_a', 5n), refused('conflict'));
  assert.equal(await balanceOf(store, 'acct_a'), 5n);
  assert.equal((await store.repositories.listAccounts({})).length, 1);
  assert.equal((await store.repositories.listAccounts({ withSystem: true })).length, 5);
});
