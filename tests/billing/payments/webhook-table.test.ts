/** What the webhook answers: every kind of event, of ours and of others, right, wrong, early and twice. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { Payments } from '../../../src/billing/payments/payments.ts';
import { PaymentError } from '../../../src/billing/payments/provider.ts';
import { eventTypes, StripeProvider } from '../../../src/billing/payments/stripe.ts';
import { balanceOf, customer, differencesOf, openStore, temporaryFolder, uuid } from '../../store/fixture.ts';
import { input } from './claims.ts';
import { StripeFake } from './stripe-fake.ts';

const cent = 1_000_000n;

async function open(t: TestContext) {
  const fake = new StripeFake();
  await fake.start();
  t.after(() => fake.close());
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  const logged: string[] = [];
  let at = Date.now();
  const provider = new StripeProvider({
    secretKey: fake.key,
    webhookSecret: fake.webhookSecret,
    apiUrl: fake.url,
    automaticTax: false,
    otherVersion: () => {},
  });
  const services = { ...store, now: () => at, newId: uuid, provider, currency: 'usd' };
  const payments = new Payments({ ...services, log: (level, event) => logged.push(`${level} ${event}`) });
  const deliver = async (event: Record<string, unknown>): Promise<string> => {
    const { bytes, signature } = fake.signed(event, at);
    try {
      return await payments.receive(bytes, signature);
    } catch (error) {
      if (!(error instanceof PaymentError)) throw error;
      return error.code;
    }
  };
  return { fake, file, store, payments, deliver, logged, later: (ms: number) => void (at += ms) };
}

type Scene = Awaited<ReturnType<typeof open>>;

interface About {
  readonly paymentId: string;
  readonly metadata: Record<string, string>;
  readonly amount: number;
}

const sessionOf = ({ paymentId, metadata, amount }: About) => ({
  payment_status: 'paid',
  payment_intent: paymentId,
  amount_total: amount,
  currency: 'usd',
  metadata,
});
const intentOf = ({ paymentId, metadata, amount }: About) => ({
  id: paymentId,
  amount_received: amount,
  currency: 'usd',
  metadata: { ...metadata, ...(metadata['topup_id'] === undefined ? {} : { origin: 'auto' }) },
});
const returnOf =
  (status: string | undefined) =>
  ({ paymentId, amount }: About) => ({
    id: `return_of_${paymentId}`,
    payment_intent: paymentId,
    amount,
    currency: 'usd',
    status,
  });

/** What is said, whether of a payment that has been made already, and the outcomes: of ours, the same again, wrong, early. */
const rows: Readonly<Record<string, readonly [(about: About) => object, 'unpaid' | 'paid', ...string[]]>> = {
  'checkout.session.completed': [sessionOf, 'unpaid', 'applied', 'again', 'refused', 'applied'],
  'checkout.session.async_payment_succeeded': [sessionOf, 'unpaid', 'applied', 'again', 'refused', 'applied'],
  'payment_intent.succeeded': [intentOf, 'unpaid', 'applied', 'again', 'refused', 'applied'],
  'checkout.session.async_payment_failed': [sessionOf, 'unpaid', 'applied', 'again', 'refused', 'applied'],
  'checkout.session.expired': [sessionOf, 'unpaid', 'applied', 'again', 'refused', 'applied'],
  'payment_intent.payment_failed': [intentOf, 'unpaid', 'applied', 'again', 'refused', 'applied'],
  'refund.created': [returnOf('succeeded'), 'paid', 'applied', 'again', 'refused', 'unavailable'],
  'refund.updated': [returnOf('succeeded'), 'paid', 'applied', 'again', 'refused', 'unavailable'],
  'charge.refund.updated': [returnOf('succeeded'), 'paid', 'applied', 'again', 'refused', 'unavailable'],
  'refund.failed': [returnOf('failed'), 'paid', 'applied', 'again', 'refused', 'unavailable'],
  'charge.dispute.created': [returnOf('needs_response'), 'paid', 'applied', 'again', 'refused', 'unavailable'],
  'charge.dispute.funds_withdrawn': [returnOf('needs_response'), 'paid', 'applied', 'again', 'refused', 'unavailable'],
  'charge.dispute.funds_reinstated': [returnOf('won'), 'paid', 'applied', 'again', 'refused', 'unavailable'],
  'charge.dispute.closed': [returnOf('won'), 'paid', 'applied', 'again', 'refused', 'unavailable'],
  // Not in the webhook's list; an endpoint for all events sends them.
  'charge.refunded': [intentOf, 'paid', 'ignored', 'ignored', 'ignored', 'ignored'],
  'charge.succeeded': [intentOf, 'unpaid', 'ignored', 'ignored', 'ignored', 'ignored'],
  'payment_intent.created': [intentOf, 'unpaid', 'ignored', 'ignored', 'ignored', 'ignored'],
  'payment_intent.canceled': [intentOf, 'unpaid', 'ignored', 'ignored', 'ignored', 'ignored'],
  'invoice.paid': [sessionOf, 'unpaid', 'ignored', 'ignored', 'ignored', 'ignored'],
  'customer.subscription.deleted': [() => ({}), 'unpaid', 'ignored', 'ignored', 'ignored', 'ignored'],
};

/** A top-up of ours that has been paid at Stripe, and what Stripe would say of it. */
async function ours({
  fake,
  payments,
}: Scene): Promise<{ readonly about: About; readonly paidEvent: Record<string, unknown> }> {
  const topup = await payments.createTopup(input('acct_a', 500));
  const [, paidEvent] = fake.pay(topup.checkoutId!);
  const { payment_intent: paymentId, metadata } = (paidEvent!['data'] as { object: Record<string, unknown> }).object;
  return {
    about: { paymentId: String(paymentId), metadata: metadata as Record<string, string>, amount: 500 },
    paidEvent: paidEvent!,
  };
}

test('the table has every kind that the webhook subscribes to', () => {
  assert.deepEqual(
    eventTypes.filter((type) => rows[type] === undefined),
    [],
  );
});

for (const [type, [say, state, ...expected]] of Object.entries(rows))
  test(`the webhook and ${type}`, async (t) => {
    const scene = await open(t);
    const { fake, store, file, deliver, logged } = scene;
    const known = await ours(scene);
    if (state === 'paid') await deliver(known.paidEvent);
    const first = fake.emit(type, { ...say(known.about) });
    const outcomes = [await deliver(first), await deliver(first)];
    const balance = await balanceOf(store, 'acct_a');

    const wrong = await ours(scene);
    if (state === 'paid') await deliver(wrong.paidEvent);
    const metadata = {
      ...wrong.about.metadata,
      ...(type.includes('failed') || type.includes('expired') ? { topup_id: 'top_none' } : {}),
    };
    outcomes.push(await deliver(fake.emit(type, { ...say({ ...wrong.about, metadata, amount: 501 }) })));
    outcomes.push(await deliver(fake.emit(type, { ...say((await ours(scene)).about) })));
    assert.deepEqual(outcomes, expected);

    const before = {
      balance: await balanceOf(store, 'acct_a'),
      errors: logged.filter((line) => line.startsWith('error')),
    };
    const others: About = { paymentId: fake.payElsewhere(), metadata: { order: '17' }, amount: 500 };
    for (let times = 0; times < 2; times++) {
      const foreign = fake.emit(type, { ...say(others) });
      assert.equal(await deliver(foreign), 'ignored');
      assert.equal(await deliver(foreign), 'ignored');
    }
    const connected = { ...others, paymentId: 'pi_of_a_connected_account' };
    assert.equal(await deliver(fake.emit(type, { ...say(connected) })), 'ignored');
    // Nothing of it can be read; of a payment of ours that is loud.
    assert.equal(await deliver(fake.emit(type, { ...say(others), amount: null, amount_total: null })), 'ignored');
    assert.deepEqual(
      { balance: await balanceOf(store, 'acct_a'), errors: logged.filter((line) => line.startsWith('error')) },
      before,
    );
    assert.ok(fake.requests.filter(({ url }) => url.includes(others.paymentId)).length <= 1, 'it is asked for once');
    assert.ok(logged.filter((line) => line.includes('payments_of_others')).length <= 1);
    assert.ok(balance >= 0n && balance <= 500n * cent);
    assert.deepEqual(await differencesOf(file), []);
  });

test('what is of others, early or unreadable does not stop the look for the rest', async (t) => {
  const scene = await open(t);
  const { fake, file, store, payments, later, logged } = scene;
  const signal = AbortSignal.timeout(60_000);
  const seen = () => store.repositories.paymentsSeenUntil({ provider: 'stripe' });
  const refund = (paymentId: string, changes: object = {}) =>
    fake.emit('refund.created', { ...returnOf('succeeded')({ paymentId, metadata: {}, amount: 500 }), ...changes });
  refund(fake.payElsewhere());
  refund(fake.payElsewhere(), { amount: 'five' });
  const { about } = await ours(scene);
  assert.equal(await payments.catchUp(signal), 1);
  const first = await seen();
  // Its payment is ours, and is not listed: it is early.
  const topup = await payments.createTopup(input('acct_a', 500));
  fake.pay(topup.checkoutId!);
  const [intent, session] = fake.events.splice(-2);
  const { id: earlyId } = (intent!['data'] as { object: { id: string } }).object;
  refund(earlyId);
  refund(about.paymentId, { id: 're_after' });
  refund(about.paymentId, { id: 're_unreadable', amount: null });
  later(60_000);
  assert.equal(await payments.catchUp(signal), 1, 're_after');
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
  later(60_000);
  fake.events.push(intent!, session!);
  assert.equal(await payments.catchUp(signal), 1, 'the payment, after its refund in the list');
  assert.equal(await payments.catchUp(signal), 1, 'the refund that waited for it');
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
  // For as long as Stripe would deliver it again; then it is told loudly, once, and does not hold anything up.
  later(4 * 86_400_000);
  assert.equal(await payments.catchUp(signal), 0);
  assert.equal(logged.filter((line) => line === 'error payment_event_contradicts').length, 1);
  assert.ok((await seen())! > first! + 3 * 86_400_000);
  assert.equal(await payments.catchUp(signal), 0);
  assert.equal(logged.filter((line) => line === 'error payment_event_contradicts').length, 1);
  assert.deepEqual(await differencesOf(file), []);
});

test('a refund of a payment that was refused is not waited for', async (t) => {
  const scene = await open(t);
  const { fake, file, store, deliver } = scene;
  const { about, paidEvent } = await ours(scene);
  await deliver(paidEvent);
  // A second payment of one top-up, which the operator gives back at Stripe.
  const twice = fake.payElsewhere();
  const object = { ...sessionOf({ ...about, paymentId: twice }) };
  fake.label(twice, about.metadata);
  assert.equal(await deliver(fake.emit('checkout.session.completed', object)), 'refused');
  const back = fake.emit('refund.created', { ...returnOf('succeeded')({ ...about, paymentId: twice }) });
  assert.deepEqual([await deliver(back), await deliver(back)], ['refused', 'again']);
  assert.equal(await balanceOf(store, 'acct_a'), 500n * cent);
  assert.deepEqual(await differencesOf(file), []);
});
