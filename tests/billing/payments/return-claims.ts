/** Of a payment no more is taken back than was paid, and all that runs does not hold or spend, in any order. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { systemAccounts } from '../../../src/store/ledger.ts';
import { usage } from '../../store/fixture.ts';
import { event, input, newCustomer, openTill, say, session, type OpenLedger, type Till } from './claims.ts';

const cent = 1_000_000n;

/** Numbers from 0 to below 1, the same for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

interface Account extends OpenLedger {
  readonly till: Till;
  readonly accountId: string;
  readonly balance: () => Promise<bigint>;
  readonly lost: () => Promise<bigint>;
  /** A request that held this much ends, with this charge. */
  readonly end: (held: bigint, cost: bigint) => Promise<void>;
  readonly collect: () => Promise<void>;
  readonly pay: (paymentId: string, cents: number) => Promise<string>;
  readonly refund: (paymentId: string, id: string, cents: number, status?: string) => Promise<string>;
  readonly dispute: (paymentId: string, id: string, cents: number, status?: string) => Promise<string>;
}

async function openAccount(opened: OpenLedger): Promise<Account> {
  const till = openTill(opened);
  const accountId = await newCustomer(opened);
  const { repositories, ledger } = opened.store;
  const balanceOf = async (id: string): Promise<bigint> =>
    (await repositories.getAccount({ accountId: id }))!.balanceMicrocents;
  const before = await balanceOf(systemAccounts.badDebt);
  const about = (payment_intent: string, id: string, amount: number, status: string) => ({
    ...{ payment_intent, id, amount, status, currency: 'usd' },
  });
  return {
    ...opened,
    till,
    accountId,
    balance: () => balanceOf(accountId),
    lost: async () => before - (await balanceOf(systemAccounts.badDebt)),
    end: async (held, cost) => {
      await ledger.settle(usage(accountId, cost, { promptTokens: Number(cost) }));
      opened.release(accountId, held - cost);
    },
    collect: () => till.payments.collectOwed(AbortSignal.timeout(60_000)),
    pay: async (paymentId, cents) => {
      const topup = await till.payments.createTopup(input(accountId, cents));
      return await say(till, event('checkout.session.completed', session(topup, paymentId, { amount_total: cents })));
    },
    refund: (paymentId, id, cents, status = 'succeeded') =>
      say(till, event(status === 'failed' ? 'refund.failed' : 'refund.created', about(paymentId, id, cents, status))),
    dispute: (paymentId, id, cents, status = 'needs_response') =>
      say(
        till,
        event(
          status === 'won' ? 'charge.dispute.closed' : 'charge.dispute.created',
          about(paymentId, id, cents, status),
        ),
      ),
  };
}

export function returnClaims(open: (t: TestContext) => Promise<OpenLedger>): void {
  test('more than was paid is not taken back, whatever the sum of refunds and disputes, and the operator is told', async (t) => {
    const account = await openAccount(await open(t));
    const { pay, refund, dispute, balance, till, store } = account;
    // Other credit of the account that must stay.
    await pay('pi_other', 700);
    await pay('pi_1', 500);
    assert.deepEqual(
      [await refund('pi_1', 're_1', 200), await refund('pi_1', 're_2', 300), await refund('pi_1', 're_3', 300)],
      ['applied', 'applied', 'refused'],
    );
    assert.equal(await balance(), 700n * cent);
    assert.equal(till.logged.filter((line) => line === 'payment_event_contradicts').length, 1);
    // The refund for which it was made again has failed, as the provider says only now.
    assert.equal(await refund('pi_1', 're_2', 300, 'failed'), 'applied');
    assert.equal(await balance(), 700n * cent, 're_3 has its place');
    assert.equal(await refund('pi_1', 're_3', 300), 'again');
    await pay('pi_2', 500);
    await refund('pi_2', 're_4', 200);
    assert.equal(await dispute('pi_2', 'dp_1', 500), 'applied', 'the buyer disputes all of it: 300 are left');
    assert.equal(await balance(), 700n * cent);
    assert.equal(till.logged.filter((line) => line === 'payment_event_contradicts').length, 2);
    const [topup] = await store.repositories.listTopups({ accountId: account.accountId, limit: 1 });
    assert.deepEqual([topup!.status, topup!.returnedMicrocents], ['disputed', 500n * cent]);
    assert.equal(await dispute('pi_2', 'dp_1', 500, 'won'), 'applied');
    assert.equal(await balance(), 1000n * cent);
    assert.deepEqual(await account.differences(), []);
  });

  test('what running requests hold is taken when they end, and nothing new is held before', async (t) => {
    const account = await openAccount(await open(t));
    const { pay, refund, balance, lost, end, collect, hold, accountId, till } = account;
    await pay('pi_1', 500);
    await hold(accountId, 100n * cent);
    await hold(accountId, 77_600_000n);
    assert.equal(await refund('pi_1', 're_1', 500), 'applied');
    assert.equal(await balance(), 177_600_000n);
    assert.ok(till.logged.includes('payment_taken_back_later'));
    await assert.rejects(hold(accountId, 1n), /not enough/);
    await end(100n * cent, 60n * cent);
    await assert.rejects(hold(accountId, 1n), /not enough/, 'what has become free is owed');
    await collect();
    assert.deepEqual([await balance(), await lost()], [77_600_000n, 60n * cent], 'what was spent cannot come any more');
    await collect();
    assert.equal(await balance(), 77_600_000n);
    await end(77_600_000n, 0n);
    await collect();
    assert.deepEqual([await balance(), await lost()], [0n, 60n * cent]);
    assert.deepEqual(await account.differences(), []);
    await pay('pi_2', 300);
    assert.equal(await balance(), 300n * cent, 'nothing is owed any more');
    await hold(accountId, 300n * cent);
    await end(300n * cent, 300n * cent);
    assert.equal(await refund('pi_1', 're_1', 500, 'failed'), 'applied');
    assert.deepEqual([await balance(), await lost()], [440n * cent, 0n]);
    assert.deepEqual(await account.differences(), []);
  });

  test('a refund that fails while a part of it is owed is no longer owed', async (t) => {
    const account = await openAccount(await open(t));
    const { pay, refund, balance, end, collect, hold, accountId } = account;
    await pay('pi_1', 500);
    await hold(accountId, 500n * cent);
    await refund('pi_1', 're_1', 400);
    assert.equal(await balance(), 500n * cent, 'all of it is held');
    assert.equal(await refund('pi_1', 're_1', 400, 'failed'), 'applied');
    await end(500n * cent, 100n * cent);
    await collect();
    assert.equal(await balance(), 400n * cent);
    await hold(accountId, 400n * cent);
    assert.deepEqual(await account.differences(), []);
  });

  test('in any order of payments, holds, charges, refunds, disputes and their ends, the sums are right', async (t) => {
    const opened = await open(t);
    const seed = Number(process.env['TOKENHOUSE_RETURNS_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
    t.diagnostic(`seed ${seed}`);
    const random = randomOf(seed);
    const upTo = (most: number): number => Math.floor(random() * (most + 1));
    for (let round = 0; round < 6; round++) {
      const account = await openAccount(opened);
      const { pay, refund, dispute, balance, lost, end, collect, hold, accountId, store } = account;
      const paid: { readonly id: string; readonly cents: number }[] = [];
      const returns: { kind: 'refund' | 'dispute'; id: string; paymentId: string; cents: number; isUndone: boolean }[] =
        [];
      const holds: bigint[] = [];
      let spent = 0n;
      for (let number = 0; number < 25; number++) {
        const where = `seed ${seed}, round ${round}, step ${number}`;
        const what = random();
        if (paid.length === 0 || what < 0.12) {
          const payment = { id: `pi_${accountId}_${number}`, cents: 100 + upTo(400) };
          paid.push(payment);
          assert.equal(await pay(payment.id, payment.cents), 'applied', where);
        } else if (what < 0.4) {
          const wanted = BigInt(1 + upTo(200)) * cent;
          await hold(accountId, wanted).then(
            () => holds.push(wanted),
            () => {},
          );
        } else if (what < 0.6 && holds.length > 0) {
          const held = holds.splice(upTo(holds.length - 1), 1)[0]!;
          const cost = (held * BigInt(upTo(100))) / 100n;
          spent += cost;
          await end(held, cost);
        } else if (what < 0.85) {
          const payment = paid[upTo(paid.length - 1)]!;
          const kind = random() < 0.6 ? 'refund' : 'dispute';
          const one = { kind, id: `${kind}_${accountId}_${number}`, paymentId: payment.id } as const;
          const cents = 1 + upTo(payment.cents - 1);
          returns.push({ ...one, cents, isUndone: false });
          await (kind === 'refund' ? refund : dispute)(payment.id, one.id, cents);
        } else {
          const one = returns[upTo(Math.max(0, returns.length - 1))];
          if (one !== undefined) {
            one.isUndone = true;
            if (one.kind === 'refund') await refund(one.paymentId, one.id, one.cents, 'failed');
            else await dispute(one.paymentId, one.id, one.cents, 'won');
          }
        }
        if (random() < 0.3) await collect();
        assert.ok((await balance()) >= holds.reduce((sum, held) => sum + held, 0n), `${where}: what is held is there`);
      }
      for (const held of holds) await end(held, 0n);
      for (let times = 0; times < 10 && (await store.repositories.owedReturns({ limit: 1 })).length > 0; times++)
        await collect();
      const where = `seed ${seed}, round ${round}`;
      let returned = 0n;
      for (const { id, cents } of paid) {
        const standing = returns.filter(({ paymentId, isUndone }) => paymentId === id && !isUndone);
        const sum = standing.reduce((total, one) => total + one.cents, 0);
        returned += BigInt(Math.min(sum, cents)) * cent;
        let taken = 0n;
        for (const one of standing) {
          const row = (await store.repositories.findPaymentReturn({ provider: 'demo', id: one.id }))!;
          taken += row.amountMicrocents - row.beyondMicrocents;
          assert.equal(row.owedMicrocents, 0n, where);
        }
        assert.equal(taken, BigInt(Math.min(sum, cents)) * cent, `${where}: ${id}`);
      }
      const all = BigInt(paid.reduce((sum, { cents }) => sum + cents, 0)) * cent;
      assert.equal(await balance(), all - spent - returned + (await lost()), where);
      const [topups] = [await store.repositories.listTopups({ accountId, limit: 100 })];
      assert.equal(
        topups.reduce((sum, one) => sum + one.returnedMicrocents, 0n),
        returned,
        where,
      );
    }
    assert.deepEqual(await opened.differences(), []);
  });
}
