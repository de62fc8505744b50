/** Money that arrives, and money that is not there. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../../src/platform/errors.ts';
import { balanceOf, chargeback, customer, differencesOf, grant } from '../store/fixture.ts';
import { bill, costOf, openCounter, receipt, used } from './bills.ts';

const refusalOf = async (promise: Promise<unknown>): Promise<ApiError> => {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error;
  }
  return assert.fail('was not refused');
};

test('a 402 says what there is, what is needed and where to get it, and a grant ends the refusal at once', async (t) => {
  const { store, billing } = await openCounter(t);
  await customer(store, 'acct_a', 2_500_000n);
  const needed = bill('acct_a', 1_000_000, 10);
  await billing.hold(needed);
  const refusal = await refusalOf(billing.hold(bill('acct_a', 1_000_000, 10)));
  assert.equal(refusal.code, 'insufficient_credits');
  // Cents, rounded so that neither figure promises too much: 0.499930 is free, 2.000070 is needed.
  assert.deepEqual(refusal.extra, {
    credits_available_cents: 0,
    credits_required_cents_estimate: 3,
    topup_url: 'http://test/topup',
  });
  await store.ledger.transfer(grant('acct_a', 2_000_000n));
  await billing.hold(bill('acct_a', 1_000_000, 10));
});

test('a prompt is counted before the refusal, because the bound from its bytes is several times the count', async (t) => {
  const { store, billing } = await openCounter(t);
  await customer(store, 'acct_a', costOf(100, 10));
  let counts = 0;
  const countPrompt = (): Promise<number> => Promise.resolve(++counts && 100);
  const hold = await billing.hold(bill('acct_a', 400, 10), countPrompt);
  assert.deepEqual([counts, hold.heldMicrocents, billing.freeMicrocents('acct_a')], [1, costOf(100, 10), 0n]);
  const refusal = await refusalOf(billing.hold(bill('acct_a', 400, 10), countPrompt));
  assert.equal(refusal.code, 'insufficient_credits');
  assert.equal(counts, 1, 'with no credit at all no count can help, and a flood of 402 asks no backend');
  await store.ledger.transfer(grant('acct_a', costOf(0, 10) - 1n));
  await refusalOf(billing.hold(bill('acct_a', 400, 10), countPrompt));
  assert.equal(counts, 1, 'nor with too little for the answer alone');
  await store.ledger.transfer(grant('acct_a', 1n));
  await refusalOf(billing.hold(bill('acct_a', 400, 10), countPrompt));
  assert.equal(counts, 2);
});

test('whether there is any credit is found out without holding it, and never refused where a hold is granted', async (t) => {
  const { file, store, billing } = await openCounter(t);
  const [least, needed] = [bill('acct_a', 1, 1), bill('acct_a', 400, 10)];
  await customer(store, 'acct_a', costOf(1, 1));
  await billing.check(needed);
  await billing.check(needed);
  assert.equal(billing.heldMicrocents, 0n);
  const hold = await billing.hold(least);
  const refusal = await refusalOf(billing.check(needed));
  assert.deepEqual([refusal.code, refusal.status], ['insufficient_credits', 402]);
  await hold.close(receipt(least, 1, 1, 'failed'));
  await billing.check({ ...needed, plan: 'p' });
  // A budget that is used up is no credit either.
  await customer(store, 'acct_b', 1_000_000n);
  const budget = { amountMicrocents: costOf(1, 1) - 1n, per: 'total' } as const;
  const poor = { ...bill('acct_b', 400, 10), key: { id: 'key_b', budget } };
  assert.match((await refusalOf(billing.check(poor))).message, /budget of this key/);
  assert.deepEqual(await differencesOf(file), []);
});

for (const order of ['grant first', 'hold first'] as const) {
  test(`a grant that arrives with the account's first request is spendable (${order})`, async (t) => {
    const { file, store, billing } = await openCounter(t);
    for (let round = 0; round < 20; round++) {
      const id = `acct_${round}`;
      await customer(store, id, 1_000n);
      // Both are written in one batch, because both begin in one turn of the event loop.
      const made = bill(id, 100, 10);
      const hold = (): Promise<unknown> => billing.hold(made);
      const credit = (): Promise<unknown> => store.ledger.transfer(grant(id, 500n));
      await Promise.all(order === 'grant first' ? [credit(), hold()] : [hold(), credit()]);
      assert.equal(billing.freeMicrocents(id), 1_500n - costOf(100, 10));
    }
    assert.deepEqual(await differencesOf(file), []);
  });
}

test('debits and credits beside requests: what is there is neither refused to them nor to a debit, and nothing is counted twice', async (t) => {
  const { file, store, billing } = await openCounter(t);
  const cost = costOf(10, 10);
  // The requests hold at most half of it, and the debits take the other half.
  const [streams, debits] = [20, 20];
  const half = cost * BigInt(streams);
  await customer(store, 'acct_a', half * 2n);
  let left = debits;
  const requests = Array.from({ length: streams }, async () => {
    let served = 0;
    for (; left > 0; served++) {
      const made = bill('acct_a', 10, 10);
      const hold = await billing.hold(made);
      // Now and then it comes to nothing at once, and the money is free again in the same turn.
      if (served % 3 > 0) await new Promise(setImmediate);
      await hold.close(receipt(made, 10, 10, 'failed'));
    }
    return served;
  });
  for (; left > 0; left--) {
    await store.ledger.transfer(chargeback('acct_a', half / BigInt(debits)));
    if (left % 4 === 0) {
      await store.ledger.transfer(grant('acct_a', 7n));
      await store.ledger.transfer(chargeback('acct_a', 7n));
    }
  }
  const served = await Promise.all(requests);
  assert.ok(served.every((count) => count > 0));
  assert.equal(billing.freeMicrocents('acct_a'), half);
  assert.equal(await balanceOf(store, 'acct_a'), half);
  assert.deepEqual(await differencesOf(file), []);
});

test('credit that arrives while an answer runs carries it on', async (t) => {
  const { store, billing } = await openCounter(t);
  await customer(store, 'acct_a', costOf(10, 2_048));
  const made = bill('acct_a', 10, 10_000);
  const hold = await billing.hold(made);
  assert.equal(await hold.cover(used(10, 2_000)), true, 'still within the first hold');
  assert.equal(await hold.cover(used(10, 2_049)), false);
  await store.ledger.transfer(grant('acct_a', costOf(0, 100)));
  assert.equal(await hold.cover(used(10, 2_049)), true);
  assert.equal(await hold.cover(used(10, 2_148)), true);
  assert.equal(await hold.cover(used(10, 2_149)), false);
  await hold.settle(receipt(made, 10, 2_148, 'credit'));
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
  assert.equal(billing.freeMicrocents('acct_a'), 0n);
});

test('a backend that reports more than was held is not paid for the rest, and the rest is recorded', async (t) => {
  const { file, store, billing } = await openCounter(t);
  await customer(store, 'acct_a', costOf(10, 10));
  const made = bill('acct_a', 10, 10);
  const hold = await billing.hold(made);
  await hold.settle(receipt(made, 1_000, 1_000, 'finished'));
  const [row] = await store.repositories.listUsage({ accountId: 'acct_a' });
  assert.deepEqual(
    [row?.costMicrocents, row?.unchargedMicrocents],
    [costOf(10, 10), costOf(1_000, 1_000) - costOf(10, 10)],
  );
  assert.deepEqual(await differencesOf(file), []);
});

test('a hold is settled once', async (t) => {
  const { store, billing } = await openCounter(t);
  await customer(store, 'acct_a', 10_000n);
  const made = bill('acct_a', 10, 10);
  const hold = await billing.hold(made);
  await hold.settle(receipt(made, 10, 10, 'finished'));
  await assert.rejects(hold.settle(receipt(made, 10, 10, 'finished')), /settled once/);
  await hold.close(receipt(made, 10, 10, 'client_left'));
  assert.equal(billing.freeMicrocents('acct_a'), 10_000n - costOf(10, 10));
  assert.equal(billing.openHolds, 0);
});

test('admission sheds while too many settlements wait for the disk', async (t) => {
  const { store, billing } = await openCounter(t, undefined, 0);
  await customer(store, 'acct_a', 10_000n);
  const made = bill('acct_a', 10, 10);
  const hold = await billing.hold(made);
  const settling = hold.settle(receipt(made, 10, 10, 'finished'));
  const refusal = await refusalOf(billing.hold(bill('acct_a', 10, 10)));
  assert.deepEqual([refusal.code, refusal.retryAfterSeconds], ['backend_at_capacity', 1]);
  await settling;
  await billing.hold(bill('acct_a', 10, 10));
});
