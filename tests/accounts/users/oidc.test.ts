import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';

import { oidcRoutes } from '../../../src/account-api/routes/oidc.ts';
import { userRoutes } from '../../../src/account-api/routes/users.ts';
import { accountRoutes } from '../../../src/account-api/routes.ts';
import { openHost } from '../../account-api/host.ts';
import type { TestHost } from '../../account-api/host.ts';
import { Browser, password, person, tokenOf } from './person.ts';
import { startProvider } from './provider.ts';
import type { Claims } from './provider.ts';

async function begin(browser: Browser): Promise<string> {
  const { status, body } = await browser.ask('POST', '/v1/auth/oidc/company');
  assert.equal(status, 200, JSON.stringify(body));
  return body['url'] as string;
}

const me = async (browser: Browser) => (await browser.ask('GET', '/v1/me')).body['email'] as string | undefined;
const ada = { sub: 's1', email: 'ada@example.org', email_verified: true, name: 'Ada' };

test('who comes from a provider is known by their subject, and nobody gets in without its signature', async (t) => {
  const provider = await startProvider(t);
  const host: TestHost = await openHost(t, [...userRoutes, ...oidcRoutes], Date.now, {
    signIn: { signUp: 'open', oidc: [provider.config] },
  });
  const browser = new Browser(host);
  const back = provider.authorize(await begin(browser), ada);
  const thief = new Browser(host);
  await thief.ask('GET', back);
  assert.equal(await me(thief), undefined, 'the way back is bound to the browser that began it');
  assert.equal((await browser.ask('GET', provider.authorize(await begin(browser), ada))).status, 302);
  assert.equal(await me(browser), 'ada@example.org');

  const refused: readonly [string, Claims, boolean?][] = [
    ['another domain', { ...ada, sub: 's2', email: 'eve@evil.example' }],
    ['a domain that only ends so', { ...ada, sub: 's3', email: 'eve@notexample.org' }],
    ['an address that is not confirmed', { ...ada, sub: 's4', email: 'bob@example.org', email_verified: false }],
    ['a token for somebody else', { ...ada, aud: 'another' }],
    ['a token of another issuer', { ...ada, iss: 'https://evil.example' }],
    ['a token of another sign-in', { ...ada, nonce: 'other' }],
    ['a token that is over', { ...ada, exp: 1 }],
    ['a signature of another key', ada, true],
  ];
  for (const [what, claims, forged] of refused) {
    const one = new Browser(host);
    await one.ask('GET', provider.authorize(await begin(one), claims, forged));
    assert.equal(await me(one), undefined, what);
  }
  const moved = new Browser(host);
  await moved.ask('GET', provider.authorize(await begin(moved), { ...ada, email: 'ada.l@example.org' }));
  assert.equal(await me(moved), 'ada@example.org', 'by the subject, whatever the address is now');
  assert.equal((await browser.ask('POST', '/v1/auth/oidc/other')).status, 404);
});

test('nobody who was not invited gets in, and who has the address already is linked by it', async (t) => {
  const provider = await startProvider(t);
  const host = await openHost(t, [...userRoutes, ...oidcRoutes], Date.now, {
    signIn: { signUp: 'invitation', oidc: [provider.config] },
  });
  const stranger = new Browser(host);
  await stranger.ask('GET', provider.authorize(await begin(stranger), ada));
  assert.equal(await me(stranger), undefined);
  const { repositories, now } = host.services.operations;
  await host.account('acct_a');
  await repositories.createInvitation({
    id: 'inv_1',
    accountId: 'acct_a',
    email: 'ada@example.org',
    role: 'viewer',
    invitedBy: 'x',
    tokenHash: new Uint8Array(32),
    createdAt: now(),
    expiresAt: now() + 60_000,
  });
  const id = await person(host, 'ada@example.org');
  const browser = new Browser(host);
  await browser.ask('GET', provider.authorize(await begin(browser), ada));
  assert.equal((await browser.ask('GET', '/v1/me')).body['id'], id);
  await new Browser(host).signIn('ada@example.org', password);
});

test('a provider is unlinked soon after a sign-in, never as the last way in, and the same address links it again', async (t) => {
  const provider = await startProvider(t);
  const clock = { now: Date.now() };
  const host = await openHost(t, accountRoutes, () => clock.now, {
    signIn: { signUp: 'open', oidc: [provider.config] },
  });
  const browser = new Browser(host);
  await browser.ask('GET', provider.authorize(await begin(browser), ada));
  const unlink = (id = 'company') => browser.ask('DELETE', `/v1/auth/providers/${id}`);
  const ways = async () => (await browser.ask('GET', '/v1/me')).body['providers'] as readonly string[];
  const alone = await unlink();
  assert.deepEqual([alone.status, await ways()], [409, ['company']], 'nobody is locked out');

  // A password is another way in, and no provider, whatever it is called in the database.
  assert.equal((await browser.ask('POST', '/v1/auth/password/forgot', { email: ada.email })).status, 200);
  const fresh = { token: tokenOf(host, 'reset'), password };
  assert.equal((await browser.ask('POST', '/v1/auth/password/reset', fresh)).status, 200);
  await browser.signIn(ada.email, password);
  for (const other of ['credential', 'other']) assert.equal((await unlink(other)).status, 404);
  clock.now += 16 * 60_000;
  const late = await unlink();
  assert.deepEqual([late.status, late.body['error'].step_up_required, await ways()], [403, true, ['company']]);
  await browser.signIn(ada.email, password);
  assert.equal((await unlink()).status, 200);
  assert.deepEqual(await ways(), []);
  assert.equal((await unlink()).status, 404);
  await new Browser(host).signIn(ada.email, password);

  const { id } = (await browser.ask('GET', '/v1/me')).body as { readonly id: string };
  const [entry] = await host.services.operations.repositories.listAudit({ actions: ['provider.unlink'], limit: 2 });
  assert.deepEqual([entry?.actor.id, entry?.target, entry?.before], [id, id, JSON.stringify({ provider: 'company' })]);

  // The subject is forgotten: another one with another address is another person, one with this address is this one.
  const another = new Browser(host);
  await another.ask('GET', provider.authorize(await begin(another), { ...ada, email: 'ada.l@example.org' }));
  assert.equal(await me(another), 'ada.l@example.org');
  const again = new Browser(host);
  await again.ask('GET', provider.authorize(await begin(again), { ...ada, sub: 's2' }));
  assert.deepEqual([(await again.ask('GET', '/v1/me')).body['id'], await ways()], [id, ['company']]);
});

test('of two providers that are each other\u2019s last way in, one stays, also when both are unlinked at once', async (t) => {
  const [first, second] = [await startProvider(t), await startProvider(t)];
  const other = { ...second.config, id: 'other', name: 'Other' };
  const signIn = { signUp: 'open', oidc: [first.config, other] } as const;
  const host = await openHost(t, accountRoutes, Date.now, { signIn });
  const browser = new Browser(host);
  for (const [id, provider] of [
    ['company', first],
    ['other', second],
  ] as const) {
    const { body } = await browser.ask('POST', `/v1/auth/oidc/${id}`);
    await browser.ask('GET', provider.authorize(body['url'] as string, ada));
  }
  const unlinked = await Promise.all(
    ['company', 'other'].map((id) => browser.ask('DELETE', `/v1/auth/providers/${id}`)),
  );
  assert.deepEqual(unlinked.map(({ status }) => status).toSorted(), [200, 409]);
  assert.equal(((await browser.ask('GET', '/v1/me')).body['providers'] as readonly string[]).length, 1);
});

test('who took somebody else\u2019s address before them, without confirming it, has nothing of them afterwards', async (t) => {
  const provider = await startProvider(t);
  const host = await openHost(t, [...userRoutes, ...oidcRoutes], Date.now, {
    signIn: { signUp: 'open', oidc: [provider.config] },
  });
  // Somebody signs up with Ada's address and waits.
  const before = { email: 'ada@example.org', password, name: 'Mallory' };
  assert.equal((await new Browser(host).ask('POST', '/v1/auth/sign-up', before)).status, 200);
  const ada1 = new Browser(host);
  await ada1.ask('GET', provider.authorize(await begin(ada1), ada));
  const mallory = new Browser(host);
  const { status } = await mallory.ask('POST', '/v1/auth/sign-in', { email: 'ada@example.org', password });
  assert.notEqual(status, 200, 'the password of before opens nothing');
  assert.equal(await me(mallory), undefined);
});

test('nobody but who signs in there waits for a provider that never answers', async (t) => {
  const silent = createServer(() => {});
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const { config } = await startProvider(t);
  const slow = { ...config, id: 'slow', issuer: `http://127.0.0.1:${(silent.address() as AddressInfo).port}` };
  const host = await openHost(t, [...userRoutes, ...oidcRoutes], Date.now, {
    signIn: { signUp: 'open', oidc: [slow, config] },
  });
  const waiting = new Browser(host).ask('POST', '/v1/auth/oidc/slow');
  await once(silent, 'request');
  await person(host, 'bob@example.org');
  await new Browser(host).signIn('bob@example.org', password);
  assert.equal((await new Browser(host).ask('POST', '/v1/auth/oidc/company')).status, 200);
  silent.closeAllConnections();
  silent.close();
  assert.equal((await waiting).status, 409);
});

test('a provider that is down at first is asked again, every five seconds at most; passwords do not wait for it', async (t) => {
  const provider = await startProvider(t);
  const { state } = provider;
  const clock = { now: Date.now() };
  const host = await openHost(t, [...userRoutes, ...oidcRoutes], () => clock.now, {
    signIn: { signUp: 'open', oidc: [provider.config] },
  });
  state.isDown = true;
  await person(host, 'bob@example.org');
  const browser = new Browser(host);
  const ask = () => browser.ask('POST', '/v1/auth/oidc/company');
  const first = await ask();
  assert.deepEqual([first.status, first.body['error'].code], [409, 'http_409']);
  const asked = state.asked;
  assert.ok(asked > 0);
  assert.equal((await ask()).status, 409);
  assert.equal(state.asked, asked, 'not again at once');
  clock.now += 5_000;
  assert.equal((await ask()).status, 409);
  assert.ok(state.asked > asked);
  state.isDown = false;
  assert.equal((await ask()).status, 409, 'not again at once');
  await browser.signIn('bob@example.org', password);
  clock.now += 5_000;
  assert.equal((await browser.ask('GET', provider.authorize(await begin(browser), ada))).status, 302);
  assert.equal(await me(browser), 'ada@example.org');
  const known = state.asked;
  clock.now += 60_000;
  await begin(new Browser(host));
  assert.equal(state.asked, known, 'a provider that is known is not asked again');
});
