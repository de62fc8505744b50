/** What payments promise, on whichever store: run by tests/billing/payments and by the suite on PostgreSQL. */
import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { test, type TestContext } from 'node:test';

import { demoEventSecret, DemoProvider } from '../../../src/billing/payments/demo.ts';
import { Payments } from '../../../src/billing/payments/payments.ts';
import { PaymentError } from '../../../src/billing/payments/provider.ts';
import { systemAccounts } from '../../../src/store/ledger.ts';
import type { AccountLedger } from '../../../src/store/ledger.ts';
import type { Repositories } from '../../../src/store/repositories/repositories.ts';
import { StoreError } from '../../../src/store/store-error.ts';
import type { Difference } from '../../../src/store/verify/difference.ts';
import { grant, usage, uuid } from '../../store/fixture.ts';
import { signAsStripe } from './sign.ts';

export interface OpenLedger {
  readonly store: { readonly ledger: AccountLedger; readonly repositories: Repositories; now(): number };
  readonly differences: () => Promise<readonly Difference[]>;
  /** Makes this much of an account be held by something that runs, in memory. */
  readonly hold: (accountId: string, microcents: bigint) => Promise<void>;
  /** What was held and was not charged is free again. */
  readonly release: (accountId: string, microcents: bigint) => void;
}

export const secret = createSecretKey(randomBytes(32));
const cent = 1_000_000n;

export interface Till {
  readonly payments: Payments;
  readonly demo: DemoProvider;
  readonly logged: string[];
  /** What came to the webhook, and what it answered. */
  readonly delivered: { readonly bytes: Uint8Array; readonly outcome: string }[];
  /** While true, the webhook cannot be reached. */
  isCut: boolean;
}

export function openTill({ store }: Pick<OpenLedger, 'store'>): Till {
  const logged: string[] = [];
  const delivered: { bytes: Uint8Array; outcome: string }[] = [];
  const { repositories, ledger } = store;
  const now = (): number => store.now();
  const demo = new DemoProvider({
    repositories,
    now,
    newId: uuid,
    secret,
    accountUrl: () => 'http://localhost:1',
    deliver: async (bytes, signature) => {
      if (till.isCut) throw new Error('cut off');
      let outcome: string;
      try {
        outcome = await payments.receive(bytes, signature);
      } catch (error) {
        outcome = error instanceof PaymentError ? error.code : String(error);
      }
      delivered.push({ bytes, outcome });
    },
  });
  const payments = new Payments({
    ledger,
    repositories,
    now,
    newId: uuid,
    provider: demo,
    currency: 'usd',
    log: (_level, event) => logged.push(event),
  });
  const till: Till = { payments, demo, logged, delivered, isCut: false };
  return till;
}

export async function newCustomer({ store }: OpenLedger, microcents = 0n): Promise<string> {
  const id = `acct_${Buffer.from(uuid()).toString('hex')}`;
  await store.ledger.createAccount({ id, name: id, creditLimitMicrocents: 0n, at: store.now(), changeId: uuid() });
  if (microcents > 0n) await store.ledger.transfer(grant(id, microcents));
  return id;
}

export const input = (accountId: string, amountCents = 500, idempotencyKey?: string) => ({
  accountId,
  amountCents,
  idempotencyKey,
  successUrl: 'http://localhost:1/ok',
  cancelUrl: 'http://localhost:1/no',
  keepsCard: undefined,
  email: undefined,
  by: 'test',
});

const balanceOf = async ({ store }: OpenLedger, accountId: string): Promise<bigint> =>
  (await store.repositories.getAccount({ accountId }))!.balanceMicrocents;

/** A paid top-up of this many cents. */
async function paid(opened: OpenLedger, till: Till, accountId: string, cents = 500) {
  const topup = await till.payments.createTopup(input(accountId, cents));
  await till.demo.play(topup.checkoutId!, 'success');
  return (await opened.store.repositories.getTopup({ id: topup.id }))!;
}

export const event = (type: string, object: object, changes: object = {}) => ({
  id: `evt_${Buffer.from(uuid()).toString('hex')}`,
  type,
  created: Math.floor(Date.now() / 1000),
  data: { object },
  ...changes,
});

/** Signs and sends what a provider could say. */
export const say = (till: Till, value: object, signedMs = Date.now()) => {
  const bytes = Buffer.from(JSON.stringify(value));
  return till.payments.receive(bytes, signAsStripe(bytes, demoEventSecret(secret), signedMs));
};

export const session = (topup: { id: string; accountId: string }, paymentId: string, changes: object = {}) => ({
  payment_status: 'paid',
  payment_intent: paymentId,
  amount_total: 500,
  currency: 'usd',
  metadata: { topup_id: topup.id, account_id: topup.accountId },
  ...changes,
});

export function paymentClaims(open: (t: TestContext) => Promise<OpenLedger>): void {
  test('a payment credits once, whatever reports it and however often', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await till.payments.createTopup({ ...input(accountId), keepsCard: true });
    assert.equal(topup.status, 'pending');
    assert.equal(await balanceOf(opened, accountId), 0n);
    await till.demo.play(topup.checkoutId!, 'duplicate');
    assert.deepEqual(
      till.delivered.map(({ outcome }) => outcome),
      ['applied', 'again', 'again', 'again', 'again', 'again'],
    );
    assert.equal(await balanceOf(opened, accountId), 500n * cent);
    const after = (await opened.store.repositories.getTopup({ id: topup.id }))!;
    assert.equal(after.status, 'paid');
    assert.notEqual(after.paidAt, null);
    assert.deepEqual(await opened.store.repositories.getPaymentMethod({ accountId, provider: 'demo' }), {
      customerId: `cus_demo_${accountId}`,
      methodId: 'pm_demo_good',
    });
    // All of it at once, as two replicas would get it.
    const other = await till.payments.createTopup(input(accountId));
    const made = session(other, 'pi_twins');
    const twin = event('checkout.session.completed', made);
    const intent = event('payment_intent.succeeded', { ...made, id: 'pi_twins', amount_received: 500 });
    const outcomes = await Promise.all([twin, intent, twin, intent, twin].map((value) => say(till, value)));
    assert.equal(outcomes.filter((outcome) => outcome === 'applied').length, 1, String(outcomes));
    assert.equal(outcomes.filter((outcome) => outcome === 'again').length, 4, String(outcomes));
    assert.equal(await balanceOf(opened, accountId), 1000n * cent);
    assert.deepEqual(await opened.differences(), []);
  });

  test('a card is kept where automatic top-ups were asked for, and nowhere else', async (t) => {
    const opened = await open(t);
    const { repositories } = opened.store;
    const till = openTill(opened);
    for (const [isOn, keepsCard, isKept] of [
      [undefined, undefined, false],
      [undefined, false, false],
      [undefined, true, true],
      [false, undefined, false],
      [true, undefined, true],
      [true, false, false],
    ] as const) {
      const accountId = await newCustomer(opened);
      const auto = { thresholdMicrocents: 0n, amountMicrocents: cent, monthlyCapMicrocents: cent, by: 'test', at: 1 };
      if (isOn !== undefined) await repositories.setAutoTopup({ accountId, enabled: isOn, ...auto });
      const topup = await till.payments.createTopup({ ...input(accountId), keepsCard });
      await till.demo.play(topup.checkoutId!, 'success');
      assert.equal(await balanceOf(opened, accountId), 500n * cent);
      const kept = await repositories.getPaymentMethod({ accountId, provider: 'demo' });
      assert.equal(kept !== undefined, isKept, `automatic top-ups ${isOn}, asked ${keepsCard}`);
    }
  });

  test('the same idempotency key is one top-up with one checkout; for another amount it is refused', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const both = await Promise.all([1, 2, 3].map(() => till.payments.createTopup(input(accountId, 500, 'key'))));
    assert.equal(new Set(both.map(({ id }) => id)).size, 1);
    assert.equal(new Set(both.map(({ checkoutUrl }) => checkoutUrl)).size, 1);
    const isConflict = (error: unknown): boolean => error instanceof StoreError && error.code === 'conflict';
    await assert.rejects(till.payments.createTopup(input(accountId, 501, 'key')), isConflict);
    const elsewhere = await till.payments.createTopup(input(await newCustomer(opened), 500, 'key'));
    assert.notEqual(elsewhere.id, both[0]!.id, 'another account may use the same key');
  });

  test('what the provider did not say, or says of others, credits nobody', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const other = await newCustomer(opened);
    const topup = await till.payments.createTopup(input(accountId));
    const good = event('checkout.session.completed', session(topup, 'pi_1'));
    const bytes = Buffer.from(JSON.stringify(good));
    const now = Date.now();
    const sign = (of: Uint8Array, atMs: number): string => signAsStripe(of, demoEventSecret(secret), atMs);
    const refused = (error: unknown): boolean => error instanceof PaymentError && error.code === 'refused';
    for (const [what, sent, signature] of [
      ['unsigned', bytes, undefined],
      ['forged', bytes, signAsStripe(bytes, 'another secret', now)],
      ['changed', Buffer.from(bytes.toString().replace('500', '900')), sign(bytes, now)],
      ['truncated', bytes.subarray(0, 40), sign(bytes, now)],
      ['truncated before it was signed', bytes.subarray(0, 40), sign(bytes.subarray(0, 40), now)],
      ['late', bytes, sign(bytes, now - 310_000)],
      ['early', bytes, sign(bytes, now + 310_000)],
      ['no signature', bytes, 't=,v1='],
      ['nonsense', bytes, 'x'.repeat(5000)],
      ['two times', bytes, `t=${Math.floor(now / 1000)},${sign(bytes, now - 310_000)}`],
      ['a time that is none', bytes, sign(bytes, now).replace(/t=\d+/, 't=Infinity')],
      ['another scheme', bytes, sign(bytes, now).replace('v1=', 'v0=')],
      ['in capital letters', bytes, sign(bytes, now).replace(/v1=.*/, (digest) => digest.toUpperCase())],
    ] as const)
      await assert.rejects(till.payments.receive(sent, signature), refused, what);
    assert.equal(till.logged.filter((line) => line === 'payment_event_refused').length, 13);

    for (const [what, changes] of [
      ['another account', { metadata: { topup_id: topup.id, account_id: other } }],
      ['another amount', { amount_total: 499 }],
      ['another currency', { currency: 'eur' }],
      ['no such top-up', { metadata: { topup_id: 'top_none', account_id: accountId } }],
    ] as const) {
      const value = event('checkout.session.completed', session(topup, 'pi_1', changes));
      assert.equal(await say(till, value), 'refused', what);
      assert.equal(await say(till, value), 'again', what);
    }
    assert.equal(till.logged.filter((line) => line === 'payment_event_contradicts').length, 4);
    for (const value of [
      event('checkout.session.completed', session(topup, 'pi_1', { payment_status: 'unpaid' })),
      event('checkout.session.completed', session(topup, 'pi_1', { metadata: {} })),
      event('customer.created', {}),
    ])
      assert.equal(await say(till, value), 'ignored');
    assert.equal(await balanceOf(opened, accountId), 0n);
    assert.equal(await balanceOf(opened, other), 0n);

    assert.equal(await say(till, good), 'applied');
    // A second payment of a top-up is a person's to look at: its money is not this account's for nothing.
    assert.equal(await say(till, event('checkout.session.completed', session(topup, 'pi_2'))), 'refused');
    const second = await till.payments.createTopup(input(accountId));
    assert.equal(await say(till, event('checkout.session.completed', session(second, 'pi_1'))), 'refused');
    assert.equal((await opened.store.repositories.getTopup({ id: second.id }))!.status, 'pending');
    assert.equal(await balanceOf(opened, accountId), 500n * cent);
    assert.deepEqual(await opened.differences(), []);
  });

  test('events in any order: paid is paid, and a return waits for its payment', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await till.payments.createTopup(input(accountId));
    const status = async () => (await opened.store.repositories.getTopup({ id: topup.id }))!.status;
    const about = { metadata: { topup_id: topup.id, account_id: accountId } };
    const refund = { id: 're_1', payment_intent: 'pi_1', amount: 200, currency: 'usd', status: 'succeeded' };
    const early = event('refund.created', refund);
    await assert.rejects(
      say(till, early),
      (error: unknown) => error instanceof PaymentError && error.code === 'unavailable',
    );
    assert.equal(await say(till, event('checkout.session.async_payment_failed', about)), 'applied');
    assert.equal(await status(), 'failed');
    assert.equal(await say(till, event('checkout.session.completed', session(topup, 'pi_1'))), 'applied');
    assert.equal(await say(till, event('checkout.session.expired', about)), 'applied');
    assert.equal(await status(), 'paid');
    assert.equal(await say(till, early), 'applied');
    assert.equal(await say(till, event('refund.updated', refund)), 'again');
    assert.equal(await balanceOf(opened, accountId), 300n * cent);
    assert.equal(await status(), 'paid');
    assert.equal(await say(till, event('refund.created', { ...refund, id: 're_2', amount: 300 })), 'applied');
    assert.equal(await status(), 'refunded');
    assert.equal(await say(till, event('refund.created', { ...refund, id: 're_3', amount: 501 })), 'refused');
    assert.equal(await balanceOf(opened, accountId), 0n);
    assert.deepEqual(await opened.differences(), []);
  });

  test('a refund or a dispute takes what there is and nothing holds; the rest is bad debt, and comes back when it is won', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await paid(opened, till, accountId);
    await opened.hold(accountId, 100n * cent);
    await opened.store.ledger.settle(usage(accountId, 100n * cent, { promptTokens: 100_000_000 }));
    await opened.hold(accountId, 50n * cent);
    const badDebt = await balanceOf(opened, systemAccounts.badDebt);
    await till.demo.play(topup.checkoutId!, 'dispute');
    const [taken] = [
      await opened.store.repositories.findPaymentReturn({
        provider: 'demo',
        id: (await till.demo.getCheckout(topup.checkoutId!))!.disputeId!,
      }),
    ];
    assert.equal(taken!.amountMicrocents, 500n * cent);
    // 350 are free, 50 are held, and 100 were spent.
    assert.deepEqual([taken!.takenMicrocents, taken!.owedMicrocents], [350n * cent, 50n * cent]);
    assert.equal(await balanceOf(opened, accountId), 50n * cent);
    assert.equal(await balanceOf(opened, systemAccounts.badDebt), badDebt - 100n * cent);
    assert.ok(till.logged.includes('payment_taken_back_unpaid') && till.logged.includes('topup_dispute'));
    assert.equal((await opened.store.repositories.getTopup({ id: topup.id }))!.status, 'disputed');
    assert.deepEqual(await opened.differences(), []);
    await till.demo.play(topup.checkoutId!, 'win');
    assert.equal(await balanceOf(opened, accountId), 400n * cent);
    assert.equal(await balanceOf(opened, systemAccounts.badDebt), badDebt);
    const won = (await opened.store.repositories.getTopup({ id: topup.id }))!;
    assert.deepEqual([won.status, won.returnedMicrocents], ['paid', 0n]);
    assert.deepEqual(await opened.differences(), []);
  });

  test('an account that has nothing left owes nothing: a dispute is a loss of the operator', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await paid(opened, till, accountId);
    await opened.hold(accountId, 500n * cent);
    await opened.store.ledger.settle(usage(accountId, 500n * cent, { promptTokens: 500_000_000 }));
    const badDebt = await balanceOf(opened, systemAccounts.badDebt);
    await till.demo.play(topup.checkoutId!, 'dispute');
    assert.equal(await balanceOf(opened, accountId), 0n);
    assert.equal(await balanceOf(opened, systemAccounts.badDebt), badDebt - 500n * cent);
    await till.demo.play(topup.checkoutId!, 'win');
    assert.equal(await balanceOf(opened, accountId), 0n);
    assert.equal(await balanceOf(opened, systemAccounts.badDebt), badDebt);
    assert.deepEqual(await opened.differences(), []);
  });

  test('a refund that is asked for twice with one key happens once, and never for more than was paid', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await paid(opened, till, accountId);
    const refund = (amountCents: number, idempotencyKey: string) =>
      till.payments.provider.refund({ paymentId: topup.paymentId!, amountCents, idempotencyKey });
    const [one, same] = [await refund(200, 'a'), await refund(200, 'a')];
    assert.equal(one, same);
    assert.equal(await balanceOf(opened, accountId), 300n * cent);
    await assert.rejects(
      refund(301, 'b'),
      (error: unknown) => error instanceof PaymentError && error.code === 'declined',
    );
    await refund(300, 'c');
    assert.equal(await balanceOf(opened, accountId), 0n);
    assert.equal((await opened.store.repositories.getTopup({ id: topup.id }))!.status, 'refunded');
    assert.deepEqual(await opened.differences(), []);
  });

  test('what the webhook has missed is found by asking', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    await paid(opened, till, accountId);
    till.isCut = true;
    const topup = await paid(opened, till, accountId);
    await till.demo.play(topup.checkoutId!, 'refund');
    assert.equal(topup.status, 'pending');
    till.isCut = false;
    assert.equal(await till.payments.catchUp(AbortSignal.timeout(60_000)), 2);
    assert.equal(await till.payments.catchUp(AbortSignal.timeout(60_000)), 0);
    assert.equal((await opened.store.repositories.getTopup({ id: topup.id }))!.status, 'refunded');
    assert.equal(await balanceOf(opened, accountId), 500n * cent);
    assert.deepEqual(await opened.differences(), []);
  });

  test('a refund that fails gives back what it took, once, whatever the order and the number of its events', async (t) => {
    const opened = await open(t);
    const { repositories } = opened.store;
    const till = openTill(opened);
    const states = ['succeeded', 'failed', 'updated', 'late'] as const;
    const orders = [
      ['succeeded', 'failed'],
      ['failed', 'succeeded'],
      ['succeeded', 'failed', 'updated', 'late'],
      ['failed', 'updated', 'succeeded', 'late'],
      ['updated', 'late', 'failed', 'succeeded'],
      ['succeeded', 'succeeded', 'late', 'failed', 'failed', 'succeeded'],
      // At once, as several replicas hear of it.
      [states, states],
      [['failed', 'updated'], ['succeeded']],
      [['succeeded', 'failed', 'late', 'updated', 'succeeded', 'failed']],
    ] as const;
    const badDebt = await balanceOf(opened, systemAccounts.badDebt);
    for (const [number, order] of orders.entries()) {
      const where = JSON.stringify(order);
      const accountId = await newCustomer(opened);
      const topup = await till.payments.createTopup(input(accountId));
      const paymentId = `pi_failing_${number}`;
      await say(till, event('checkout.session.completed', session(topup, paymentId)));
      // 100 of 500 are spent: of 450 that are refunded it has 400.
      await opened.hold(accountId, 100n * cent);
      await opened.store.ledger.settle(usage(accountId, 100n * cent, { promptTokens: 100_000_000 }));
      const refund = { id: `re_failing_${number}`, payment_intent: paymentId, amount: 450, currency: 'usd' };
      const about = {
        succeeded: event('refund.created', { ...refund, status: 'succeeded' }),
        failed: event('refund.failed', { ...refund, status: 'failed' }),
        updated: event('charge.refund.updated', { ...refund, status: 'failed' }),
        late: event('refund.updated', { ...refund, status: 'canceled' }),
      };
      for (const step of order)
        await Promise.all((typeof step === 'string' ? [step] : step).map((name) => say(till, about[name])));
      assert.equal(await balanceOf(opened, accountId), 400n * cent, where);
      const after = (await repositories.getTopup({ id: topup.id }))!;
      assert.deepEqual([after.status, after.returnedMicrocents], ['paid', 0n], where);
      const reported = (await repositories.listNotices({ after: '', limit: 1000 })).filter(
        (one) => one.accountId === accountId,
      );
      assert.equal(reported.length, 1, where);
      assert.deepEqual([reported[0]!.type, reported[0]!.isWebhook], ['refund.failed', true]);
      const data = JSON.parse(reported[0]!.data) as { amount_microcents: number; given_back_microcents: number };
      assert.equal(data.amount_microcents, 450_000_000);
      // Money that did not move is not said to have moved.
      const isFirst =
        (await repositories.findPaymentReturn({ provider: 'demo', id: refund.id }))!.takenMicrocents === 0n;
      if (!isFirst) assert.equal(data.given_back_microcents, 400_000_000, where);
      assert.notEqual((await repositories.findPaymentReturn({ provider: 'demo', id: refund.id }))!.undoneAt, null);
      // The money can be asked for again, and that refund holds.
      const again = event('refund.created', { ...refund, id: `${refund.id}_again`, amount: 300, status: 'succeeded' });
      assert.equal(await say(till, again), 'applied');
      assert.equal(await balanceOf(opened, accountId), 100n * cent, where);
    }
    assert.equal(await balanceOf(opened, systemAccounts.badDebt), badDebt);
    assert.deepEqual(await opened.differences(), []);
  });

  test('a refund that fails although the account had nothing left restores what the operator lost, and a dispute beside it stands', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await paid(opened, till, accountId);
    await opened.hold(accountId, 500n * cent);
    await opened.store.ledger.settle(usage(accountId, 500n * cent, { promptTokens: 500_000_000 }));
    const badDebt = await balanceOf(opened, systemAccounts.badDebt);
    await till.payments.provider.refund({ paymentId: topup.paymentId!, amountCents: 200, idempotencyKey: 'a' });
    await till.demo.play(topup.checkoutId!, 'dispute');
    assert.equal(await balanceOf(opened, systemAccounts.badDebt), badDebt - 500n * cent);
    await till.demo.play(topup.checkoutId!, 'refund_failure');
    assert.deepEqual(
      till.delivered.slice(-2).map(({ outcome }) => outcome),
      ['applied', 'again'],
    );
    assert.equal(await balanceOf(opened, systemAccounts.badDebt), badDebt - 300n * cent);
    const disputed = (await opened.store.repositories.getTopup({ id: topup.id }))!;
    assert.deepEqual([disputed.status, disputed.returnedMicrocents], ['disputed', 300n * cent]);
    await assert.rejects(till.demo.play(topup.checkoutId!, 'refund_failure'), PaymentError, 'no refund is left');
    assert.equal(await balanceOf(opened, accountId), 0n);
    assert.ok(till.logged.includes('refund_failed'));
    assert.deepEqual(await opened.differences(), []);
  });

  test('a refund that somebody has failed to pay is one at the built-in provider again', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await paid(opened, till, accountId);
    await till.demo.play(topup.checkoutId!, 'refund');
    assert.equal(await balanceOf(opened, accountId), 0n);
    await till.demo.play(topup.checkoutId!, 'refund_failure');
    assert.equal(await balanceOf(opened, accountId), 500n * cent);
    await till.demo.play(topup.checkoutId!, 'refund');
    assert.equal(await balanceOf(opened, accountId), 0n);
    assert.equal((await opened.store.repositories.getTopup({ id: topup.id }))!.status, 'refunded');
    assert.deepEqual(await opened.differences(), []);
  });

  test('a dispute that is lost stays; one that was won first, or is said to be won twice, takes nothing', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await paid(opened, till, accountId);
    await till.demo.play(topup.checkoutId!, 'dispute');
    await till.demo.play(topup.checkoutId!, 'lose');
    assert.equal(await balanceOf(opened, accountId), 0n);
    const lost = (await opened.store.repositories.getTopup({ id: topup.id }))!;
    assert.deepEqual([lost.status, lost.returnedMicrocents], ['disputed', 500n * cent]);
    await assert.rejects(till.demo.play(topup.checkoutId!, 'win'), PaymentError);

    const other = await till.payments.createTopup(input(accountId));
    await say(till, event('checkout.session.completed', session(other, 'pi_disputed')));
    const dispute = { id: 'dp_early', payment_intent: 'pi_disputed', amount: 500, currency: 'usd' };
    const outcomes = [];
    for (const [type, status] of [
      ['charge.dispute.closed', 'won'],
      ['charge.dispute.created', 'needs_response'],
      ['charge.dispute.funds_reinstated', 'won'],
      ['charge.dispute.funds_withdrawn', 'needs_response'],
    ] as const)
      outcomes.push(await say(till, event(type, { ...dispute, status })));
    assert.deepEqual(outcomes, ['applied', 'again', 'again', 'again']);
    assert.equal(await balanceOf(opened, accountId), 500n * cent);
    assert.equal((await opened.store.repositories.getTopup({ id: other.id }))!.status, 'paid');
    assert.deepEqual(await opened.differences(), []);
  });

  test('what is in another currency is recorded, told to the operator, and moves nothing', async (t) => {
    const opened = await open(t);
    const till = openTill(opened);
    const accountId = await newCustomer(opened);
    const topup = await till.payments.createTopup(input(accountId));
    const abroad = event('checkout.session.completed', session(topup, 'pi_abroad', { currency: 'eur' }));
    assert.equal(await say(till, abroad), 'refused');
    const why = 'refused: it is in eur, and this service takes usd only: settle it at the payment provider';
    const outcomeOf = (id: string) => opened.store.repositories.findPaymentEvent({ provider: 'demo', id });
    assert.equal(await outcomeOf(abroad.id), why);
    assert.equal(await balanceOf(opened, accountId), 0n);
    assert.equal((await opened.store.repositories.getTopup({ id: topup.id }))!.status, 'pending');
    assert.equal(await say(till, event('checkout.session.completed', session(topup, 'pi_home'))), 'applied');
    const object = { payment_intent: 'pi_home', amount: 100, currency: 'eur' };
    for (const [type, status] of [
      ['refund.created', 'succeeded'],
      ['refund.failed', 'failed'],
      ['charge.dispute.created', 'needs_response'],
      ['charge.dispute.closed', 'won'],
    ] as const) {
      const value = event(type, { ...object, id: `abroad_${type}`, status });
      assert.equal(await say(till, value), 'refused', type);
      assert.equal(await outcomeOf(value.id), why, type);
    }
    assert.equal(till.logged.filter((line) => line === 'payment_event_contradicts').length, 5);
    assert.equal(await balanceOf(opened, accountId), 500n * cent);
    assert.deepEqual(await opened.differences(), []);
  });
}
