import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { demoPaymentRoutes } from '../../../src/account-api/routes/demo-payments.ts';
import { paymentRoutes } from '../../../src/account-api/routes/payments.ts';
import { demoEventSecret } from '../../../src/billing/payments/demo.ts';
import { openHost } from '../../account-api/host.ts';
import { usage } from '../../store/fixture.ts';
import { signAsStripe } from './sign.ts';
import { withDemoPayments } from './demo-services.ts';

/** What the answers of these tests hold. */
interface Shown {
  readonly id: string;
  readonly type: string;
  readonly status: string;
  readonly state: string;
  readonly outcome?: string;
  readonly checkout_url: string;
  readonly next_after: string;
  readonly has_more: boolean;
  readonly has_payment_method: boolean;
  readonly balance_cents: number;
  readonly balance_microcents: number;
  readonly total_credits_cents: number;
  readonly total_usage_cents: number;
  readonly refunded_cents: number;
  readonly threshold_cents: number;
  readonly proposed_threshold_cents: number;
  readonly amount_cents: number;
  readonly amount_microcents: number;
  readonly balance_after_microcents: number;
  readonly error: { readonly code: string; readonly param?: string };
  readonly data: readonly Shown[];
}

const cent = 1_000_000n;

async function open(t: TestContext) {
  const host = await openHost(t, [...paymentRoutes, ...demoPaymentRoutes], Date.now, { more: withDemoPayments });
  const accountId = await host.account('acct_one');
  const [key, viewer] = [await host.key(accountId, 'billing'), await host.key(accountId, 'viewer')];
  const json = async (method: string, path: string, request: Parameters<typeof host.ask>[2] = {}) => {
    const answer = await host.ask(method, path, { key, ...request });
    return { status: answer.status, body: (answer.body === '' ? {} : JSON.parse(answer.body)) as Shown };
  };
  const play = (url: string, outcome: string) =>
    host.ask('POST', new URL(url).pathname, {
      body: `outcome=${outcome}`,
      headers: [['content-type', 'application/x-www-form-urlencoded']],
    });
  return { host, accountId, key, viewer, json, play };
}

test('a top-up over HTTP: made once per key, paid on its page, seen in credit and ledger', async (t) => {
  const { host, accountId, viewer, json, play } = await open(t);
  const body = { amount_cents: 500, success_url: 'http://localhost:9/done' };
  const headers = [['Idempotency-Key', 'k1']] as const;
  const made = await json('POST', '/v1/credits/topups', { json: body, headers });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  assert.equal(made.body.status, 'pending');
  const again = await json('POST', '/v1/credits/topups', { json: body, headers });
  assert.equal(again.body.id, made.body.id);
  const other = await json('POST', '/v1/credits/topups', { json: { amount_cents: 501 }, headers });
  assert.deepEqual([other.status, other.body.error.code], [409, 'http_409']);
  for (const amount of [99, 100_001]) {
    const { status, body } = await json('POST', '/v1/credits/topups', { json: { amount_cents: amount } });
    assert.deepEqual([status, body.error.param], [400, 'amount_cents']);
  }
  const evil = await json('POST', '/v1/credits/topups', { json: { ...body, success_url: 'javascript:alert(1)' } });
  assert.deepEqual([evil.status, evil.body.error.param], [400, 'success_url']);
  assert.equal((await json('POST', '/v1/credits/topups', { key: viewer, json: body })).status, 403);
  assert.equal((await json('GET', '/v1/credits')).body.balance_cents, 0);

  const page = await host.ask('GET', new URL(made.body.checkout_url).pathname);
  assert.match(page.body, /No money moves here/);
  assert.match(page.body, /5\.00 USD/);
  const paid = await play(made.body.checkout_url, 'duplicate');
  assert.equal(paid.status, 303);
  assert.equal(paid.headers['location'], 'http://localhost:9/done');
  assert.equal((await play(made.body.checkout_url, 'success')).status, 409);
  assert.equal((await play(made.body.checkout_url, 'nonsense')).status, 400);

  const read = await json('GET', `/v1/credits/topups/${made.body.id}`);
  assert.deepEqual([read.body.status, read.body.checkout_url], ['paid', null]);
  const stranger = await host.key(await host.account('acct_two'), 'owner');
  for (const id of [made.body.id, `top_${'0'.repeat(32)}`])
    assert.equal((await json('GET', `/v1/credits/topups/${id}`, { key: stranger })).status, 404);
  await json('POST', '/v1/credits/topups', { json: body });
  const first = await json('GET', '/v1/credits/topups?limit=1');
  assert.deepEqual([first.body.data.length, first.body.has_more], [1, true]);
  const second = await json('GET', `/v1/credits/topups?limit=1&after=${first.body.next_after}`);
  assert.deepEqual([second.body.data[0]!.id, second.body.has_more], [made.body.id, false]);

  const { ledger } = host.services.operations;
  await ledger.settle(usage(accountId, 2n * cent, { promptTokens: 2_000_000 }));
  const credit = (await json('GET', '/v1/credits')).body;
  assert.equal(credit.total_credits_cents, 500);
  assert.equal(credit.total_usage_cents, 2);
  assert.equal(credit.balance_microcents, 498_000_000);
  const entries = (await json('GET', '/v1/ledger')).body.data;
  assert.deepEqual(
    entries.map((entry: Shown) => [entry.type, entry.amount_microcents, entry.balance_after_microcents]),
    [
      ['usage', -2_000_000, 498_000_000],
      ['topup', 500_000_000, 500_000_000],
    ],
  );
});

test('the webhook over HTTP: signed bytes are taken once, all else is refused in words', async (t) => {
  const { host, accountId, json } = await open(t);
  const { demoPayments } = host.services.operations.secret;
  const { body: topup } = await json('POST', '/v1/credits/topups', { json: { amount_cents: 500 } });
  const event = (changes: object = {}) =>
    JSON.stringify({
      id: 'evt_1',
      type: 'checkout.session.completed',
      created: 1_750_000_000,
      data: {
        object: {
          payment_status: 'paid',
          payment_intent: 'pi_1',
          amount_total: 500,
          currency: 'usd',
          metadata: { topup_id: topup.id, account_id: accountId },
          ...changes,
        },
      },
    });
  const send = async (text: string, signature?: string) => {
    const answer = await host.ask('POST', '/v1/webhooks/payments', {
      body: text,
      headers: [
        ['content-type', 'application/json'],
        ...(signature === undefined ? [] : [['stripe-signature', signature] as const]),
      ],
    });
    const body = JSON.parse(answer.body) as Shown;
    return [answer.status, body.outcome ?? body.error.code];
  };
  const sign = (text: string, ms = Date.now()) => signAsStripe(Buffer.from(text), demoEventSecret(demoPayments), ms);
  const good = event();
  assert.deepEqual(await send(good), [400, 'unsupported_value']);
  assert.deepEqual(await send(good, sign(event({ currency: 'eur' }))), [400, 'unsupported_value']);
  assert.deepEqual(await send(good, sign(good, Date.now() - 400_000)), [400, 'unsupported_value']);
  const early = JSON.stringify({
    id: 'evt_2',
    type: 'refund.created',
    created: 1_750_000_000,
    data: { object: { id: 're_1', payment_intent: 'pi_1', amount: 100, currency: 'usd', status: 'succeeded' } },
  });
  assert.deepEqual(await send(early, sign(early)), [409, 'http_409']);
  assert.deepEqual(await send(good, sign(good)), [200, 'applied']);
  assert.deepEqual(await send(good, sign(good)), [200, 'again']);
  assert.deepEqual(await send(early, sign(early)), [200, 'applied']);
  assert.equal((await json('GET', '/v1/credits')).body.balance_cents, 400);
  assert.deepEqual(host.failures, []);
});

test('an operator refunds a top-up through the provider, once per key', async (t) => {
  const { host, accountId, json, play } = await open(t);
  const operator = await host.key(accountId, 'owner', true);
  const { body: topup } = await json('POST', '/v1/credits/topups', { json: { amount_cents: 500 } });
  const refund = (key: string, more: object = {}) =>
    json('POST', '/v1/admin/refunds', {
      key: operator,
      json: { topup_id: topup.id, ...more },
      headers: [['Idempotency-Key', key]],
    });
  assert.equal((await refund('a')).status, 409, 'nothing was paid yet');
  await play(topup.checkout_url, 'success');
  assert.equal((await json('POST', '/v1/admin/refunds', { json: { topup_id: topup.id } })).status, 403);
  const [one, same] = [await refund('a', { amount_cents: 200 }), await refund('a', { amount_cents: 200 })];
  assert.equal(one.status, 202, JSON.stringify(one.body));
  assert.equal(one.body.id, same.body.id);
  assert.equal((await json('GET', '/v1/credits')).body.balance_cents, 300);
  assert.equal((await refund('b')).status, 409, 'more than is left');
  assert.equal((await refund('c', { amount_cents: 300 })).status, 202);
  const read = (await json('GET', `/v1/credits/topups/${topup.id}`)).body;
  assert.deepEqual([read.status, read.refunded_cents], ['refunded', 500]);
});

test('automatic top-up is set, shown, and needs a saved payment method', async (t) => {
  const { json, play, host, accountId } = await open(t);
  const input = { enabled: true, threshold_cents: 200, amount_cents: 500, monthly_cap_cents: 2000 };
  const put = (changes: object = {}) => json('PUT', '/v1/credits/auto_topup', { json: { ...input, ...changes } });
  assert.equal((await put()).status, 409);
  const { body: once } = await json('POST', '/v1/credits/topups', { json: { amount_cents: 500 } });
  await play(once.checkout_url, 'success');
  assert.equal((await put()).status, 409, 'a card that nobody asked to keep is not kept');
  assert.deepEqual((await put({ monthly_cap_cents: 499 })).body.error.param, 'monthly_cap_cents');
  const { body: topup } = await json('POST', '/v1/credits/topups', {
    json: { amount_cents: 500, save_payment_method: true },
  });
  await play(topup.checkout_url, 'success');
  await host.services.operations.ledger.settle(
    usage(accountId, cent, { promptTokens: 1_000_000, holdMicrocents: 3n * cent }),
  );
  const set = await put();
  assert.equal(set.status, 200, JSON.stringify(set.body));
  assert.deepEqual(
    [set.body.state, set.body.threshold_cents, set.body.has_payment_method, set.body.proposed_threshold_cents],
    ['on', 200, true, 6],
  );
  assert.equal((await put({ enabled: false })).body.state, 'off');
});
