import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ownerRoutes } from '../../../src/account-api/routes/owner.ts';
import { userRoutes } from '../../../src/account-api/routes/users.ts';
import { createOwner, firstOwnerLink, makeOwnerLink } from '../../../src/accounts/owner.ts';
import { openHost } from '../../account-api/host.ts';
import { Browser, password, person } from './person.ts';

const routes = [...userRoutes, ...ownerRoutes];
const owner = { email: 'Owner@Example.org', name: 'Olga', password };

test('the link makes the owner once: operator, owner of the first account, signed in', async (t) => {
  const host = await openHost(t, routes);
  await host.account('acct_first');
  const { operations } = host.services;
  const link = (await firstOwnerLink(operations))!;
  const browser = new Browser(host);
  const wrong = await browser.ask('POST', '/v1/owner', { ...owner, token: 'A'.repeat(43) });
  assert.deepEqual([wrong.status, wrong.body['error'].code], [404, 'http_404']);
  const short = await browser.ask('POST', '/v1/owner', { ...owner, password: 'short', token: link.token });
  assert.equal(short.status, 400, 'what is refused uses nothing up');
  const made = await Promise.all(
    [browser, new Browser(host), new Browser(host)].map((one) =>
      one.ask('POST', '/v1/owner', { ...owner, token: link.token }),
    ),
  );
  assert.deepEqual(made.map(({ status }) => status).toSorted(), [200, 404, 404], 'of several at once, one');
  const winner = new Browser(host);
  await winner.signIn('owner@example.org', password);
  const { body: me } = await winner.ask('GET', '/v1/me');
  assert.deepEqual(
    [me['is_operator'], me['email'], me['accounts']],
    [true, 'owner@example.org', [{ id: 'acct_first', name: 'acct_first', role: 'owner', status: 'active' }]],
  );
  assert.equal((await browser.ask('POST', '/v1/owner', { ...owner, token: link.token })).status, 404);
  assert.equal(await firstOwnerLink(operations), undefined, 'somebody runs the server');
});

test('a link is too old after half an hour, and a new one takes its place', async (t) => {
  const clock = { now: Date.now() };
  const host = await openHost(t, routes, () => clock.now);
  await host.account('acct_first');
  const browser = new Browser(host);
  const [first, second] = [
    await makeOwnerLink(host.services.operations),
    await makeOwnerLink(host.services.operations),
  ];
  assert.equal((await browser.ask('POST', '/v1/owner', { ...owner, token: first.token })).status, 404);
  clock.now += 30 * 60_000;
  assert.equal((await browser.ask('POST', '/v1/owner', { ...owner, token: second.token })).status, 404);
  const third = await makeOwnerLink(host.services.operations);
  clock.now += 30 * 60_000 - 1;
  assert.equal((await browser.ask('POST', '/v1/owner', { ...owner, token: third.token })).status, 200);
});

test('a start prints the link of the start before, a new one when that is too old, and none over one that was asked for', async (t) => {
  const clock = { now: Date.now() };
  const host = await openHost(t, routes, () => clock.now);
  await host.account('acct_first');
  const { operations } = host.services;
  const first = (await firstOwnerLink(operations))!;
  clock.now += 29 * 60_000;
  assert.equal((await firstOwnerLink(operations))!.token, first.token);
  clock.now += 60_000;
  const second = (await firstOwnerLink(operations))!;
  assert.notEqual(second.token, first.token);
  const browser = new Browser(host);
  assert.equal((await browser.ask('POST', '/v1/owner', { ...owner, token: first.token })).status, 404);
  const asked = await makeOwnerLink(operations);
  assert.equal(await firstOwnerLink(operations), undefined, 'somebody holds a link that is good');
  assert.equal((await browser.ask('POST', '/v1/owner', { ...owner, token: second.token })).status, 404);
  assert.equal((await browser.ask('POST', '/v1/owner', { ...owner, token: asked.token })).status, 200);
});

test('the former holder of the address is out', async (t) => {
  const host = await openHost(t, routes, Date.now, { signIn: { signUp: 'open', oidc: [] } });
  await host.account('acct_first');
  const id = await person(host, 'owner@example.org');
  const squatter = new Browser(host);
  await squatter.signIn('owner@example.org', password);
  const passwordHash = await host.services.users.passwords.hash('the password of the owner');
  const made = await createOwner({ email: owner.email, name: 'Olga', passwordHash }, host.services.operations);
  assert.equal(made!.userId, id);
  assert.equal((await squatter.ask('GET', '/v1/me')).status, 401);
  await new Browser(host).signIn('owner@example.org', 'the password of the owner');
  assert.equal((await squatter.ask('POST', '/v1/auth/sign-in', { email: owner.email, password })).status, 401);
});
