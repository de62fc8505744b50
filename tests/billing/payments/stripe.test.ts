import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { Payments } from '../../../src/billing/payments/payments.ts';
import { PaymentError } from '../../../src/billing/payments/provider.ts';
import { StripeProvider } from '../../../src/billing/payments/stripe.ts';
import { balanceOf, customer, differencesOf, openStore, temporaryFolder, uuid } from '../../store/fixture.ts';
import { input } from './claims.ts';
import { StripeFake } from './stripe-fake.ts';

const cent = 1_000_000n;

async function open(t: TestContext, automaticTax = false) {
  const fake = new StripeFake();
  await fake.start();
  t.after(() => fake.close());
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  const versions: string[] = [];
  const provider = new StripeProvider({
    secretKey: fake.key,
    webhookSecret: fake.webhookSecret,
    apiUrl: fake.url,
    automaticTax,
    otherVersion: (version) => versions.push(version),
  });
  const payments = new Payments({
    ...store,
    now: () => store.now(),
    newId: uuid,
    provider,
    currency: 'usd',
    log: () => {},
  });
  const deliver = (event: Record<string, unknown>) => {
    const { bytes, signature } = fake.signed(event);
    return payments.receive(bytes, signature);
  };
  return { fake, file, store, provider, payments, deliver, versions };
}

test('a checkout at Stripe is paid, reported twice, and credits once', async (t) => {
  const { fake, file, store, payments, deliver } = await open(t);
  const topup = await payments.createTopup(input('acct_a', 1234, 'k'));
  assert.equal(topup.checkoutUrl, `${fake.url}/pay/${topup.checkoutId}`);
  assert.equal((await payments.createTopup(input('acct_a', 1234, 'k'))).checkoutId, topup.checkoutId);
  const events = fake.pay(topup.checkoutId!);
  const outcomes = [];
  for (const event of [...events, ...events.toReversed()]) outcomes.push(await deliver(event));
  assert.deepEqual(outcomes, ['applied', 'again', 'again', 'again']);
  assert.equal(await balanceOf(store, 'acct_a'), 1234n * cent);
  assert.deepEqual(fake.calls, ['/v1/checkout/sessions']);
  const { bytes, signature } = fake.signed(events[0]!, Date.now() - 600_000);
  await assert.rejects(payments.receive(bytes, signature), PaymentError);
  assert.deepEqual(await differencesOf(file), []);
});

test('a lost answer makes one checkout and one refund: the call is sent again with its key', async (t) => {
  const { fake, file, store, provider, payments, deliver } = await open(t);
  fake.losesAnswers = 1;
  const topup = await payments.createTopup(input('acct_a', 500));
  assert.deepEqual(fake.calls, ['/v1/checkout/sessions']);
  for (const event of fake.pay(topup.checkoutId!)) await deliver(event);
  const { paymentId } = (await store.repositories.getTopup({ id: topup.id }))!;
  fake.losesAnswers = 1;
  const refund = { paymentId: paymentId!, amountCents: 500, idempotencyKey: 'refund' };
  assert.equal(await provider.refund(refund), await provider.refund(refund));
  assert.deepEqual(fake.calls, ['/v1/checkout/sessions', '/v1/refunds']);
  await assert.rejects(
    provider.refund({ ...refund, idempotencyKey: 'more' }),
    (error: unknown) => error instanceof PaymentError && error.code === 'declined',
  );
  assert.equal(await payments.catchUp(AbortSignal.timeout(60_000)), 1, 'the refund, which nobody has delivered');
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
  assert.deepEqual(await differencesOf(file), []);
});

test('an event of another release of the API is read, and reported once', async (t) => {
  const { fake, payments, deliver, versions } = await open(t);
  const topup = await payments.createTopup(input('acct_a', 500));
  const [intent, session] = fake.pay(topup.checkoutId!);
  assert.equal(await deliver({ ...intent, api_version: '2026-10-28.endive' }), 'applied');
  assert.equal(await deliver({ ...session, api_version: '2026-12-16.endive' }), 'again');
  assert.deepEqual(versions, []);
  const old = (id: string) => deliver({ ...session, id, api_version: '2024-06-20' });
  assert.deepEqual([await old('evt_1'), await old('evt_2')], ['again', 'again']);
  assert.deepEqual(versions, ['2024-06-20']);
});

test('a refund that is made at Stripe, and fails there, is taken and given back; missed or delivered late', async (t) => {
  const { fake, file, store, provider, payments, deliver } = await open(t);
  const topup = await payments.createTopup(input('acct_a', 500));
  for (const event of fake.pay(topup.checkoutId!)) await deliver(event);
  const { paymentId } = (await store.repositories.getTopup({ id: topup.id }))!;
  const id = await provider.refund({ paymentId: paymentId!, amountCents: 500, idempotencyKey: 'refund' });
  const taken = fake.events.at(-1)!;
  const [, failed] = fake.failRefund(id);
  assert.equal(await payments.catchUp(AbortSignal.timeout(60_000)), 2, 'taken, and given back');
  assert.equal(await balanceOf(store, 'acct_a'), 500n * cent);
  assert.deepEqual([await deliver(failed!), await deliver(taken)], ['again', 'again']);
  assert.equal(await balanceOf(store, 'acct_a'), 500n * cent);
  assert.deepEqual(await differencesOf(file), []);
});

test('missed events are listed in pages, and applied from the oldest on', async (t) => {
  const { fake, file, store, payments } = await open(t);
  const topups = [];
  for (let count = 0; count < 3; count++) topups.push(await payments.createTopup(input('acct_a', 500)));
  for (const topup of topups) fake.pay(topup.checkoutId!);
  const first = fake.events.find(({ type }) => type === 'payment_intent.succeeded')!;
  fake.dispute((first['data'] as { object: { id: string } }).object.id);
  assert.equal(await payments.catchUp(AbortSignal.timeout(60_000)), 4);
  assert.equal(await payments.catchUp(AbortSignal.timeout(60_000)), 0);
  assert.equal(await balanceOf(store, 'acct_a'), 1000n * cent);
  assert.deepEqual(await differencesOf(file), []);
});

test('a saved card is charged once per key, and a declined one is distinguished from a provider that is away', async (t) => {
  const { fake, provider } = await open(t);
  const charge = {
    topupId: 'top_1',
    accountId: 'acct_a',
    amountCents: 500,
    currency: 'usd',
    customerId: 'cus_1',
    methodId: 'pm_1',
    idempotencyKey: 'charge',
  };
  await provider.charge(charge);
  await provider.charge(charge);
  assert.deepEqual(fake.calls, ['/v1/payment_intents']);
  fake.declines = true;
  const failed = (code: string) => (error: unknown) => error instanceof PaymentError && error.code === code;
  await assert.rejects(provider.charge({ ...charge, idempotencyKey: 'other' }), failed('declined'));
  fake.close();
  await assert.rejects(provider.charge({ ...charge, idempotencyKey: 'third' }), failed('unavailable'));
});

const sentOf = (fake: StripeFake, path: string) =>
  fake.requests
    .filter(({ method, url }) => method === 'POST' && url === path)
    .map(({ sent }) => Object.fromEntries(new URLSearchParams(sent)));

test('a card is kept where that was asked for, and its customer pays the next time; else by the account with the address', async (t) => {
  const { fake, store, payments, deliver } = await open(t);
  const pay = async (more: object) => {
    const topup = await payments.createTopup({ ...input('acct_a', 500), email: 'bills@example.org', ...more });
    for (const event of fake.pay(topup.checkoutId!)) await deliver(event);
    return await store.repositories.getPaymentMethod({ accountId: 'acct_a', provider: 'stripe' });
  };
  assert.equal(await pay({}), undefined);
  const kept = await pay({ keepsCard: true });
  assert.match(kept!.methodId, /^pm_/);
  assert.deepEqual(await pay({}), kept, 'a card that is not to be kept takes no place of one that is');
  fake.deletedCustomers.add(kept!.customerId);
  assert.deepEqual(await pay({}), kept);
  const usage = 'payment_intent_data[setup_future_usage]';
  assert.deepEqual(
    sentOf(fake, '/v1/checkout/sessions').map((form) => [
      form[usage],
      form['customer_creation'],
      form['customer_email'],
      form['customer'],
    ]),
    [
      [undefined, 'if_required', 'bills@example.org', undefined],
      ['off_session', 'always', 'bills@example.org', undefined],
      [undefined, undefined, undefined, kept!.customerId],
      // The customer is not there any more: once with, once without.
      [undefined, undefined, undefined, kept!.customerId],
      [undefined, 'if_required', 'bills@example.org', undefined],
    ],
  );
  assert.equal(await balanceOf(store, 'acct_a'), 2000n * cent);
});

test('a checkout that is asked for again for another payer is another one at Stripe, and the first page holds', async (t) => {
  const { fake, payments } = await open(t);
  const twice = [
    payments.createTopup({ ...input('acct_a', 500, 'k'), email: 'one@example.org' }),
    payments.createTopup({ ...input('acct_a', 500, 'k'), email: 'two@example.org' }),
  ];
  const [one, two] = await Promise.all(twice);
  assert.deepEqual([one!.id, one!.checkoutUrl], [two!.id, two!.checkoutUrl]);
  assert.equal(fake.calls.length, 2);
});

test('Stripe is asked for tax where that is configured, and what it has computed comes with how it was paid', async (t) => {
  const tax = { cents: 80, name: 'VAT', percent: 19, reason: 'standard_rated' };
  const paidWith = async (automaticTax: boolean, more: Partial<typeof tax>) => {
    const { fake, store, provider, payments, deliver } = await open(t, automaticTax);
    fake.tax = { ...tax, ...more };
    const topup = await payments.createTopup({ ...input('acct_a', 500), keepsCard: true });
    for (const event of fake.pay(topup.checkoutId!)) await deliver(event);
    const [form] = sentOf(fake, '/v1/checkout/sessions');
    assert.equal(form!['automatic_tax[enabled]'], automaticTax ? 'true' : undefined);
    assert.equal(form!['line_items[0][price_data][tax_behavior]'], automaticTax ? 'inclusive' : undefined);
    const { paymentId } = (await store.repositories.getTopup({ id: topup.id }))!;
    const asked = { paymentId: paymentId!, topupId: topup.id, amountCents: 500, currency: 'usd' };
    const checkout = await provider.paymentDetails({ ...asked, checkoutId: topup.checkoutId });
    const charge = await provider.paymentDetails({ ...asked, checkoutId: null });
    assert.deepEqual(charge.tax, checkout.tax);
    assert.deepEqual(checkout.method, { type: 'card', brand: 'visa', last4: '4242' });
    const entered = sentOf(fake, '/v1/tax/transactions/create_from_calculation');
    assert.deepEqual(
      entered.map(({ reference }) => reference),
      automaticTax ? [topup.id] : [],
    );
    return checkout.tax;
  };
  assert.equal(await paidWith(false, {}), undefined);
  assert.deepEqual(await paidWith(true, {}), { cents: 80, name: 'VAT', percent: '19', treatment: 'standard' });
  const [none, reverse, exempt] = [
    await paidWith(true, { cents: 0, percent: 0 }),
    await paidWith(true, { cents: 0, percent: 0, reason: 'reverse_charge' }),
    await paidWith(true, { cents: 0, percent: 0, reason: 'customer_exempt' }),
  ];
  assert.deepEqual(
    [none, reverse, exempt].map((found) => found?.treatment),
    ['standard', 'reverse_charge', 'exempt'],
  );
});
