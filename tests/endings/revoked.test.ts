/** A key that is revoked, or an account that is suspended, while its requests run (docs/money.md). */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { askRunningService } from '../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../src/app/control/socket-path.ts';
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
  verifyAndDispose,
} from './endings-service.ts';

const service = endingsService();
before(() => service.start());
after(() => verifyAndDispose(service));

async function newKey(): Promise<{ readonly id: string; readonly key: string }> {
  const { stdout } = await service.command('keys', 'create', '--json');
  return JSON.parse(stdout) as { id: string; key: string };
}

const bodyOf = (client: RawClient): string => client.text.slice(client.text.indexOf('\r\n\r\n') + 4);

test('key revoked in mid-answer: the error comes last, and what was produced is charged', async () => {
  const ledger = new TestLedger(service);
  const balance = await ledger.balance();
  const { id: keyId, key } = await newKey();
  const streamed = await send(service, ask('paced', { stream: true }), { key });
  const whole = await send(service, ask('paced'), { key });
  const other = await send(service, ask('first token then silence', { stream: true }));
  await until(() => streamed.client.events.length > 3 && other.client.events.length > 1);
  assert.equal((await service.command('keys', 'revoke', keyId)).code, 0);

  await until(() => streamed.client.events.at(-1) === '[DONE]');
  const reported = streamError(streamed.client.events);
  assert.deepEqual(
    [reported.code, reported.type, reported.request_id],
    ['invalid_api_key', 'authentication_error', streamed.id],
  );
  await until(() => whole.client.text.endsWith('}}'));
  assert.equal(whole.client.status, 401);
  assert.equal(errorOf(bodyOf(whole.client)).code, 'invalid_api_key');
  assert.equal(other.client.events.at(-1)?.includes('error'), false, 'requests with other keys go on');

  let paid = 0n;
  for (const [{ id }, saw] of [
    [streamed, streamed.client.events.filter((event) => event.includes('word')).length],
    [whole, 0],
  ] as const) {
    const row = await ledger.row(id);
    assert.deepEqual([row.ending, row.errorCode, row.keyId], ['revoked', 'invalid_api_key', keyId]);
    assert.equal(row.promptTokens, promptTokensOf('paced'));
    assert.ok(row.completionTokens >= Math.max(saw, 1), 'all that was delivered is charged');
    assert.equal(row.costMicrocents, cost(row.promptTokens, row.completionTokens));
    paid += row.costMicrocents;
  }
  assert.equal(await ledger.balance(), balance - paid);
  const again = await service.chat(ask('three words'), { key });
  assert.equal(again.status, 401);
  other.client.reset();
  await ledger.row(other.id);
  for (const { client } of [streamed, whole]) client.reset();
  await assertNothingLeft(service);
});

test('key revoked before the first token: an ordinary 401, and the counted input is charged', async () => {
  const ledger = new TestLedger(service);
  const { id: keyId, key } = await newKey();
  const sent = await Promise.all([true, false].map((stream) => send(service, ask('silence', { stream }), { key })));
  await until(async () => (await ledger.openRequests()) === 2);
  await service.command('keys', 'revoke', keyId);
  for (const { client, id } of sent) {
    await until(() => client.text.endsWith('}}'));
    assert.equal(client.status, 401);
    assert.equal(errorOf(bodyOf(client)).code, 'invalid_api_key');
    const row = await ledger.row(id);
    assert.deepEqual(
      [row.ending, row.promptTokens, row.completionTokens, row.counted, row.costMicrocents],
      ['revoked', promptTokensOf('silence'), 0, true, cost(promptTokensOf('silence'), 0)],
    );
    client.reset();
  }
  await assertNothingLeft(service);
});

test('key revoked while the body arrives: 401, nothing is asked of a backend, nothing charged', async () => {
  const ledger = new TestLedger(service);
  const { id: keyId, key } = await newKey();
  const id = newRequestId();
  const bytes = chatBytes(key, id, ask('x'.repeat(40_000)));
  const client = await RawClient.connect(service.url);
  client.send(bytes.slice(0, -20));
  await until(async () => (await (await fetch(`${service.url}/healthz`)).text()) !== '');
  await service.command('keys', 'revoke', keyId);
  client.send(bytes.slice(-20));
  await until(() => client.text.endsWith('}}'));
  assert.equal(client.status, 401);
  assert.equal(errorOf(bodyOf(client)).code, 'invalid_api_key');
  for (const row of await ledger.rows(id)) assert.equal(row.costMicrocents, 0n);
  client.reset();
  await assertNothingLeft(service);
});

test('account suspended in mid-answer: as a revoked key, until it is revived', async () => {
  const ledger = new TestLedger(service);
  const control = controlSocketPath(join(service.folder, 'data'));
  const { client, id } = await send(service, ask('paced', { stream: true }));
  await until(() => client.events.length > 2);
  await askRunningService(control, { kind: 'suspend_account', accountId: service.accountId });
  await until(() => client.events.at(-1) === '[DONE]');
  assert.equal(streamError(client.events).code, 'invalid_api_key');
  const row = await ledger.row(id);
  assert.equal(row.ending, 'revoked');
  assert.equal(row.costMicrocents, cost(row.promptTokens, row.completionTokens));
  assert.equal((await service.chat(ask('three words'))).status, 401);
  await askRunningService(control, { kind: 'revive_account', accountId: service.accountId });
  client.reset();
  await assertNothingLeft(service);
});
