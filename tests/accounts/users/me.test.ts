import assert from 'node:assert/strict';
import { test } from 'node:test';

import { userRoutes } from '../../../src/account-api/routes/users.ts';
import { openHost } from '../../account-api/host.ts';
import { Browser, password, person, tokenOf } from './person.ts';

const open = { signUp: 'open', oidc: [] } as const;
const [before, after] = ['ada@example.org', 'countess@example.org'];

/** Ada, signed in. */
async function scene(t: Parameters<typeof openHost>[0]) {
  const host = await openHost(t, userRoutes, Date.now, { signIn: open });
  const id = await person(host, before);
  const browser = new Browser(host);
  await browser.signIn(before, password);
  const change = (email: string) => browser.ask('POST', '/v1/auth/email', { email });
  const confirm = (by: Browser, token = tokenOf(host, 'verification')) =>
    by.ask('POST', '/v1/auth/verify-email', { token });
  const address = async (): Promise<unknown> => (await browser.ask('GET', '/v1/me')).body['email'];
  return { host, id, browser, change, confirm, address };
}

test('a person changes their name', async (t) => {
  const { host, id, browser } = await scene(t);
  const { status, body } = await browser.ask('PATCH', '/v1/me', { name: 'Ada King' });
  assert.deepEqual([status, body['name'], body['id'], body['accounts'].length], [200, 'Ada King', id, 1]);
  assert.equal((await browser.ask('GET', '/v1/me')).body['name'], 'Ada King');
  assert.deepEqual([body['has_password'], body['providers']], [true, []]);
  assert.equal((await browser.ask('PATCH', '/v1/me', { name: '<b>' })).status, 422);
  assert.equal((await browser.ask('PATCH', '/v1/me', { name: 'x', email: after })).status, 400, 'not by the way');
  const [entry] = await host.services.operations.repositories.listAudit({ actions: ['person.edit'], limit: 2 });
  assert.deepEqual(
    [entry?.actor.id, entry?.target, entry?.before, entry?.after],
    [id, id, `{"name":"${before}"}`, '{"name":"Ada King"}'],
  );
});

test('a new address counts when its link is opened where its person is signed in, and the old one is notified', async (t) => {
  const { host, id, browser, change, confirm, address } = await scene(t);
  assert.deepEqual(await change('Countess@Example.org'), { status: 200, body: { done: true } });
  const sent = host.mails.at(-1)!;
  assert.deepEqual([sent.to, sent.subject], [after, 'Confirm your new e-mail address']);
  const token = tokenOf(host, 'verification');
  assert.equal(await address(), before);
  await browser.ask('POST', '/v1/auth/password/forgot', { email: before });

  // Somebody who reads the mail of a mistyped address.
  const stranger = new Browser(host);
  assert.equal((await confirm(stranger)).status, 403);
  await person(host, 'eve@example.org');
  await stranger.signIn('eve@example.org', password);
  assert.equal((await confirm(stranger, token)).status, 403);
  const [head, claims, signature] = token.split('.');
  const forged = Buffer.from(Buffer.from(claims!, 'base64url').toString().replace(after, 'other@example.org')).toString(
    'base64url',
  );
  assert.equal((await confirm(browser, `${head}.${forged}.${signature}`)).status, 404);
  assert.equal(await address(), before);

  assert.equal((await confirm(browser, token)).status, 200);
  assert.equal(await address(), after, 'the session goes on');
  assert.deepEqual(
    host.mails.filter(({ kind }) => kind === 'email-changed').map(({ to, text }) => [to, text.includes(after)]),
    [[before, true]],
  );
  assert.equal((await confirm(browser, token)).status, 200, 'opened twice');
  assert.equal((await new Browser(host).ask('POST', '/v1/auth/sign-in', { email: before, password })).status, 401);
  await new Browser(host).signIn(after, password);
  const logged = await host.services.operations.repositories.listAudit({ actions: ['email.change'], limit: 10 });
  assert.deepEqual(
    logged.map((entry) => [entry.actor.id, entry.target, entry.before, entry.after]),
    [[id, id, `{"email":"${before}"}`, `{"email":"${after}"}`]],
  );

  const reset = { token: tokenOf(host, 'reset'), password: 'another long password' };
  assert.equal(
    (await browser.ask('POST', '/v1/auth/password/reset', reset)).status,
    404,
    'sent to the mailbox they left',
  );

  // An older link would give the account back to an address that its person has left.
  await change('third@example.org');
  assert.equal((await confirm(browser)).status, 200);
  assert.equal((await confirm(browser, token)).status, 403);
  assert.equal(await address(), 'third@example.org');
  assert.deepEqual(host.failures, []);
});

test('an address that somebody else has is not taken, and nobody is told that it is known', async (t) => {
  const { host, browser, change, confirm, address } = await scene(t);
  await person(host, 'eve@example.org');
  const mails = host.mails.length;
  assert.deepEqual(await change('eve@example.org'), { status: 200, body: { done: true } });
  assert.equal(host.mails.length, mails);

  await change(after);
  const token = tokenOf(host, 'verification');
  await person(host, after);
  const late = await confirm(browser, token);
  assert.deepEqual([late.status, late.body['error'].code], [409, 'http_409']);
  assert.equal(await address(), before);
  assert.deepEqual(host.failures, []);
});

test('what is no new address is refused, and strangers are not written to without end', async (t) => {
  const { change } = await scene(t);
  assert.equal((await change(before)).status, 400);
  assert.equal((await change('no address')).status, 422);
  const statuses: number[] = [];
  for (let i = 0; i < 7; i++) statuses.push((await change(`stranger${i}@example.org`)).status);
  assert.deepEqual([statuses.slice(0, 5), statuses.at(-1)], [[200, 200, 200, 200, 200], 429]);
});
