/** Webhooks out: signed, sent at least once, again with growing pauses, and to no address of a private network. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';

import { pausesMs } from '../../../src/notifications/webhooks/deliveries.ts';
import { answerBytesMax } from '../../../src/notifications/webhooks/post.ts';
import { webhookTarget } from '../../../src/notifications/webhooks/target.ts';
import { forbiddenUrls } from '../../platform/outbound/forbidden-urls.ts';
import { DnsServer } from '../../support/dns-server.ts';
import { openScene, startReceiver } from './receiver.ts';

interface Endpoint {
  readonly id: string;
  readonly secret: string;
  readonly status: string;
  readonly disabled_reason: string | null;
}
interface Delivery {
  readonly id: string;
  readonly event_id: string;
  readonly type: string;
  readonly state: string;
  readonly tries: number;
  readonly next_try_at: number | null;
  readonly response_status: number | null;
  readonly response_body: string | null;
  readonly failure: string | null;
}

test('a ping arrives, signed as Standard Webhooks has it, with the secret that was shown once', async (t) => {
  const receiver = await startReceiver(t);
  const { ask, host, clock } = await openScene(t, [receiver.host]);
  const made = await ask('POST', '/v1/webhook_endpoints', { url: receiver.url });
  assert.equal(made.status, 201);
  const { id, secret } = made.json as Endpoint;
  assert.match(secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  assert.doesNotMatch(JSON.stringify((await ask('GET', `/v1/webhook_endpoints/${id}`)).json), /whsec_/);
  const pinged = await ask('POST', `/v1/webhook_endpoints/${id}/test`);
  assert.equal(pinged.status, 202);
  await host.jobs.run('webhooks');
  const [request, ...others] = receiver.received;
  assert.deepEqual(others, []);
  assert.equal(request!.path, '/hook?x=1');
  const { 'webhook-id': eventId, 'webhook-timestamp': seconds, 'webhook-signature': signed } = request!.headers;
  assert.equal(eventId, (pinged.json as { event_id: string }).event_id);
  assert.equal(seconds, String(Math.floor(clock.now / 1_000)));
  const expected = createHmac('sha256', Buffer.from(secret.slice(6), 'base64'))
    .update(`${String(eventId)}.${String(seconds)}.${request!.body}`)
    .digest('base64');
  assert.equal(signed, `v1,${expected}`);
  const body = JSON.parse(request!.body) as { readonly id: string; readonly type: string; readonly data: object };
  assert.deepEqual([body.id, body.type, body.data], [eventId, 'ping', { endpoint_id: id }]);
  const listed = await ask('GET', `/v1/webhook_endpoints/${id}/deliveries`);
  const [delivery] = (listed.json as { readonly data: readonly Delivery[] }).data;
  assert.deepEqual(
    [delivery!.state, delivery!.tries, delivery!.response_status, delivery!.response_body, delivery!.failure],
    ['delivered', 1, 200, 'ok', null],
  );
});

test('events go to the endpoints that want them, once each, and another account has none of it', async (t) => {
  const receiver = await startReceiver(t);
  const { ask, host } = await openScene(t, [receiver.host]);
  await ask('POST', '/v1/webhook_endpoints', { url: `${receiver.url}&all` });
  await ask('POST', '/v1/webhook_endpoints', { url: `${receiver.url}&keys`, events: ['key.revoked'] });
  await host.account('acct_b');
  const other = await host.key('acct_b', 'owner');
  await ask('POST', '/v1/webhook_endpoints', { url: `${receiver.url}&b` }, other);
  const { events } = host.services;
  for (let twice = 0; twice < 2; twice++) await events.emit('acct_a', 'invoice.issued', { n: 1 }, 'evt_1');
  await events.emit('acct_a', 'key.revoked', { n: 2 });
  await host.jobs.run('webhooks');
  const got = receiver.received.map(({ path, body }) => [path, (JSON.parse(body) as { type: string }).type]);
  assert.deepEqual(got.sort(), [
    ['/hook?x=1&all', 'invoice.issued'],
    ['/hook?x=1&all', 'key.revoked'],
    ['/hook?x=1&keys', 'key.revoked'],
  ]);
});

test('a key that is revoked is notified of', async (t) => {
  const receiver = await startReceiver(t);
  const { ask, host } = await openScene(t, [receiver.host]);
  await ask('POST', '/v1/webhook_endpoints', { url: receiver.url, events: ['key.revoked'] });
  await host.key('acct_a', null);
  const keys = await host.services.operations.repositories.listKeys({ accountId: 'acct_a' });
  const { id, name } = keys.find((key) => key.name.startsWith('null'))!;
  assert.equal((await ask('DELETE', `/v1/keys/${id}`)).status, 200);
  await host.jobs.run('notices');
  await host.jobs.run('webhooks');
  const event = JSON.parse(receiver.received[0]!.body) as { readonly type: string; readonly data: object };
  assert.deepEqual([event.type, event.data], ['key.revoked', { key_id: id, name }]);
});

test('a try that fails is followed by others after growing pauses; the endpoint is disabled after days, loudly', async (t) => {
  const receiver = await startReceiver(t, (_, response) => response.writeHead(503).end('x'.repeat(5_000)));
  const { ask, host, clock } = await openScene(t, [receiver.host]);
  const { id } = (await ask('POST', '/v1/webhook_endpoints', { url: receiver.url })).json as Endpoint;
  await host.services.events.emit('acct_a', 'key.revoked', {});
  const delivery = async (): Promise<Delivery> =>
    ((await ask('GET', `/v1/webhook_endpoints/${id}/deliveries`)).json as { data: Delivery[] }).data[0]!;
  await host.jobs.run('webhooks');
  for (const [index, pause] of pausesMs.entries()) {
    const { tries, state, next_try_at: next, response_body: answer, failure } = await delivery();
    assert.deepEqual([tries, state, answer!.length], [index + 1, 'waiting', answerBytesMax]);
    assert.match(failure!, /503/);
    const after = next! * 1_000 - clock.now;
    assert.ok(after >= pause * 0.9 - 1_000 && after <= pause * 1.1 + 1_000, `${after} is about ${pause}`);
    await host.jobs.run('webhooks');
    assert.equal(receiver.received.length, index + 1, 'not before its time');
    clock.now = next! * 1_000 + 1_000;
    await host.jobs.run('webhooks');
    const { status, disabled_reason: reason } = (await ask('GET', `/v1/webhook_endpoints/${id}`)).json as Endpoint;
    if (status === 'disabled') {
      assert.equal(reason, 'failing');
      assert.ok(index > 5);
      break;
    }
  }
  const ids = new Set(receiver.received.map(({ headers }) => headers['webhook-id']));
  assert.equal(ids.size, 1, 'one id in all tries');
});

test('what failed can be replayed, and an endpoint that recovers is no longer failing', async (t) => {
  let isUp = false;
  const receiver = await startReceiver(t, (_, response) => response.writeHead(isUp ? 204 : 500).end());
  const { ask, host, key } = await openScene(t, [receiver.host]);
  const { id } = (await ask('POST', '/v1/webhook_endpoints', { url: receiver.url })).json as Endpoint;
  await host.services.events.emit('acct_a', 'key.revoked', {});
  await host.jobs.run('webhooks');
  const [delivery] = ((await ask('GET', `/v1/webhook_endpoints/${id}/deliveries`)).json as { data: Delivery[] }).data;
  isUp = true;
  await host.account('acct_b');
  const other = await host.key('acct_b', 'owner');
  const path = `/v1/webhook_deliveries/${delivery!.id}/replay`;
  assert.equal((await ask('POST', path, undefined, other)).status, 404);
  assert.equal((await ask('POST', path, undefined, key)).status, 202);
  await host.jobs.run('webhooks');
  assert.equal(receiver.received.length, 2);
  assert.equal(receiver.received[0]!.body, receiver.received[1]!.body);
  const endpoint = (await ask('GET', `/v1/webhook_endpoints/${id}`)).json as { readonly failing_since: unknown };
  assert.equal(endpoint.failing_since, null);
});

test('a redirect is not followed, and a receiver that never answers is given up', async (t) => {
  const receiver = await startReceiver(t, ({ path }, response) => {
    if (path.endsWith('redirect')) response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end();
  });
  const { ask, host } = await openScene(t, [receiver.host]);
  for (const what of ['redirect', 'silent'])
    await ask('POST', '/v1/webhook_endpoints', { url: `http://${receiver.host}/${what}` });
  await host.services.events.emit('acct_a', 'key.revoked', {});
  await host.jobs.run('webhooks');
  assert.equal(receiver.received.length, 2);
  const { data } = (await ask('GET', '/v1/webhook_endpoints')).json as { data: Endpoint[] };
  const failures = await Promise.all(
    data.map(
      async ({ id }) =>
        ((await ask('GET', `/v1/webhook_endpoints/${id}/deliveries`)).json as { data: Delivery[] }).data[0]!.failure,
    ),
  );
  assert.deepEqual(failures, [
    'no answer within 10 seconds',
    'the endpoint answered 302, a redirect, which is not followed',
  ]);
});

test('no address of a private network: the catalogue of images, plain http, and this service itself', async (t) => {
  const { ask } = await openScene(t, []);
  const rules = { allowedHosts: new Set<string>(), ownHosts: new Set(['tokens.example.org']) };
  for (const url of [...forbiddenUrls, 'http://example.com/', 'https://tokens.example.org/', 'ftp://example.com/'])
    assert.throws(() => webhookTarget(url, rules, 'url'), { code: 'unsupported_value', param: 'url' }, url);
  const refused = await ask('POST', '/v1/webhook_endpoints', { url: 'https://169.254.169.254/latest' });
  assert.equal(refused.status, 400);
  assert.equal((await ask('POST', '/v1/webhook_endpoints', { url: 'https://example.com/hook' })).status, 201);
});

test('a name that stands for a private address is not dialled, and the answer tells nothing of the network', async (t) => {
  const dns = await DnsServer.start((_, type) => (type === 'A' ? ['A 127.0.0.1'] : []));
  t.after(() => dns.close());
  const { ask, host } = await openScene(t, [], [dns.address]);
  const { id } = (await ask('POST', '/v1/webhook_endpoints', { url: 'https://hooks.example.com/' })).json as Endpoint;
  await host.services.events.emit('acct_a', 'key.revoked', {});
  await host.jobs.run('webhooks');
  const [delivery] = ((await ask('GET', `/v1/webhook_endpoints/${id}/deliveries`)).json as { data: Delivery[] }).data;
  assert.equal(delivery!.state, 'waiting');
  assert.equal(delivery!.failure, 'The webhook URL points at a private network.');
  assert.ok(dns.queries.includes('A hooks.example.com'));
});

test('the queue of an account is bounded, and what found no place is kept as dropped', async (t) => {
  const receiver = await startReceiver(t, (_, response) => response.writeHead(500).end());
  const { ask, host, clock } = await openScene(t, [receiver.host]);
  const { id } = (await ask('POST', '/v1/webhook_endpoints', { url: receiver.url })).json as Endpoint;
  const { repositories } = host.services.operations;
  const add = (n: number) =>
    repositories.addWebhookEvent({
      accountId: 'acct_a',
      eventId: `evt_${n}`,
      type: 'key.revoked',
      body: '{}',
      at: clock.now,
      waitingMax: 3,
      ids: [`whd_${String(n).padStart(32, '0')}`],
    });
  for (let n = 0; n < 3; n++) assert.deepEqual(await add(n), { waiting: 1, dropped: 0 });
  assert.deepEqual(await add(3), { waiting: 0, dropped: 1 });
  const { data } = (await ask('GET', `/v1/webhook_endpoints/${id}/deliveries?limit=1`)).json as { data: Delivery[] };
  assert.equal(data[0]!.state, 'dropped');
  assert.match(data[0]!.failure!, /too many/);
});

test('two processes that look at the same time send a delivery once; one that died is taken over', async (t) => {
  const { ask, host, clock } = await openScene(t, ['127.0.0.1:9']);
  await ask('POST', '/v1/webhook_endpoints', { url: 'http://127.0.0.1:9/' });
  const { repositories } = host.services.operations;
  await repositories.addWebhookEvent({
    accountId: 'acct_a',
    eventId: 'evt_1',
    type: 'key.revoked',
    body: '{}',
    at: clock.now,
    waitingMax: 3,
    ids: ['whd_1'],
  });
  const claim = (now: number) =>
    repositories.claimDeliveries({ now, claimedUntil: now + 60_000, limit: 10, perAccountMax: 10 });
  const both = await Promise.all([claim(clock.now), claim(clock.now)]);
  assert.equal(both.flat().length, 1);
  assert.equal((await claim(clock.now + 59_999)).length, 0);
  assert.equal((await claim(clock.now + 60_000)).length, 1);
});

test('an endpoint is changed, disabled and deleted by those who manage the account alone', async (t) => {
  const { ask, host } = await openScene(t, []);
  const { id } = (await ask('POST', '/v1/webhook_endpoints', { url: 'https://example.com/a' })).json as Endpoint;
  const viewer = await host.key('acct_a', 'viewer');
  assert.equal((await ask('GET', '/v1/webhook_endpoints', undefined, viewer)).status, 403);
  const disabled = await ask('PATCH', `/v1/webhook_endpoints/${id}`, { enabled: false, events: ['invoice.issued'] });
  assert.deepEqual((disabled.json as Endpoint).disabled_reason, 'asked');
  assert.equal((await ask('POST', `/v1/webhook_endpoints/${id}/test`)).status, 409);
  assert.equal((await ask('PATCH', `/v1/webhook_endpoints/${id}`, { url: 'https://127.0.0.1/' })).status, 400);
  assert.equal((await ask('DELETE', `/v1/webhook_endpoints/${id}`)).status, 204);
  assert.equal((await ask('DELETE', `/v1/webhook_endpoints/${id}`)).status, 404);
  assert.equal((await ask('GET', `/v1/webhook_endpoints/${id}`)).status, 404);
  const actions = (await host.services.operations.repositories.listAudit({ accountId: 'acct_a', limit: 10 })).map(
    ({ action }) => action,
  );
  assert.deepEqual(actions, ['webhook_endpoint.delete', 'webhook_endpoint.change', 'webhook_endpoint.create']);
});
