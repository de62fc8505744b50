/**
 * Payments against what Stripe publishes: each call is judged by Stripe's own OpenAPI document, as stripe-mock has it, and
 * each event is one of Stripe's objects, signed by Stripe's library.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import Stripe from 'stripe';

import { Payments } from '../../../src/billing/payments/payments.ts';
import { PaymentError } from '../../../src/billing/payments/provider.ts';
import { apiVersion, eventTypes, StripeProvider } from '../../../src/billing/payments/stripe.ts';
import { input } from '../../billing/payments/claims.ts';
import { StripeFake } from '../../billing/payments/stripe-fake.ts';
import { callOf, parameters, placeOf } from '../../billing/payments/stripe-parameters.ts';
import { balanceOf, customer, differencesOf, openStore, temporaryFolder, usage, uuid } from '../../store/fixture.ts';
import { startStripeMock } from './stripe-mock.ts';

type Fields = Record<string, unknown>;

const cent = 1_000_000n;
const secretKey = 'sk_test_123';
const webhookSecret = 'whsec_of_these_tests';

let url = '';
const ends: (() => unknown)[] = [];
before(async () => {
  url = await startStripeMock({ after: (end) => void ends.push(end as () => unknown) });
});
after(async () => {
  for (const end of ends) await end();
});

const openProvider = (apiUrl = url, versions: string[] = [], automaticTax = false): StripeProvider =>
  new StripeProvider({
    secretKey,
    webhookSecret,
    apiUrl,
    automaticTax,
    otherVersion: (version) => versions.push(version),
  });

const official = (): Stripe =>
  new Stripe(secretKey, { host: '127.0.0.1', port: Number(new URL(url).port), protocol: 'http', apiVersion });

/** The call itself, and what was answered. */
async function ask(call: string, form: URLSearchParams): Promise<{ readonly status: number; readonly body: Fields }> {
  const [method = '', path = ''] = call.split(' ');
  const isGet = method === 'GET';
  const answer = await fetch(`${url}${path}${isGet ? `?${form.toString()}` : ''}`, {
    method,
    headers: {
      authorization: `Bearer ${secretKey}`,
      'content-type': 'application/x-www-form-urlencoded',
      'stripe-version': apiVersion,
    },
    ...(isGet ? {} : { body: form.toString() }),
    signal: AbortSignal.timeout(60_000),
  });
  return { status: answer.status, body: (await answer.json()) as Fields };
}

/** Checkouts of a top-up, of somebody new and of a known customer, and a charge of a saved method. */
async function everyCall(provider: StripeProvider): Promise<void> {
  const shared = { topupId: 'top_1', accountId: 'acct_a', amountCents: 500, currency: 'usd' };
  const urls = { successUrl: 'https://example.org/ok', cancelUrl: 'https://example.org/no' };
  for (const payer of [
    { keepsCard: true, customerId: undefined, email: 'bills@example.org' },
    { keepsCard: false, customerId: undefined, email: undefined },
    { keepsCard: false, customerId: 'cus_1', email: 'bills@example.org' },
  ]) {
    const idempotencyKey = `checkout ${JSON.stringify(payer)}`;
    const checkout = await provider.createCheckout({ ...shared, ...urls, ...payer, idempotencyKey });
    assert.match(checkout.checkoutId, /^cs_/);
    assert.ok(URL.canParse(checkout.checkoutUrl), checkout.checkoutUrl);
  }
  await provider.charge({ ...shared, customerId: 'cus_1', methodId: 'pm_1', idempotencyKey: 'charge' });
}

test('every call is one of Stripe’s API, and every answer is read', async () => {
  await everyCall(openProvider());
  const provider = openProvider(url, [], true);
  await everyCall(provider);
  for (const checkoutId of ['cs_1', null]) {
    const asked = { paymentId: 'pi_1', topupId: 'top_1', amountCents: 500, currency: 'usd', checkoutId };
    const { method } = await provider.paymentDetails(asked);
    assert.equal(method.type, 'card');
  }
  assert.match(await provider.refund({ paymentId: 'pi_1', amountCents: 200, idempotencyKey: 'refund' }), /^re_/);
  assert.equal(await provider.topupOf('pi_1'), undefined, 'the fixture has no labels of ours');
  const events = [];
  for await (const event of provider.eventsSince(Date.now() - 1000, AbortSignal.timeout(60_000))) events.push(event);
  // One of a plan, which has nothing to do with payments.
  assert.deepEqual([events.length, events[0]!.news], [1, { kind: 'other' }]);
});

test('a refusal by Stripe is distinguished from a Stripe that is away', async () => {
  const wrong = { paymentId: 'pi_1', idempotencyKey: 'x' };
  const failed = (code: string) => (error: unknown) => error instanceof PaymentError && error.code === code;
  await assert.rejects(openProvider().refund({ ...wrong, amountCents: 'many' as never }), failed('declined'));
  const stranger = new StripeProvider({
    secretKey: 'nonsense',
    webhookSecret,
    apiUrl: url,
    automaticTax: false,
    otherVersion: () => {},
  });
  await assert.rejects(stranger.refund({ ...wrong, amountCents: 1 }), failed('unavailable'));
});

test('what our fake takes, Stripe takes; what it refuses, Stripe refuses', async (t) => {
  const fake = new StripeFake();
  await fake.start();
  t.after(() => fake.close());
  const provider = new StripeProvider({
    secretKey: fake.key,
    webhookSecret: fake.webhookSecret,
    apiUrl: fake.url,
    automaticTax: true,
    otherVersion: assert.fail,
  });
  await everyCall(provider);
  const [session] = fake.sessionIds;
  const paymentId = fake.pay(session!)[0]!['data'] as { object: { id: string } };
  for (const checkoutId of [session!, null]) {
    const asked = { topupId: 'top_1', amountCents: 500, currency: 'usd', checkoutId };
    await provider.paymentDetails({ ...asked, paymentId: paymentId.object.id });
  }
  await provider.refund({ paymentId: paymentId.object.id, amountCents: 200, idempotencyKey: 'refund' });
  // More than one page, so that the next one is asked for.
  for (let count = 0; count < 3; count++) fake.dispute(paymentId.object.id);
  for await (const event of provider.eventsSince(Date.now() - 5000, AbortSignal.timeout(60_000))) assert.ok(event.id);

  const used = new Set<string>();
  const seen = new Set<string>();
  for (const { method, url: target, sent } of [...fake.requests]) {
    const { pathname, searchParams } = new URL(target, 'http://x');
    const call = `${method} ${pathname}`;
    const listed = callOf(method, pathname);
    const form = method === 'GET' ? searchParams : new URLSearchParams(sent);
    assert.equal((await ask(call, form)).status, 200, `${call} ${form.toString()}`);
    for (const [name] of form) {
      const place = placeOf(name);
      used.add(`${listed} ${place}`);
      const kind = parameters[listed]![place]!;
      if (kind === 'text' || seen.has(`${listed} ${place}`)) continue;
      seen.add(`${listed} ${place}`);
      const wrong = new URLSearchParams(form);
      wrong.set(name, 'nonsense');
      await refusedByBoth(fake, call, wrong);
    }
    const unknown = new URLSearchParams(form);
    unknown.set('no_such_parameter', '1');
    await refusedByBoth(fake, call, unknown);
  }
  const all = Object.entries(parameters).flatMap(([call, names]) =>
    Object.keys(names).map((name) => `${call} ${name}`),
  );
  assert.deepEqual([...used].toSorted(), all.toSorted(), 'the list has what is used, and nothing else');
});

async function refusedByBoth(fake: StripeFake, call: string, form: URLSearchParams): Promise<void> {
  const [method = '', path = ''] = call.split(' ');
  const isGet = method === 'GET';
  assert.equal((await ask(call, form)).status, 400, `${call} ${form.toString()}`);
  const answer = await fetch(`${fake.url}${path}${isGet ? `?${form.toString()}` : ''}`, {
    method,
    headers: {
      authorization: `Bearer ${fake.key}`,
      'stripe-version': apiVersion,
      'idempotency-key': crypto.randomUUID(),
    },
    ...(isGet ? {} : { body: form.toString() }),
  });
  assert.equal(answer.status, 400, `the fake has taken ${call} ${form.toString()}`);
}

/** Payments through Stripe on a store, and Stripe's own objects to tell them of. */
async function open(t: TestContext) {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  const [versions, logged]: [string[], string[]] = [[], []];
  const provider = openProvider(url, versions);
  const payments = new Payments({
    ...store,
    now: () => store.now(),
    newId: uuid,
    provider,
    currency: 'usd',
    log: (_level, event) => logged.push(event),
  });
  const stripe = official();
  const objectOf = async (path: string, changes: Fields): Promise<Fields> => {
    const { status, body } = await ask(`GET /v1/${path}`, new URLSearchParams());
    assert.equal(status, 200, path);
    // A field that Stripe does not have is a test that proves nothing.
    for (const name of Object.keys(changes)) assert.ok(name in body, `${path} has no ${name}`);
    return { ...body, ...changes };
  };
  const [shape] = (await stripe.events.list({ limit: 1 })).data;
  /** As Stripe would call the webhook. */
  const say = async (type: string, object: Fields, changes: Fields = {}) => {
    const event = {
      ...shape,
      id: `evt_${Buffer.from(uuid()).toString('hex')}`,
      api_version: apiVersion,
      created: Math.floor(Date.now() / 1000),
      type,
      data: { object },
      ...changes,
    };
    const payload = JSON.stringify(event, null, 2);
    const header = stripe.webhooks.generateTestHeaderString({ payload, secret: webhookSecret });
    const timestamp = Math.floor(Date.now() / 1000) - 301;
    const late = stripe.webhooks.generateTestHeaderString({ payload, secret: webhookSecret, timestamp });
    const forged = stripe.webhooks.generateTestHeaderString({ payload, secret: 'whsec_another' });
    const bytes = Buffer.from(payload);
    for (const signature of [late, forged])
      await assert.rejects(payments.receive(bytes, signature), (error) => error instanceof PaymentError);
    return await payments.receive(bytes, header);
  };
  const metadataOf = (topup: { readonly id: string; readonly accountId: string }, origin = 'checkout') => ({
    topup_id: topup.id,
    account_id: topup.accountId,
    origin,
  });
  return { file, store, provider, payments, versions, logged, objectOf, say, metadataOf };
}

test('each type of event that is handled, as Stripe writes and signs it', async (t) => {
  const { file, store, payments, versions, objectOf, say, metadataOf } = await open(t);
  const handled = new Set<string>();
  const report = async (type: (typeof eventTypes)[number], object: Fields) => {
    handled.add(type);
    return await say(type, object);
  };
  const start = () => payments.createTopup(input('acct_a', 500));
  const status = async (id: string) => (await store.repositories.getTopup({ id }))!.status;
  const balance = async (): Promise<bigint> => (await balanceOf(store, 'acct_a')) / cent;
  let number = 0;
  const paidSession = async (topup: Awaited<ReturnType<typeof start>>, paymentId: string, changes: Fields = {}) =>
    await objectOf(`checkout/sessions/cs_${++number}`, {
      payment_status: 'paid',
      status: 'complete',
      payment_intent: paymentId,
      amount_total: 500,
      currency: 'usd',
      client_reference_id: topup.id,
      metadata: metadataOf(topup),
      ...changes,
    });

  const first = await start();
  assert.ok(first.checkoutUrl?.startsWith('https://checkout.stripe.com/'), String(first.checkoutUrl));
  const waits = await paidSession(first, 'pi_1', { payment_status: 'unpaid' });
  assert.equal(await report('checkout.session.completed', waits), 'ignored');
  assert.equal(await report('checkout.session.completed', await paidSession(first, 'pi_1')), 'applied');
  const intent = await objectOf('payment_intents/pi_1', {
    amount: 500,
    amount_received: 500,
    status: 'succeeded',
    customer: 'cus_1',
    payment_method: 'pm_1',
    setup_future_usage: 'off_session',
    metadata: metadataOf(first),
  });
  assert.equal(await report('payment_intent.succeeded', intent), 'again');
  const saved = await store.repositories.getPaymentMethod({ accountId: 'acct_a', provider: 'stripe' });
  assert.deepEqual(saved, { customerId: 'cus_1', methodId: 'pm_1' });
  assert.equal(await balance(), 500n);

  const slow = await start();
  const failing = await paidSession(slow, 'pi_2', { payment_status: 'unpaid' });
  assert.equal(await report('checkout.session.async_payment_failed', failing), 'applied');
  assert.equal(await status(slow.id), 'failed');
  assert.equal(await report('checkout.session.async_payment_succeeded', await paidSession(slow, 'pi_2')), 'applied');
  const left = await start();
  const expired = await paidSession(left, 'pi_3', {
    payment_status: 'unpaid',
    payment_intent: null,
    status: 'expired',
  });
  assert.equal(await report('checkout.session.expired', expired), 'applied');
  assert.equal(await status(left.id), 'expired');
  const charged = await start();
  const declined = { status: 'requires_payment_method', amount_received: 0 };
  const auto = { ...intent, ...declined, id: 'pi_4', metadata: metadataOf(charged, 'auto') };
  assert.equal(await report('payment_intent.payment_failed', auto), 'applied');
  assert.equal(await status(charged.id), 'failed');
  const onPage = { ...auto, metadata: metadataOf(charged) };
  assert.equal(await say('payment_intent.payment_failed', onPage), 'ignored', 'another card may be tried');
  assert.equal(await balance(), 1000n);

  // The first top-up is refunded, and the refund fails; first by what is older, then by what is newer.
  const refundOf = (id: string, changes: Fields) =>
    objectOf(`refunds/${id}`, { payment_intent: 'pi_1', amount: 300, ...changes });
  assert.equal(await report('refund.created', await refundOf('re_1', { status: 'pending' })), 'ignored');
  assert.equal(await report('refund.updated', await refundOf('re_1', { status: 'succeeded' })), 'applied');
  assert.equal(await balance(), 700n);
  assert.equal(await report('refund.failed', await refundOf('re_1', { status: 'failed' })), 'applied');
  assert.equal(await report('charge.refund.updated', await refundOf('re_1', { status: 'failed' })), 'again');
  assert.equal(await balance(), 1000n);
  assert.equal(await say('charge.refund.updated', await refundOf('re_2', { status: 'failed' })), 'applied');
  assert.equal(await say('refund.created', await refundOf('re_2', { status: 'succeeded' })), 'again');
  assert.equal(await balance(), 1000n);

  const disputeOf = (id: string, changes: Fields) =>
    objectOf(`disputes/${id}`, { payment_intent: 'pi_2', amount: 500, ...changes });
  const inquiry = await disputeOf('dp_0', { status: 'warning_needs_response' });
  assert.equal(await report('charge.dispute.created', inquiry), 'ignored');
  assert.equal(
    await report('charge.dispute.created', await disputeOf('dp_1', { status: 'needs_response' })),
    'applied',
  );
  assert.equal(
    await report('charge.dispute.funds_withdrawn', await disputeOf('dp_1', { status: 'needs_response' })),
    'again',
  );
  assert.equal(await balance(), 500n);
  assert.equal(await report('charge.dispute.closed', await disputeOf('dp_1', { status: 'won' })), 'applied');
  assert.equal(await report('charge.dispute.funds_reinstated', await disputeOf('dp_1', { status: 'won' })), 'again');
  assert.equal(await balance(), 1000n);
  assert.equal(await say('charge.dispute.created', await disputeOf('dp_2', { status: 'needs_response' })), 'applied');
  assert.equal(await say('charge.dispute.closed', await disputeOf('dp_2', { status: 'lost' })), 'ignored');
  assert.equal(await balance(), 500n, 'what was lost stays taken');

  const abroad = await refundOf('re_3', { status: 'succeeded', currency: 'eur' });
  assert.equal(await say('refund.created', abroad), 'refused');
  assert.equal(await balance(), 500n);
  assert.deepEqual([...handled].toSorted(), [...eventTypes].toSorted());
  assert.deepEqual(versions, []);
  assert.deepEqual(await differencesOf(file), []);
});

test('an event of another release is read and reported; one of another product moves nothing', async (t) => {
  const { store, payments, versions, objectOf, say } = await open(t);
  await payments.createTopup(input('acct_a', 500));
  const foreign = await objectOf('checkout/sessions/cs_1', { payment_status: 'paid', amount_total: 500 });
  assert.equal(await say('checkout.session.completed', foreign, { api_version: '2026-08-26.dahlia' }), 'ignored');
  assert.equal(await say('checkout.session.completed', foreign, { api_version: '2026-08-26.dahlia' }), 'ignored');
  assert.deepEqual(versions, ['2026-08-26.dahlia']);
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
});

test('Stripe’s objects survive a spent balance', async (t) => {
  const { file, store, payments, objectOf, say, metadataOf } = await open(t);
  const topup = await payments.createTopup(input('acct_a', 500));
  const intent = await objectOf('payment_intents/pi_1', { amount_received: 500, metadata: metadataOf(topup) });
  assert.equal(await say('payment_intent.succeeded', intent), 'applied');
  await store.ledger.settle(usage('acct_a', 400n * cent, { promptTokens: 400_000_000 }));
  const refund = await objectOf('refunds/re_1', { payment_intent: 'pi_1', amount: 500 });
  assert.equal(await say('refund.created', refund), 'applied');
  assert.equal(await balanceOf(store, 'acct_a'), 0n);
  assert.equal(await say('refund.failed', { ...refund, status: 'failed' }), 'applied');
  assert.equal(await balanceOf(store, 'acct_a'), 100n * cent);
  assert.deepEqual(await differencesOf(file), []);
});
