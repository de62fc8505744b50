import assert from 'node:assert/strict';
import { test } from 'node:test';

import { userRoutes } from '../../../src/account-api/routes/users.ts';
import { openHost } from '../../account-api/host.ts';
import { Browser, password, person, tokenOf } from './person.ts';

const open = { signUp: 'open', oidc: [] } as const;

test('a person signs up, confirms the address, signs in, and has an account of their own', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  const browser = new Browser(host);
  const ada = { email: 'Ada@Example.org', password, name: 'Ada Lovelace' };
  assert.deepEqual(await browser.ask('POST', '/v1/auth/sign-up', ada), { status: 200, body: { done: true } });
  const early = await browser.ask('POST', '/v1/auth/sign-in', { email: ada.email, password });
  assert.deepEqual([early.status, early.body['error'].code], [403, 'http_403']);
  assert.deepEqual(
    host.mails.map(({ to, kind }) => [to, kind]),
    [
      ['ada@example.org', 'verification'],
      ['ada@example.org', 'verification'],
    ],
  );
  const token = tokenOf(host, 'verification');
  assert.equal((await browser.ask('POST', '/v1/auth/verify-email', { token })).status, 200);
  assert.equal(browser.cookies.size, 0, 'a link signs nobody in');

  const signedIn = await browser.signIn(ada.email, password);
  assert.deepEqual([signedIn['two_factor_required'], signedIn['user'].email], [false, 'ada@example.org']);
  assert.doesNotMatch(JSON.stringify(signedIn), /token/);
  const { body: me } = await browser.ask('GET', '/v1/me');
  assert.deepEqual([me['name'], me['is_operator'], me['accounts'].length], ['Ada Lovelace', false, 1]);
  assert.equal(me['accounts'][0].role, 'owner');
  await browser.signIn(ada.email, password);
  assert.equal((await browser.ask('GET', '/v1/me')).body['accounts'].length, 1, 'one, however often they come');

  assert.equal((await browser.ask('POST', '/v1/auth/sign-out')).status, 200);
  assert.equal(browser.cookies.size, 0);
  assert.equal((await browser.ask('GET', '/v1/me')).status, 401);
  assert.deepEqual(host.failures, []);
});

test('who signs in for the first time in several browsers at once gets one account', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await person(host, 'ada@example.org');
  const { repositories } = host.services.operations;
  const before = (await repositories.listAccounts({})).length;
  const browsers = Array.from({ length: 4 }, () => new Browser(host));
  await Promise.all(browsers.map((browser) => browser.signIn('ada@example.org', password)));
  const { accounts } = (await browsers[0]!.ask('GET', '/v1/me')).body;
  assert.deepEqual(
    accounts.map(({ role }: { readonly role: string }) => role),
    ['owner'],
  );
  assert.equal((await repositories.listAccounts({})).length, before + 1, 'nor one that nobody is in');
});

test('the cookie of a session is out of reach of scripts and of other sites', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await person(host, 'ada@example.org');
  const browser = new Browser(host);
  await browser.signIn('ada@example.org', password);
  const set = browser.set.find((cookie) => cookie.startsWith('tokenhouse.session_token='))!;
  assert.match(set, /; HttpOnly/i);
  assert.match(set, /; SameSite=Lax/i);
  assert.match(set, /; Path=\/(;|$)/i);
  assert.doesNotMatch(set, /; (Domain|Secure)/i);
});

test('who is not known, and whose password is wrong, are answered alike, for the same work', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await person(host, 'ada@example.org');
  const { passwords } = host.services.users;
  const cost = async (email: string) => {
    const before = passwords.work.done;
    const { status, body } = await new Browser(host).ask('POST', '/v1/auth/sign-in', {
      email,
      password: 'wrong password',
    });
    const { request_id: _id, ...error } = body['error'];
    return { status, error, hashes: passwords.work.done - before };
  };
  const known = await cost('ada@example.org');
  assert.deepEqual(known, await cost('nobody@example.org'));
  assert.deepEqual([known.status, known.hashes], [401, 1]);

  // Signing up with an address that is known, and asking for a new password, tell nothing either.
  const before = passwords.work.done;
  const again = await new Browser(host).ask('POST', '/v1/auth/sign-up', {
    email: 'ada@example.org',
    password,
    name: 'X',
  });
  assert.deepEqual([again.status, again.body, passwords.work.done - before], [200, { done: true }, 1]);
  assert.equal(host.mails.at(-1)!.kind, 'known');
  for (const email of ['ada@example.org', 'nobody@example.org'])
    assert.deepEqual((await new Browser(host).ask('POST', '/v1/auth/password/forgot', { email })).body, { done: true });
});

test('passwords are hashed two at a time', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await Promise.all(
    Array.from({ length: 6 }, (_, index) =>
      new Browser(host).ask('POST', '/v1/auth/sign-in', { email: `p${index}@example.org`, password }),
    ),
  );
  assert.deepEqual(host.services.users.passwords.work, { done: 6, mostAtOnce: 2 });
});

test('a sign-in begins a new session, and ends the one that the browser had before', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await person(host, 'ada@example.org');
  await person(host, 'eve@example.org');
  const browser = new Browser(host);
  await browser.signIn('eve@example.org', password);
  const planted = new Map(browser.cookies);
  await browser.signIn('ada@example.org', password);
  const name = 'tokenhouse.session_token';
  assert.notEqual(browser.cookies.get(name), planted.get(name));
  assert.equal((await browser.ask('GET', '/v1/me')).body['email'], 'ada@example.org');
  const eve = new Browser(host);
  for (const [key, value] of planted) eve.cookies.set(key, value);
  assert.equal((await eve.ask('GET', '/v1/me')).status, 401);
  // A value that nobody signed is no session, nor is one that was changed.
  for (const forged of [
    'abc',
    'abc.def',
    planted.get(name)!.replace(/^./, 'x'),
    encodeURIComponent(`a.${'A'.repeat(44)}`),
  ]) {
    eve.cookies.set(name, forged);
    assert.equal((await eve.ask('GET', '/v1/me')).status, 401, forged);
  }
});

test('each proof of identity gives the browser another value, and every earlier one is dead', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await person(host, 'ada@example.org');
  const name = 'tokenhouse.session_token';
  const browser = new Browser(host);
  const earlier: string[] = [];
  const proofs = {
    'a sign-in over a cookie that somebody planted': () => browser.signIn('ada@example.org', password),
    'signing in again for what needs step-up': () => browser.signIn('ada@example.org', password),
    'a new password': async () => {
      const change = { current_password: password, new_password: 'another long password' };
      assert.equal((await browser.ask('POST', '/v1/auth/password', change)).status, 200);
    },
  };
  browser.cookies.set(name, `planted.${encodeURIComponent(`${'A'.repeat(43)}=`)}`);
  for (const [what, prove] of Object.entries(proofs)) {
    earlier.push(browser.cookies.get(name)!);
    await prove();
    assert.ok(!earlier.includes(browser.cookies.get(name)!), what);
    assert.equal((await browser.ask('GET', '/v1/me')).status, 200, what);
    for (const value of earlier) {
      const other = new Browser(host);
      other.cookies.set(name, value);
      assert.equal((await other.ask('GET', '/v1/me')).status, 401, what);
    }
  }
  // A second cookie of this name, from a page of a sibling host, makes neither count.
  const twice = new Browser(host);
  twice.cookies.set(name, `${browser.cookies.get(name)!}; ${name}=planted`);
  assert.equal((await twice.ask('GET', '/v1/me')).status, 401);
});

test('sessions are listed and ended one by one, or all others; those of others are not there', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await person(host, 'ada@example.org');
  await person(host, 'eve@example.org');
  const [one, two, three, eve] = [new Browser(host), new Browser(host), new Browser(host), new Browser(host)];
  for (const browser of [one, two, three]) await browser.signIn('ada@example.org', password);
  await eve.signIn('eve@example.org', password);
  const { body } = await one.ask('GET', '/v1/auth/sessions');
  assert.deepEqual(
    body['data'].map((session: { is_current: boolean }) => session.is_current),
    [false, false, true],
  );
  assert.equal(body['data'][0].address, '127.0.0.1');
  const id = body['data'][1].id as string;
  assert.equal((await eve.ask('DELETE', `/v1/auth/sessions/${id}`)).status, 404);
  assert.equal((await one.ask('DELETE', `/v1/auth/sessions/${id}`)).status, 200);
  assert.equal((await two.ask('GET', '/v1/me')).status, 401);
  assert.equal((await one.ask('DELETE', '/v1/auth/sessions')).status, 200);
  assert.equal((await three.ask('GET', '/v1/me')).status, 401);
  assert.equal((await one.ask('GET', '/v1/me')).status, 200);
  assert.equal((await eve.ask('GET', '/v1/me')).status, 200);
});

test('a new password ends all sessions, and the browser that chose it has a new one', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await person(host, 'ada@example.org');
  const [one, two] = [new Browser(host), new Browser(host)];
  await one.signIn('ada@example.org', password);
  await two.signIn('ada@example.org', password);
  const before = one.cookies.get('tokenhouse.session_token');
  const change = (current: string) =>
    one.ask('POST', '/v1/auth/password', { current_password: current, new_password: 'another long password' });
  assert.equal((await change('wrong password')).status, 401);
  assert.equal((await two.ask('GET', '/v1/me')).status, 200);
  assert.equal((await change(password)).status, 200);
  assert.equal((await two.ask('GET', '/v1/me')).status, 401);
  assert.equal((await one.ask('GET', '/v1/me')).status, 200);
  assert.notEqual(one.cookies.get('tokenhouse.session_token'), before);
  assert.equal((await two.ask('POST', '/v1/auth/sign-in', { email: 'ada@example.org', password })).status, 401);
  await two.signIn('ada@example.org', 'another long password');
});

test('a link for a new password works once, ends all sessions, and cannot be made up', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  const id = await person(host, 'ada@example.org');
  const [browser, other] = [new Browser(host), new Browser(host)];
  await other.signIn('ada@example.org', password);
  await browser.ask('POST', '/v1/auth/password/forgot', { email: 'ADA@example.org' });
  const token = tokenOf(host, 'reset');
  const reset = (with_: string, to: string) =>
    browser.ask('POST', '/v1/auth/password/reset', { token: with_, password: to });
  assert.equal((await reset(token, 'short')).status, 400, 'what is refused uses nothing up');
  assert.equal((await reset(`${token.slice(0, -1)}_`, 'another long password')).status, 404);
  assert.equal((await reset(token, 'another long password')).status, 200);
  assert.equal((await reset(token, 'a third long password')).status, 404);
  assert.equal((await other.ask('GET', '/v1/me')).status, 401);
  await browser.signIn('ada@example.org', 'another long password');

  const { repositories } = host.services.operations;
  const logged = await repositories.listAudit({ actions: ['password.reset'], limit: 10 });
  assert.deepEqual(
    logged.map(({ actor, target }) => [actor.kind, actor.id, actor.name, target]),
    [['user', id, 'ada@example.org', id]],
  );

  // Nobody can read a token out of the database, and an old one is worth nothing.
  await other.ask('POST', '/v1/auth/password/forgot', { email: 'ada@example.org' });
  const { rows } = await repositories.authStore({ act: 'find', table: 'auth_verification', where: [], limit: 100 });
  const late = tokenOf(host, 'reset');
  assert.ok(rows.some(({ value }) => value === id));
  assert.ok(!JSON.stringify(rows).includes(late));
  const set = { expiresAt: Date.now() - 1 };
  await repositories.authStore({ act: 'update', table: 'auth_verification', where: [], set, many: true });
  assert.equal((await reset(late, 'a fourth long password')).status, 404);
});

test('a link that confirms an address is signed, and an old or used one does nothing', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  const browser = new Browser(host);
  await browser.ask('POST', '/v1/auth/sign-up', { email: 'ada@example.org', password, name: 'Ada' });
  const token = tokenOf(host, 'verification');
  const [head, body, signature] = token.split('.');
  const claims = JSON.parse(Buffer.from(body!, 'base64url').toString()) as object;
  const forged = Buffer.from(JSON.stringify({ ...claims, email: 'eve@example.org' })).toString('base64url');
  const none = Buffer.from('{"alg":"none"}').toString('base64url');
  for (const bad of [`${head}.${forged}.${signature}`, `${none}.${body}.AAAAAAAAAAAAAAAA`, 'x'.repeat(40)])
    assert.equal((await browser.ask('POST', '/v1/auth/verify-email', { token: bad })).status, 404, bad);
  assert.equal((await browser.ask('POST', '/v1/auth/verify-email', { token })).status, 200);
  assert.equal((await browser.ask('POST', '/v1/auth/verify-email', { token })).status, 200, 'it is confirmed already');
  assert.equal(browser.cookies.size, 0);
});

test('where only invited people sign up, nobody else does, and nobody learns it', async (t) => {
  const host = await openHost(t, userRoutes);
  const ask = (email: string) => new Browser(host).ask('POST', '/v1/auth/sign-up', { email, password, name: 'X' });
  assert.deepEqual(await ask('eve@example.org'), { status: 200, body: { done: true } });
  assert.deepEqual(host.mails, []);
  const { repositories } = host.services.operations;
  assert.equal((await repositories.authStore({ act: 'count', table: 'auth_user', where: [] })).count, 0);
});

test('what dies between a person and their password is mended by asking for a new one', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  const { repositories } = host.services.operations;
  await person(host, 'ada@example.org');
  // As a process leaves it that dies after the first of the two writes of a sign-up.
  await repositories.authStore({ act: 'delete', table: 'auth_account', where: [], one: false });
  await repositories.authStore({ act: 'update', table: 'auth_user', where: [], set: { emailVerified: 0 }, many: true });
  const browser = new Browser(host);
  assert.equal((await browser.ask('POST', '/v1/auth/sign-in', { email: 'ada@example.org', password })).status, 401);
  await browser.ask('POST', '/v1/auth/password/forgot', { email: 'ada@example.org' });
  const reset = { token: tokenOf(host, 'reset'), password: 'another long password' };
  assert.equal((await browser.ask('POST', '/v1/auth/password/reset', reset)).status, 200);
  await browser.signIn('ada@example.org', 'another long password');
});

test('a page of another site can neither sign in nor sign out', async (t) => {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  await person(host, 'ada@example.org');
  const answer = await host.ask('POST', '/v1/auth/sign-in', {
    json: { email: 'ada@example.org', password },
    headers: [['origin', 'https://evil.example']],
  });
  assert.equal(answer.status, 403);
});
