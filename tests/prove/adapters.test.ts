import assert from 'node:assert/strict';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';

import { adapters } from '../../src/prove/adapters.ts';

/** What one-api and new-api do with a token, as far as the adapter sees it. */
const token = { id: 3, key: 'abcdefgh12345678', status: 1, remain_quota: 100, used_quota: 0, unlimited_quota: false };
const exhausted = 4;

const server = createServer((request, response) => {
  void answer(request).then((body) => response.end(JSON.stringify(body)));
});

async function answer(request: IncomingMessage): Promise<object> {
  if (request.headers['new-api-user'] !== '2') return { success: false, message: 'no user' };
  if (request.method === 'GET') return { success: true, data: [{ ...token, key: 'abcd********5678' }] };
  const change = JSON.parse(Buffer.concat(await request.toArray()).toString()) as Partial<typeof token>;
  if (request.url?.endsWith('?status_only=true') === true) token.status = change.status!;
  else if (change.status === 1 && token.status === exhausted && token.remain_quota <= 0)
    return { success: false, message: 'spent' };
  else Object.assign(token, { remain_quota: change.remain_quota, unlimited_quota: change.unlimited_quota });
  return { success: true };
}

before(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)));
after(() => server.close());

test('a token of new-api that has spent its quota can be read and opened again', async () => {
  const admin = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, key: '2:access' };
  const { spent, setBudget } = adapters['new-api'];
  const key = `sk-${token.key}`;
  assert.equal(await setBudget(admin, key, 1_000_000n), 1_000_000n);
  assert.equal(token.remain_quota, 5_000);
  Object.assign(token, { status: exhausted, remain_quota: -10, used_quota: 5_010 });
  assert.equal(await spent(admin, key), 1_002_000n);
  await setBudget(admin, key, null);
  assert.equal(token.status, 1);
  assert.ok(token.remain_quota > 0);
  // A token without a limit does not count what it spends.
  assert.equal(token.unlimited_quota, false);
});
