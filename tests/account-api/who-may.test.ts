/** Who may call a route, whose request a browser may send, and which cookies are a session's: the decisions alone, without a host. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { test } from 'node:test';

import { refuseCrossSite } from '../../src/account-api/cross-site.ts';
import type { AccountRoute, Principal, Role } from '../../src/account-api/route.ts';
import { admit } from '../../src/account-api/senders.ts';
import type { AccountServices } from '../../src/account-api/services.ts';
import { cookieOf, sessionCookie, signedValue } from '../../src/accounts/users/cookies.ts';
import { ApiError } from '../../src/platform/errors.ts';

const now = 1_800_000_000_000;
const provedForMs = 900_000;
const none: Principal = { kind: 'nobody' };
const key = (role: Role, changes: object = {}): Principal => ({
  ...{ kind: 'key', keyId: 'key_1', name: 'k', accountId: 'acct_key', role, isOperator: false, isSuspended: false },
  ...changes,
});
/** A person's role in `acct_own`, which is the first of theirs; `acct_off` of theirs is suspended. */
const person = (changes: object = {}): Principal => ({
  ...{ kind: 'user', userId: 'user_1', sessionId: 's', name: 'P', email: 'p@example.com', isOperator: false },
  ...{ viewing: undefined, hasTwoFactor: false, provedAt: now - provedForMs, ...changes },
});
const viewer = (isSuspended = false): Principal =>
  person({ viewing: { accountId: 'acct_seen', name: 'Seen', isSuspended, expiresAt: now + 1 } });
const operator = { isOperator: true };
const longAgo = { provedAt: now - provedForMs - 1 };

const services = {
  users: {
    membership: (_: string, named = 'acct_own') =>
      Promise.resolve(
        named === 'acct_own' || named === 'acct_off'
          ? { id: named, role: 'admin', isSuspended: named === 'acct_off' }
          : undefined,
      ),
  },
  operations: { now: () => now },
} as unknown as AccountServices;
const strangers = {
  ...services,
  users: { membership: () => Promise.resolve(undefined) },
} as unknown as AccountServices;

const may: AccountRoute['access'] = ['owner', 'admin'];
const read: AccountRoute['access'] = ['owner', 'admin', 'viewer'];
const get = 'get';
/** Access, method and marks of a route; who asks for which account; the account and role it is let in with, or the refusal. */
const asked: readonly (readonly [
  route: Pick<AccountRoute, 'access'> & Partial<AccountRoute>,
  principal: Principal,
  named: string | undefined,
  outcome: string,
])[] = [
  [{ access: 'anyone' }, none, undefined, 'no account'],
  [{ access: 'anyone' }, person(), 'acct_none', 'no account'],
  [{ access: 'user' }, none, undefined, 'missing_api_key'],
  [{ access: 'operator' }, none, undefined, 'missing_api_key'],
  [{ access: may }, none, undefined, 'missing_api_key'],

  [{ access: 'user' }, person(), undefined, 'no account'],
  [{ access: 'user' }, key('owner', operator), undefined, 'people who are signed in'],

  [{ access: 'operator' }, person(), undefined, 'operator of the server'],
  [{ access: 'operator' }, person(operator), undefined, 'no account'],
  [{ access: 'operator' }, key('owner'), undefined, 'operator of the server'],
  [{ access: 'operator' }, key('viewer', operator), undefined, 'no account'],
  [{ access: 'operator' }, key('owner', { ...operator, isSuspended: true }), undefined, 'account of this key'],

  [{ access: may }, key('owner'), undefined, 'acct_key owner'],
  [{ access: may }, key('owner'), 'acct_key', 'acct_key owner'],
  [{ access: may }, key('owner'), 'acct_own', 'http_404'],
  [{ access: may }, key('developer'), undefined, 'needs the role owner or admin; yours is developer'],
  [{ access: ['owner'] }, key('admin'), undefined, 'needs the role owner; yours is admin'],
  [{ access: read }, key('billing'), undefined, 'needs the role owner, admin or viewer; yours is billing'],
  [{ access: may }, person(), undefined, 'acct_own admin'],
  [{ access: may }, person(), 'acct_own', 'acct_own admin'],
  [{ access: may }, person(operator), 'acct_other', 'http_404'],

  // Step-up: a person proves who they are again after a quarter of an hour; a key cannot, and is asked for nothing.
  [{ access: may, stepUp: true }, person(), undefined, 'acct_own admin'],
  [{ access: may, stepUp: true }, person(longAgo), undefined, 'Sign in again'],
  [{ access: may }, person(longAgo), undefined, 'acct_own admin'],
  [{ access: 'user', stepUp: true }, person(longAgo), undefined, 'Sign in again'],
  [{ access: 'operator', stepUp: true }, person({ ...operator, ...longAgo }), undefined, 'Sign in again'],
  [{ access: may, stepUp: true }, key('owner'), undefined, 'acct_key owner'],

  // A suspended account is read, and changed by nobody.
  [{ access: may, method: get }, person(), 'acct_off', 'acct_off admin'],
  [{ access: may }, person(), 'acct_off', 'suspended'],
  [{ access: may, evenSuspended: true }, person(), 'acct_off', 'acct_off admin'],
  [{ access: may, method: get, stepUp: true }, person(), 'acct_off', 'acct_off admin'],
  [{ access: may, method: get }, key('owner', { isSuspended: true }), undefined, 'acct_key owner'],
  [{ access: may }, key('owner', { isSuspended: true }), undefined, 'suspended'],
  [{ access: may, evenSuspended: true }, key('owner', { isSuspended: true }), undefined, 'acct_key owner'],
  [{ access: may, method: get, stepUp: true }, key('owner', { isSuspended: true }), undefined, 'suspended'],

  // An operator who looks at an account as a viewer has that role there, and nothing else anywhere.
  [{ access: read, method: get }, viewer(), undefined, 'acct_seen viewer'],
  [{ access: read, method: get }, viewer(true), 'acct_seen', 'acct_seen viewer'],
  [{ access: read, method: get }, viewer(), 'acct_own', 'You view Seen'],
  [{ access: may, method: get }, viewer(), undefined, 'yours is viewer'],
  [{ access: read }, viewer(), undefined, 'You view Seen'],
  [{ access: read, method: get, stepUp: true }, viewer(), undefined, 'You view Seen'],
  [{ access: 'operator', method: get }, viewer(), undefined, 'You view Seen'],
  [{ access: 'user', method: get }, viewer(), undefined, 'no account'],
  [{ access: 'user' }, viewer(), undefined, 'You view Seen'],
  [{ access: 'user', evenViewing: true }, viewer(), undefined, 'no account'],
];

const outcomeOf = async (admitting: Promise<{ readonly id: string; readonly role: string } | undefined>) => {
  try {
    const scope = await admitting;
    return scope === undefined ? 'no account' : `${scope.id} ${scope.role}`;
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return `${error.code}: ${error.message}`;
  }
};

test('who may call a route', async () => {
  for (const [route, principal, named, outcome] of asked) {
    const whole = { method: 'post', ...route } as AccountRoute;
    const found = await outcomeOf(admit(whole, principal, named, services));
    assert.ok(found.includes(outcome), JSON.stringify([route, principal, named, found]));
  }
  for (const [named, outcome] of [
    [undefined, 'http_403: You do not belong to an account yet.'],
    ['acct_own', 'http_404'],
  ] as const)
    assert.ok((await outcomeOf(admit({ access: may } as AccountRoute, person(), named, strangers))).includes(outcome));
});

const site = 'sec-fetch-site';
const own = 'https://pay.example';
const typed = 'pay.local:8080';
const sent: readonly (readonly [method: string, headers: IncomingHttpHeaders, isAllowed: boolean])[] = [
  ['GET', { [site]: 'cross-site', origin: 'https://evil.example' }, true],
  ['HEAD', { [site]: 'cross-site' }, true],
  ['OPTIONS', { [site]: 'cross-site' }, true],
  // What a browser says of itself decides, whatever else is sent.
  ['POST', { [site]: 'same-origin', origin: 'https://evil.example' }, true],
  ['POST', { [site]: 'none' }, true],
  ['POST', { [site]: 'same-site', origin: own }, false],
  ['DELETE', { [site]: 'cross-site', origin: own }, false],
  // A program, and browsers that do not say it.
  ['POST', {}, true],
  ['POST', { origin: own }, true],
  ['POST', { origin: own, host: typed }, true],
  ['POST', { origin: 'https://evil.example' }, false],
  ['PATCH', { origin: 'https://evil.example', host: typed }, false],
  ['POST', { origin: 'null', host: typed }, false],
  ['POST', { origin: 'file://', host: '' }, false],
  // The address that was typed, with either scheme; that of the public one has its own.
  ['POST', { origin: `http://${typed}`, host: typed }, true],
  ['POST', { origin: `https://${typed}`, host: typed.toUpperCase() }, true],
  ['POST', { origin: `HTTP://${typed.toUpperCase()}`, host: typed }, true],
  ['POST', { origin: `http://${typed}/x`, host: typed }, false],
  ['POST', { origin: 'http://pay.local', host: typed }, false],
  ['POST', { origin: 'http://pay.example', host: 'pay.example' }, false],
  ['POST', { origin: `http://${typed}` }, false],
];

test('what pages of other sites make a browser send is refused', () => {
  for (const [method, headers, isAllowed] of sent) {
    const ask = (): void => refuseCrossSite({ method, headers } as IncomingMessage, own);
    if (isAllowed) ask();
    else assert.throws(ask, { code: 'http_403' }, JSON.stringify([method, headers]));
  }
});

test('the cookie of a session: its name by the address, one value, and signed with our secret', () => {
  assert.equal(sessionCookie('https://pay.example'), '__Host-tokenhouse.session_token');
  assert.equal(sessionCookie('http://localhost:8080'), 'tokenhouse.session_token');
  for (const [header, value] of [
    ['a=1', '1'],
    ['b=2; a=1; c=3', '1'],
    [' a = 1 ', '1'],
    ['a=1=2', '1=2'],
    ['a=', ''],
    ['=a', undefined],
    ['a', undefined],
    ['aa=1', undefined],
    ['a=1; a=1', undefined],
    ['', undefined],
  ] as const)
    assert.equal(cookieOf(header, 'a'), value, header);
  assert.equal(cookieOf('=1', ''), undefined, 'a pair without a name');

  const signed = (value: string, secret = 's'): string =>
    `${value}.${createHmac('sha256', secret).update(value).digest('base64')}`;
  for (const [cookie, value] of [
    [encodeURIComponent(signed('token')), 'token'],
    [encodeURIComponent(signed('t')), 't'],
    [encodeURIComponent(signed('to.ken')), 'to.ken'],
    [encodeURIComponent(signed('')), undefined],
    [encodeURIComponent(signed('token', 'other')), undefined],
    [encodeURIComponent(signed('token').replace('token', 'taken')), undefined],
    ['token.', undefined],
    ['token', undefined],
    [encodeURIComponent(signed('token').slice(0, -4)), undefined],
    ['%', undefined],
  ] as const)
    assert.equal(signedValue(cookie, 's'), value, cookie);
});
