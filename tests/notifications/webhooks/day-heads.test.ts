/** Whoever has an endpoint gets the signed head of each day, once, and can check receipts with what arrived. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';

import { UsageHeads } from '../../../src/app/usage-heads.ts';
import { checkProof, publishedIn } from '../../../src/store/proofs/check-proof.ts';
import type { DayHead } from '../../../src/store/proofs/forms.ts';
import { grant, usage } from '../../store/fixture.ts';
import { openScene, startReceiver, type Received } from './receiver.ts';

interface Event {
  readonly id: string;
  readonly type: string;
  readonly account_id: string;
  readonly data: DayHead;
}
const eventOf = (received: Received): Event => JSON.parse(received.body) as Event;

test('the head of a day arrives once, signed, as the API answers it, and a receipt is checked with it', async (t) => {
  const receiver = await startReceiver(t);
  const { ask, host, clock } = await openScene(t, [receiver.host]);
  const { operations } = host.services;
  clock.now = Date.parse('2026-11-28T22:00:00Z');
  const heads = new UsageHeads(operations);
  await heads.run(Infinity);
  await host.jobs.run('notices');
  assert.deepEqual(await operations.repositories.listNotices({ after: '', limit: 10 }), [], 'nobody is to be notified');
  await operations.ledger.transfer(grant('acct_a', 10n ** 12n));
  const row = usage('acct_a', 1234n, { startedAt: clock.now - 100, endedAt: clock.now });
  assert.equal(await operations.ledger.settle(row), 'billed');
  const made = await ask('POST', '/v1/webhook_endpoints', { url: receiver.url, events: ['day_head.signed'] });
  assert.equal(made.status, 201, JSON.stringify(made.json));
  const { secret } = made.json as { readonly secret: string };
  await ask('POST', '/v1/webhook_endpoints', { url: `${receiver.url}&all` });
  await ask('POST', '/v1/webhook_endpoints', { url: `${receiver.url}&keys`, events: ['key.revoked'] });

  clock.now = Date.parse('2026-11-29T01:00:00Z');
  await heads.run(Infinity);
  const [notice] = await operations.repositories.listNotices({ after: '', limit: 10 });
  const { repositories } = operations;
  const { signature, ...head } = (await repositories.getDayHead({ day: Date.parse('2026-11-28') }))!;
  await repositories.addDayHead({ head, signature });
  await host.jobs.run('notices');
  // As another replica that had read the notice before it was forgotten.
  const id = `${notice!.id}_acct_a`;
  await host.services.events.emit('acct_a', 'day_head.signed', { ...head, signature }, id);
  await repositories.addDayHead({ head, signature });
  await host.jobs.run('notices');
  await host.jobs.run('webhooks');
  assert.deepEqual(receiver.received.map(({ path }) => path).sort(), ['/hook?x=1', '/hook?x=1&all']);
  const one = receiver.received.find(({ path }) => path === '/hook?x=1')!;
  const { 'webhook-id': eventId, 'webhook-timestamp': seconds, 'webhook-signature': signed } = one.headers;
  const expected = createHmac('sha256', Buffer.from(secret.slice(6), 'base64'))
    .update(`${String(eventId)}.${String(seconds)}.${one.body}`)
    .digest('base64');
  assert.equal(signed, `v1,${expected}`);
  const event = eventOf(one);
  assert.deepEqual([event.id, event.type, event.account_id], [id, 'day_head.signed', 'acct_a']);
  assert.equal(eventId, id);
  assert.deepEqual(event.data, (await ask('GET', '/v1/heads/2026-11-28')).json);

  const proving = await repositories.proveUsage({ accountId: 'acct_a', requestId: row.requestId });
  assert.ok(proving.state === 'proved');
  const proof = JSON.stringify(proving.proof);
  const kept = (data: object) => ({ heads: publishedIn(JSON.stringify(data), 'heads') });
  assert.equal(checkProof(proof, kept(event.data)).problem, undefined);
  assert.match(
    checkProof(proof, kept({ ...(event.data as object), root: '0'.repeat(64) })).problem!,
    /two heads of one day/,
  );
});

test('accounts are notified a page at a time, each once, also those that were notified already', async (t) => {
  const { host, clock } = await openScene(t, ['127.0.0.1:1']);
  const { operations, events } = host.services;
  const { repositories } = operations;
  const accounts = Array.from({ length: 120 }, (_, index) => `acct_m${String(index).padStart(3, '0')}`);
  for (const [index, accountId] of accounts.entries())
    await repositories.addWebhookEndpoint({
      id: `whe_${index}`,
      accountId,
      url: 'http://127.0.0.1:1/',
      description: '',
      events: null,
      at: clock.now,
      max: 1,
    });
  await new UsageHeads(operations).run(Infinity);
  const [notice] = await repositories.listNotices({ after: '', limit: 10 });
  // A process that died after it had notified some of a page.
  await events.emit('acct_m001', 'day_head.signed', {}, `${notice!.id}_acct_m001`);
  for (let run = 0; run < 3; run++) await host.jobs.run('notices');
  assert.deepEqual(await repositories.listNotices({ after: '', limit: 10 }), []);
  for (const [index, accountId] of accounts.entries()) {
    const delivered = await repositories.listDeliveries({ accountId, endpointId: `whe_${index}`, limit: 10 });
    assert.deepEqual(
      delivered.map((delivery) => delivery.eventId),
      [`${notice!.id}_${accountId}`],
    );
  }
});
