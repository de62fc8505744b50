import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { reload } from '../../app/reload/scene.ts';
import { InnerService, scriptedModel } from '../../support/service.ts';
import { plainBody } from './chat.ts';
import { exchange } from './raw.ts';

/** `server.trusted_proxies`, on both hosts of the real program; the proxy is this test, at 127.0.0.1. */
const config = scriptedModel('- say: [ { text: "hello" } ]');
const service = new InnerService({ config });
const office = '203.0.113.9';
let officeKey = '';
before(async () => {
  configure('192.0.2.1');
  await service.start();
  const { stdout } = await service.command('keys', 'create', '--json', '--name', 'office', '--ip', '203.0.113.0/24');
  officeKey = (JSON.parse(stdout) as { key: string }).key;
});
after(() => service.dispose());

function configure(trusted: string): void {
  service.writeConfig(`server:
  inference: { port: 0 }
  account: { port: 0 }
  trusted_proxies: [${trusted}]
  limits: { shed_large_bodies_lag_seconds: 60, shed_new_work_lag_seconds: 60 }
${config}
`);
}

const forwarded = (...lines: readonly string[]) => lines.map((line) => ['X-Forwarded-For', line] as const);

const statusAt = async (path: string, ...lines: readonly string[]): Promise<number> => {
  const isList = path === '/v1/models';
  const { status } = await exchange(service.url, {
    path,
    headers: [['x-api-key', officeKey], ...forwarded(...lines)],
    ...(isList ? {} : { method: 'POST', body: JSON.stringify(plainBody) }),
  });
  return status;
};

const attempt = async (...lines: readonly string[]): Promise<number> => {
  const { status } = await exchange(service.accountUrl, {
    method: 'POST',
    path: '/v1/auth/sign-in',
    headers: [['content-type', 'application/json'], ...forwarded(...lines)],
    body: JSON.stringify({ email: 'nobody@example.org', password: 'a wrong password' }),
  });
  return status;
};

/** What wrong passwords get that are sent at once, whichever comes first: one machine needs a minute for six after each other. */
const statusesOf = async (senders: readonly string[]): Promise<readonly number[]> =>
  (await Promise.all(senders.map((sender) => attempt(sender)))).toSorted();
const fiveOfSix = [401, 401, 401, 401, 401, 429];

const metrics = async (...lines: readonly string[]): Promise<number> =>
  (await exchange(service.accountUrl, { path: '/metrics', headers: forwarded(...lines) })).status;

test('a peer that is not trusted cannot say who the client is', async () => {
  for (const path of ['/v1/chat/completions', '/v1/models']) {
    assert.equal(await statusAt(path), 403, path);
    assert.equal(await statusAt(path, office), 403, path);
    assert.equal(await statusAt(path, `${office}, 192.0.2.1`), 403, path);
  }
  // Each names another client, and all are one.
  assert.deepEqual(await statusesOf(Array.from({ length: 6 }, (_, index) => `198.51.100.${index}`)), fiveOfSix);
});

test('after a reload that trusts it, keys, attempts and limits are those of its clients', async () => {
  configure('192.0.2.1, 127.0.0.1');
  const outcome = await reload(service);
  assert.deepEqual(outcome.kind === 'reloaded' && outcome.changes, [
    'trusted proxies: 192.0.2.1 → 192.0.2.1, 127.0.0.1',
  ]);
  for (const path of ['/v1/chat/completions', '/v1/models']) {
    assert.equal(await statusAt(path, office), 200, path);
    assert.equal(await statusAt(path, '198.51.100.1', office), 200, 'lines are one list');
    assert.equal(await statusAt(path, `nonsense, ${office}, 192.0.2.1`), 200, path);
    assert.equal(await statusAt(path, `[::ffff:${office}]:4711`), 200, path);
    assert.equal(await statusAt(path), 403, path);
    assert.equal(await statusAt(path, `${office}, 198.51.100.1`), 403, 'a client that claims to be the office');
    assert.equal(await statusAt(path, office, '198.51.100.1'), 403, 'in a line of its own');
    assert.equal(await statusAt(path, office, ''), 403, path);
    assert.equal(await statusAt(path, office, 'unknown'), 403, path);
  }
  // Its pause may be over, and then one attempt begins the next.
  const ofPeer = await Promise.all(Array.from({ length: 6 }, () => attempt()));
  assert.ok(ofPeer.filter((status) => status === 429).length >= 5, 'the peer has to wait, as before');
  const claimed = Array.from({ length: 6 }, (_, index) => `10.9.9.${index}, 198.51.100.1`);
  assert.deepEqual(await statusesOf(claimed), fiveOfSix, 'who writes other addresses is still the same');
  assert.equal(await attempt('198.51.100.2'), 401, 'and others are not');
});

test('metrics are not shown to whoever comes through a proxy, whatever it says of the client', async () => {
  assert.equal(await metrics(), 200);
  for (const line of ['127.0.0.1', '::1', '127.0.0.1, 127.0.0.1', office, ''])
    assert.equal(await metrics(line), 403, line);
});
