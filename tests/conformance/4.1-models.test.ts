import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { assertEnvelope, assertRequestId } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import { InnerService, scriptedModel } from '../support/service.ts';

/** Specification §4.1: `GET /v1/models`. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(() => service.dispose());

const bearer = (key: string) => [['Authorization', `Bearer ${key}`]] as const;

test('§4.1 no payload, authorization optional: the list without a key, and with one in either header', async () => {
  for (const headers of [[], bearer(service.key), [['x-api-key', service.key]] as const]) {
    const answer = await exchange(service.url, { path: '/v1/models', headers });
    assert.deepEqual([answer.status, answer.json()['object']], [200, 'list']);
    assertRequestId(answer);
    assert.equal(answer.headers['content-type'], 'application/json');
  }
});

test('§4.1 an invalid key returns 401, whatever is wrong with it', async () => {
  for (const key of ['nonsense', `${service.key} `, service.key.slice(0, -2), `tkh_${'0'.repeat(38)}`]) {
    assertEnvelope(await exchange(service.url, { path: '/v1/models', headers: bearer(`${key}x`) }), 'invalid_api_key');
    const headers = [['x-api-key', `x${key}`]] as const;
    assertEnvelope(await exchange(service.url, { path: '/v1/models', headers }), 'invalid_api_key');
  }
  const basic = [['Authorization', `Basic ${service.key}`]] as const;
  assertEnvelope(await exchange(service.url, { path: '/v1/models', headers: basic }), 'invalid_api_key');
});

test('§4.1 a revoked key returns 401 at once', async () => {
  const made = await service.command('keys', 'create', '--name', 'short-lived', '--json');
  const { id, key } = JSON.parse(made.stdout) as { id: string; key: string };
  assert.equal((await exchange(service.url, { path: '/v1/models', headers: bearer(key) })).status, 200);
  assert.equal((await service.command('keys', 'revoke', id)).code, 0);
  assertEnvelope(await exchange(service.url, { path: '/v1/models', headers: bearer(key) }), 'invalid_api_key');
});

test('contracts §1.0: queries are ignored; contracts decision 12: another method is 405 with Allow', async () => {
  assert.equal((await exchange(service.url, { path: '/v1/models?limit=1000' })).status, 200);
  const answer = await exchange(service.url, { method: 'POST', path: '/v1/models' });
  assertEnvelope(answer, 'http_405');
  assert.equal(answer.headers['allow'], 'GET, HEAD');
});

test('contracts §1.2: what clients of the messages family look for', async () => {
  const { data, ...list } = (await exchange(service.url, { path: '/v1/models' })).json() as {
    data: { type: string; display_name: string; created: number; created_at: string }[];
  };
  assert.deepEqual(list, { object: 'list', has_more: false, first_id: 'demo', last_id: 'demo' });
  const [card] = data;
  assert.deepEqual([card?.type, card?.display_name], ['model', 'Demo']);
  assert.equal(Date.parse(card?.created_at ?? ''), (card?.created ?? 0) * 1000);
});
