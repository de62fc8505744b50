/**
 * Settlements whose answer goes astray (docs/money.md, "Durability"; reliability D4, D5): the ledger is the real one, and
 * what stands in between loses calls on the way in, or answers on the way out. In the end everything agrees.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { ApiError } from '../../src/platform/errors.ts';
import type { Ledger } from '../../src/store/ledger.ts';
import { until } from '../support/service.ts';
import { balanceOf, customer, differencesOf } from '../store/fixture.ts';
import { bill, costOf, openCounter, receipt } from './bills.ts';
import type { Counter } from './bills.ts';

/**
 * What happens to one call: nothing; it never reaches the ledger; it is carried out and fails all the same; it is carried
 * out and never answered, or when the test says so.
 */
type Fault = 'none' | 'before' | 'after' | 'silent' | 'late';

/** The next calls that write or read a settlement meet these faults, in this order; what comes later meets none. */
class Faults {
  next: Fault[] = [];
  answerLate = (): void => assert.fail('no call waits');

  between = (ledger: Ledger): Ledger => {
    const meet = async <Value>(call: () => Promise<Value>): Promise<Value> => {
      const fault = this.next.shift() ?? 'none';
      if (fault === 'before') throw new Error('the call was lost');
      const answer = await call();
      if (fault === 'after') throw new Error('the answer was lost');
      if (fault === 'silent') return new Promise(() => {});
      if (fault === 'late') await new Promise<void>((resolve) => (this.answerLate = resolve));
      return answer;
    };
    return {
      leases: ledger.leases,
      open: (request) => ledger.open(request),
      close: () => ledger.close(),
      get backlog() {
        return ledger.backlog;
      },
      get silentMs() {
        return ledger.silentMs;
      },
      settle: (row) => meet(() => ledger.settle(row)),
      readBack: (requestId) => meet(() => ledger.readBack(requestId)),
      probe: () => meet(() => ledger.probe()),
      transfer: (transfer) => meet(() => ledger.transfer(transfer)),
    };
  };
}

const credit = 100_000n;
/** What an operator reads of it in the log. */
const causes = new Set([
  'Error: the call was lost',
  'Error: the answer was lost',
  'Error: no answer of the store within 2000 ms',
]);

async function openCounterWithFaults(
  t: Parameters<typeof openCounter>[0],
): Promise<{ readonly counter: Counter; readonly faults: Faults }> {
  const faults = new Faults();
  return { counter: await openCounter(t, faults.between), faults };
}

/** Waits for the repair, and sees that the account is as if nothing had gone wrong but the charge. */
async function assertRepaired(
  { store, billing, repairs, file }: Counter,
  accountId: string,
  charged: bigint,
): Promise<void> {
  await until(() => repairs.length > 0, 20_000);
  assert.equal(repairs[0]?.event, 'settlement_repaired');
  await until(() => billing.freeMicrocents(accountId) === credit - charged);
  assert.equal(await balanceOf(store, accountId), credit - charged);
  assert.equal(billing.openHolds, 0);
  assert.deepEqual(await differencesOf(file), []);
}

/** The faults that the settlement meets, and then the steps of the repair. */
const schedules: readonly (readonly Fault[])[] = [
  ['before'],
  ['after'],
  ['silent'],
  ['before', 'before'],
  ['before', 'after'],
  ['before', 'none', 'before'],
  ['before', 'none', 'after'],
  ['after', 'before'],
  ['after', 'after'],
  ['after', 'none', 'before'],
  // The refund's turn: it is asked for twice, and moves money once.
  ['after', 'none', 'none', 'before'],
  ['after', 'none', 'none', 'after'],
  ['silent', 'none', 'none', 'after'],
];

describe('whatever is lost on the way', { concurrency: 8 }, () => {
  for (const schedule of schedules) {
    test(`a finished answer whose settlement is lost (${schedule.join(', ')}): the client sees an error, and has paid nothing`, async (t) => {
      const { counter, faults } = await openCounterWithFaults(t);
      const { store, billing } = counter;
      await customer(store, 'acct_a', credit);
      const made = bill('acct_a', 100, 50);
      const hold = await billing.hold(made);
      faults.next = [...schedule];
      await assert.rejects(
        hold.settle(receipt(made, 100, 50, 'finished')),
        (error: unknown) =>
          error instanceof ApiError && error.code === 'internal_error' && causes.has(String(error.cause)),
      );
      assert.equal(hold.lost, true);
      await hold.close(receipt(made, 100, 50, 'lost'));
      await assertRepaired(counter, 'acct_a', 0n);

      const [row] = await store.repositories.listUsage({ accountId: 'acct_a' });
      const transfers = await store.repositories.listTransfers({ accountId: 'acct_a' });
      const refunds = transfers.filter(({ kind }) => kind === 'refund').map(({ amountMicrocents }) => amountMicrocents);
      // Which row won depends on whether the first one had reached the ledger.
      if (schedule[0] === 'before') assert.deepEqual([row?.ending, row?.costMicrocents, refunds], ['lost', 0n, []]);
      else
        assert.deepEqual([row?.ending, row?.costMicrocents, refunds], ['finished', costOf(100, 50), [costOf(100, 50)]]);
      await billing.hold(bill('acct_a', Number(credit / 2n), 0));
    });

    test(`a client that left, whose charge is lost (${schedule.join(', ')}): pays it once`, async (t) => {
      const { counter, faults } = await openCounterWithFaults(t);
      const { store, billing } = counter;
      await customer(store, 'acct_a', credit);
      const made = bill('acct_a', 100, 50);
      const hold = await billing.hold(made);
      faults.next = [...schedule];
      await hold.close(receipt(made, 100, 20, 'client_left'));
      await assertRepaired(counter, 'acct_a', costOf(100, 20));
      const rows = await store.repositories.listUsage({ accountId: 'acct_a' });
      assert.deepEqual(
        rows.map((row) => [row.ending, row.costMicrocents]),
        [['client_left', costOf(100, 20)]],
      );
      assert.equal(
        (await store.repositories.listTransfers({ accountId: 'acct_a' })).length,
        1,
        'the first grant, and no refund',
      );
    });
  }
});

/** What the settlement of an answer that is kept meets, and the steps that decide about it; whether it is charged. */
const kept: readonly (readonly [readonly Fault[], boolean])[] = [
  [['none'], true],
  [['before'], false],
  [['after'], true],
  [['silent'], true],
  [['before', 'after'], false],
  [['after', 'before', 'none', 'before'], true],
];

describe(
  'an answer that is kept counts if the ledger has its charge, whatever was said of it',
  { concurrency: 8 },
  () => {
    for (const [schedule, isCharged] of kept)
      test(schedule.join(', '), async (t) => {
        const { counter, faults } = await openCounterWithFaults(t);
        await customer(counter.store, 'acct_a', credit);
        const made = bill('acct_a', 100, 50);
        const hold = await counter.billing.hold(made);
        faults.next = [...schedule];
        const settling = hold.settle(receipt(made, 100, 50, 'finished'), true);
        if (isCharged) await settling;
        else await assert.rejects(settling, { code: 'internal_error' });
        assert.equal(hold.lost, !isCharged);
        await hold.close(receipt(made, 100, 50, 'lost'));
        const charged = isCharged ? costOf(100, 50) : 0n;
        if (schedule[0] === 'none') assert.equal(counter.billing.freeMicrocents('acct_a'), credit - charged);
        else await assertRepaired(counter, 'acct_a', charged);
        const rows = await counter.store.repositories.listUsage({ accountId: 'acct_a' });
        assert.deepEqual(
          rows.map(({ ending, costMicrocents }) => [ending, costMicrocents]),
          [[isCharged ? 'finished' : 'lost', charged]],
        );
      });
  },
);

test('an answer of the ledger that comes after its time changes nothing any more', async (t) => {
  const { counter, faults } = await openCounterWithFaults(t);
  await customer(counter.store, 'acct_a', credit);
  const made = bill('acct_a', 100, 50);
  const hold = await counter.billing.hold(made);
  faults.next = ['late'];
  await assert.rejects(hold.settle(receipt(made, 100, 50, 'finished')), { code: 'internal_error' });
  await hold.close(receipt(made, 100, 50, 'lost'));
  await assertRepaired(counter, 'acct_a', 0n);
  faults.answerLate();
  await new Promise(setImmediate);
  assert.deepEqual(
    [hold.lost, counter.billing.openHolds, counter.billing.heldMicrocents, counter.billing.freeMicrocents('acct_a')],
    [false, 0, 0n, credit],
  );
});

test('money of an unknown settlement stays on hold until it is known', async (t) => {
  const { counter, faults } = await openCounterWithFaults(t);
  const { store, billing, repairs } = counter;
  await customer(store, 'acct_a', credit);
  const made = bill('acct_a', 100, 50);
  const hold = await billing.hold(made);
  faults.next = ['after', 'before'];
  await assert.rejects(hold.settle(receipt(made, 100, 50, 'finished')));
  await hold.close(receipt(made, 100, 50, 'lost'));
  assert.equal(repairs.length, 0);
  assert.equal(billing.freeMicrocents('acct_a'), credit - costOf(100, 50), 'until then nobody else can spend it');
  await assertRepaired(counter, 'acct_a', 0n);
});
