/** One rule for what is an address, in every route and operation that takes one: what it refuses is refused before anything is written. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { accountRoutes } from '../../src/account-api/routes.ts';
import { isMailAddress } from '../../src/accounts/mail-address.ts';
import { operate } from '../../src/accounts/operations.ts';
import { openHost } from '../account-api/host.ts';
import { Browser, password, person } from './users/person.ts';

const long = (length: number): string => 'x'.repeat(length);

const good = [
  'a@b.de',
  "o'neil_the-3rd+news@mail.example.co.uk",
  'UPPER.lower@Example.ORG',
  `${long(64)}@example.org`,
  `x@${long(63)}.example.org`,
  `x@${`${long(60)}.`.repeat(4)}museum`,
];

const bad = [
  '',
  'x',
  '@example.org',
  'x@',
  'x@example',
  'x@.example.org',
  'x@example..org',
  'x@example.org.',
  'x@-example.org',
  'x@example-.org',
  'x@example.o',
  'x@example.0rg',
  '.x@example.org',
  'x.@example.org',
  'x..y@example.org',
  'a,b@x.org',
  'a;b@x.org',
  'a b@x.org',
  ' a@x.org',
  'a@x.org ',
  'a@b@x.org',
  'x@[127.0.0.1]',
  'x@127.0.0.1',
  'x@[IPv6:::1]',
  '"x y"@example.org',
  'x(comment)@example.org',
  'X <x@example.org>',
  '<x@example.org>',
  'mailto:x@example.org',
  'x\u0000@example.org',
  'x@example.org\u0000',
  'x\u007f@example.org',
  'x@exa\u007fmple.org',
  'x@example.org\r\nBcc: y@example.org',
  'x\n@example.org',
  'x\t@example.org',
  'x\u0085@example.org',
  'x\u2028@example.org',
  'x\u200b@example.org',
  'x\u202e@example.org',
  '\ufeffx@example.org',
  'ü@example.org',
  'x@bücher.example',
  'x@ｅxample.org',
  'x\ud800@example.org',
  'x%y!z@example.org',
  `${long(65)}@example.org`,
  `x@${long(64)}.example.org`,
  `x@${`${long(61)}.`.repeat(4)}museum`,
  `${'a.'.repeat(5_000)}@example.org`,
  `${long(100_000)}@`,
];

test('the rule itself', () => {
  for (const address of good) assert.ok(isMailAddress(address), address);
  for (const address of bad) assert.ok(!isMailAddress(address), JSON.stringify(address.slice(0, 100)));
});

test('an address that passes is stored, written to, and signed in with', async (t) => {
  const clock = { now: Date.now() };
  const host = await openHost(t, accountRoutes, () => clock.now, { signIn: { signUp: 'open', oidc: [] } });
  const owner = await host.key(await host.account('acct_a'), 'owner');
  for (const email of good) {
    clock.now += 600_000; // attempts are counted
    const invited = await host.ask('POST', '/v1/invites', { key: owner, json: { email, role: 'viewer' } });
    assert.equal(invited.status, 200, invited.body);
    const signedUp = await host.ask('POST', '/v1/auth/sign-up', { json: { email, password, name: 'A person' } });
    assert.equal(signedUp.status, 200, `${email}: ${signedUp.body}`);
    const billing = { invoice_email: email };
    const changed = await host.ask('PATCH', '/v1/account', { key: owner, json: { billing } });
    assert.equal(changed.status, 200, changed.body);
  }
  assert.equal(host.mails.filter(({ kind }) => kind === 'invitation').length, good.length);
  assert.deepEqual(host.failures, []);
});

test('one that does not is a mistake of the sender, everywhere, and nothing is written', async (t) => {
  const clock = { now: Date.now() };
  const host = await openHost(t, accountRoutes, () => clock.now, { signIn: { signUp: 'open', oidc: [] } });
  const owner = await host.key(await host.account('acct_a'), 'owner');
  await person(host, 'known@example.org', 'Known');
  const browser = new Browser(host);
  const headers = () =>
    [['cookie', [...browser.cookies].map(([name, value]) => `${name}=${value}`).join('; ')]] as const;
  const token = 'a-token-that-nobody-has-made';
  const asks = (email: string) =>
    [
      ['POST', '/v1/invites', { key: owner, json: { email, role: 'viewer' } }],
      ['PATCH', '/v1/account', { key: owner, json: { billing: { invoice_email: email } } }],
      ['POST', '/v1/auth/sign-up', { json: { email, password, name: 'A person' } }],
      ['POST', '/v1/auth/sign-in', { json: { email, password } }],
      ['POST', '/v1/auth/password/forgot', { json: { email } }],
      ['POST', '/v1/auth/email', { headers: headers(), json: { email } }],
      ['POST', '/v1/owner', { json: { email, password, name: 'A person', token } }],
    ] as const;
  for (const [index, address] of bad.entries()) {
    clock.now += 60_000; // requests are counted
    // A change of the address takes somebody who has just proved who they are.
    if (index % 10 === 0) await browser.signIn('known@example.org', password);
    for (const [method, path, request] of asks(address)) {
      const answer = await host.ask(method, path, request);
      const what = `${method} ${path} ${JSON.stringify(address.slice(0, 100))}: ${answer.status} ${answer.body}`;
      assert.ok(answer.status === 400 || answer.status === 422, what);
      assert.match(answer.body, /e-?mail/, what);
    }
    const input = { kind: 'create_owner', email: address, name: 'A person', passwordHash: 'x' } as const;
    await assert.rejects(operate(input, host.services.operations), /not an e-mail address/);
  }
  const invites = await host.ask('GET', '/v1/invites', { key: owner });
  assert.deepEqual(invites.json()['data'], []);
  const written = host.mails.filter(({ to }) => to !== 'known@example.org');
  assert.deepEqual([written, host.failures], [[], []]);
});
