/** The service is stopped while requests run (docs/money.md, "the service was stopped"; reliability S7). */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import { until } from '../support/service.ts';
import {
  ask,
  assertNothingLeft,
  cost,
  errorOf,
  endingsService,
  promptTokensOf,
  send,
  streamError,
} from './endings-service.ts';

test('while the service stops: the port is closed, it is not ready, takes no new work, and what runs goes on and finishes', async (t) => {
  const service = endingsService({
    limits: 'drain_timeout_seconds: 60',
    scripts: `
- when: { last_text: soon done }
  say: [ { text: [ "word " ] } ]
  repeat: 60
  pace_ms: 10
`,
  });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const streamed = await send(service, ask('paced', { stream: true }));
  // Connections whose request has begun are no idle ones: they can still ask whether the service is ready, and for work.
  const lateReady = await RawClient.connect(service.url);
  lateReady.send('GET /readyz HTTP/1.1\r\nhost: test\r\n');
  const lateId = newRequestId();
  const lateChat = await RawClient.connect(service.url);
  const bytes = chatBytes(service.key, lateId, ask('three words'));
  lateChat.send(bytes.slice(0, 50));
  await until(() => streamed.client.events.length > 1);
  const finishing = await Promise.all([true, false].map((stream) => send(service, ask('soon done', { stream }))));
  await until(() => finishing[0]!.client.events.length > 1);

  const exit = service.stop('SIGTERM');
  await until(async () => await isRefused(service.url));
  const seen = streamed.client.events.length;
  await until(() => streamed.client.events.length > seen + 3);
  lateReady.send('\r\n');
  await until(() => lateReady.text.endsWith('}'));
  assert.equal(lateReady.status, 503);
  lateChat.send(bytes.slice(50));
  await until(() => lateChat.text.endsWith('}}'));
  assert.equal(lateChat.status, 503);
  assert.match(lateChat.text, /"code":"no_healthy_backends"/);
  assert.match(lateChat.text, /\r\nconnection: close\r\n/i);
  assert.deepEqual(await ledger.rows(lateId), []);

  for (const { client, id } of finishing) {
    await until(() => client.text.includes('[DONE]') || client.text.endsWith('}}}'));
    assert.equal(client.status, 200);
    const row = await ledger.row(id);
    assert.deepEqual([row.ending, row.costMicrocents], ['finished', cost(promptTokensOf('soon done'), 60)]);
  }
  streamed.client.reset();
  assert.equal(await exit, 0, 'with the last request gone there is nothing to wait for');
  assert.equal((await ledger.row(streamed.id)).ending, 'client_left');
  await ledger.verify({ owned: false });
});

test('drained: what does not finish in time ends in no_healthy_backends and costs nothing', async (t) => {
  const service = endingsService({ limits: 'drain_timeout_seconds: 0.5' });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const balance = await ledger.balance();
  const streamed = await send(service, ask('paced', { stream: true }));
  const whole = await send(service, ask('paced'));
  const silent = await send(service, ask('silence', { stream: true }));
  await until(async () => streamed.client.events.length > 1 && (await ledger.openRequests()) === 3);

  assert.equal(await service.stop('SIGTERM'), 0);
  await until(() => streamed.client.events.at(-1) === '[DONE]');
  const reported = streamError(streamed.client.events);
  assert.deepEqual(
    [reported.code, reported['model'], reported.request_id],
    ['no_healthy_backends', 'demo', streamed.id],
  );
  for (const { client } of [whole, silent]) {
    await client.closed;
    assert.equal(client.status, 503);
    assert.equal(errorOf(client.text.slice(client.text.indexOf('\r\n\r\n') + 4)).code, 'no_healthy_backends');
  }
  for (const { id } of [streamed, whole, silent]) {
    const row = await ledger.row(id);
    assert.deepEqual([row.ending, row.errorCode, row.costMicrocents], ['drained', 'no_healthy_backends', 0n]);
    if (id !== silent.id) assert.equal(row.unchargedMicrocents, cost(promptTokensOf('paced'), row.completionTokens));
  }
  assert.equal(await ledger.balance(), balance);
  await ledger.verify({ owned: false });
  await service.start();
  await assertNothingLeft(service);
  await service.verify();
});

test('drained with nothing to wait for: exits at once, though connections are open', async (t) => {
  const service = endingsService({ limits: 'drain_timeout_seconds: 60' });
  t.after(() => service.dispose());
  await service.start();
  await (await service.chat(ask('three words'))).text();
  const idle = await RawClient.connect(service.url);
  const begun = performance.now();
  assert.equal(await service.stop('SIGTERM'), 0);
  assert.ok(performance.now() - begun < 10_000, 'does not wait for idle connections');
  await idle.closed;
  await service.verify();
});

test('a second signal ends a service that drains at once; what ran is crashed, not charged', async (t) => {
  const service = endingsService({ limits: 'drain_timeout_seconds: 60' });
  t.after(() => service.dispose());
  await service.start();
  const ledger = new TestLedger(service);
  const balance = await ledger.balance();
  const { client } = await send(service, ask('paced', { stream: true }));
  await until(async () => client.events.length > 1 && (await ledger.openRequests()) === 1);
  process.kill(service.pid, 'SIGTERM');
  await until(() => /stopping/.test(service.output));
  assert.equal(await service.stop('SIGTERM'), 130);
  await client.closed;
  await service.start();
  const [row] = await ledger.newest(1);
  assert.deepEqual([row?.ending, row?.costMicrocents], ['crashed', 0n]);
  assert.equal(await ledger.balance(), balance);
  await assertNothingLeft(service);
  await service.verify();
});

/** Nobody listens there any more. */
async function isRefused(url: string): Promise<boolean> {
  try {
    (await RawClient.connect(url)).reset();
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ECONNREFUSED';
  }
}
