/** What ends what (docs/people.md): every event against every one-time secret and session of a person, on one store or another. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { issueKey } from '../../../src/accounts/key.ts';
import { hashLinkToken } from '../../../src/accounts/link-token.ts';
import { createOwner, newPersonId } from '../../../src/accounts/owner.ts';
import { releasePerson } from '../../../src/accounts/release-person.ts';
import { secondFactorRoutes } from '../../../src/account-api/routes/second-factors.ts';
import { userRoutes } from '../../../src/account-api/routes/users.ts';
import { openHost, type HostOptions, type TestHost } from '../../account-api/host.ts';
import { uuid } from '../../store/fixture.ts';
import { totp } from '../../support/totp.ts';
import { Browser, password, person, tokenOf } from './person.ts';

const other = 'another long password';

interface Scene {
  readonly host: TestHost;
  readonly email: string;
  readonly userId: string;
  /** Signed in, and doing what the event is. */
  readonly browser: Browser;
  /** Signed in as well. */
  readonly elsewhere: Browser;
  /** The password was right there, and the code is still to come. */
  readonly halfway: Browser;
  /** Two links for a new password, and two for a new address, in the order in which they were sent. */
  readonly resets: readonly [string, string];
  readonly changes: readonly [string, string];
  /** Of the authenticator. */
  readonly secret: string;
}

type Store = NonNullable<HostOptions['store']>;

let scenes = 0;

/** A person with codes, for whom everything is open that can be. */
async function openScene(t: TestContext, open: (t: TestContext) => Promise<Store>): Promise<Scene> {
  const store = await open(t);
  const host = await openHost(t, [...userRoutes, ...secondFactorRoutes], Date.now, {
    signIn: openSignUp,
    store,
  });
  const email = `ada${++scenes}@example.org`;
  const userId = await person(host, email);
  const [browser, elsewhere, halfway] = [new Browser(host), new Browser(host), new Browser(host)];
  const ok = async (by: Browser, path: string, json: object) => {
    const { status, body } = await by.ask('POST', path, json);
    assert.equal(status, 200, `${path}: ${JSON.stringify(body)}`);
    return body;
  };
  await browser.signIn(email, password);
  const { totp_uri: uri } = await ok(browser, '/v1/auth/two-factor', { password });
  const secret = new URL(uri as string).searchParams.get('secret')!;
  await ok(browser, '/v1/auth/two-factor/verify', { code: totp(secret) });
  await elsewhere.signIn(email, password);
  await ok(elsewhere, '/v1/auth/two-factor/verify', { code: totp(secret) });
  assert.equal((await halfway.signIn(email, password))['two_factor_required'], true);
  const sent: string[] = [];
  for (let link = 0; link < 2; link++) {
    await ok(new Browser(host), '/v1/auth/password/forgot', { email });
    sent.push(tokenOf(host, 'reset'));
  }
  for (let link = 0; link < 2; link++) {
    await ok(browser, '/v1/auth/email', { email: `to${link}.${email}` });
    sent.push(tokenOf(host, 'verification'));
  }
  const [reset1, reset2, change1, change2] = sent as [string, string, string, string];
  const links = { resets: [reset1, reset2], changes: [change1, change2] } as const;
  return { host, email, userId, browser, elsewhere, halfway, secret, ...links };
}

/** How each is used: the status of the answer, 200 while it is open. */
const uses = {
  'a link for a new password': async ({ host, resets }: Scene) =>
    (await new Browser(host).ask('POST', '/v1/auth/password/reset', { token: resets[1], password: other })).status,
  'a link for a new address': async ({ browser, changes }: Scene) =>
    (await browser.ask('POST', '/v1/auth/verify-email', { token: changes[1] })).status,
  'a sign-in that waits for its code': async ({ halfway, secret }: Scene) =>
    (await halfway.ask('POST', '/v1/auth/two-factor/verify', { code: totp(secret) })).status,
  'another session': async ({ elsewhere }: Scene) => (await elsewhere.ask('GET', '/v1/me')).status,
  'this session': async ({ browser }: Scene) => (await browser.ask('GET', '/v1/me')).status,
} as const;

const post = async (by: Browser, path: string, json: object): Promise<void> => {
  const { status, body } = await by.ask('POST', path, json);
  assert.equal(status, 200, JSON.stringify(body));
};

async function addPasskey({ host, userId }: Scene): Promise<string> {
  const id = newPersonId();
  const row = { id, name: 'key', publicKey: 'p', userId, credentialID: id, counter: 0, deviceType: 'x', backedUp: 0 };
  await host.services.operations.repositories.authStore({ act: 'create', table: 'auth_passkey', row });
  return id;
}

/** Each event, and whether another session and this one go on after it. */
const events: Readonly<
  Record<
    string,
    { readonly elsewhere: boolean; readonly here: boolean; readonly run: (scene: Scene) => Promise<unknown> }
  >
> = {
  'a new password by link': {
    elsewhere: false,
    here: false,
    run: ({ host, resets }) =>
      post(new Browser(host), '/v1/auth/password/reset', { token: resets[0], password: other }),
  },
  'a new password by the old one': {
    elsewhere: false,
    here: true,
    run: ({ browser }) => post(browser, '/v1/auth/password', { current_password: password, new_password: other }),
  },
  'a new address': {
    elsewhere: false,
    here: true,
    run: ({ browser, changes }) => post(browser, '/v1/auth/verify-email', { token: changes[0] }),
  },
  'codes turned off': {
    elsewhere: false,
    here: true,
    run: ({ browser }) => post(browser, '/v1/auth/two-factor/disable', { password }),
  },
  'new backup codes': {
    elsewhere: true,
    here: true,
    run: ({ browser }) => post(browser, '/v1/auth/two-factor/backup-codes', { password }),
  },
  'a passkey added': { elsewhere: true, here: true, run: addPasskey },
  'a passkey removed': {
    elsewhere: false,
    here: true,
    run: async (scene) => {
      const id = await addPasskey(scene);
      assert.equal((await scene.browser.ask('DELETE', `/v1/auth/passkeys/${id}`)).status, 200);
    },
  },
  'codes and passkeys removed by an operator': {
    elsewhere: false,
    here: false,
    run: ({ host, email }) => releasePerson({ email }, host.services.operations),
  },
  'made the owner by an operator': {
    elsewhere: false,
    here: false,
    run: async ({ host, email }) => {
      const passwordHash = await host.services.users.passwords.hash(other);
      return await createOwner({ email, name: 'Ada', passwordHash }, host.services.operations);
    },
  },
};

const openSignUp = { signUp: 'open', oidc: [] } as const;

/** What somebody who has invited others loses, or has deleted. */
const leavings: Readonly<
  Record<
    string,
    (
      repositories: Store['repositories'],
      of: { readonly accountId: string; readonly userId: string; readonly keyId: string },
    ) => Promise<unknown>
  >
> = {
  'being removed': (repositories, { accountId, userId }) =>
    repositories.setMemberRole({ accountId, userId, role: null }),
  'becoming a viewer': (repositories, { accountId, userId }) =>
    repositories.setMemberRole({ accountId, userId, role: 'viewer' }),
  'becoming an admin': (repositories, { accountId, userId }) =>
    repositories.setMemberRole({ accountId, userId, role: 'admin' }),
  'deleting oneself': (repositories, { userId }) =>
    repositories.erasePerson({ userId, at: Date.now(), requestId: null, entryIds: [uuid(), uuid()] }),
  'revoking a management key': (repositories, { keyId }) =>
    repositories.revokeKey({ keyId, at: Date.now(), changeId: uuid() }),
};

const both = (...makers: readonly string[]): string[] =>
  makers.flatMap((maker) => [`${maker}: owner`, `${maker}: viewer`]);
const leftAfter: Readonly<Record<string, string[]>> = {
  'being removed': both('first', 'key'),
  'becoming a viewer': both('first', 'key'),
  'becoming an admin': [...both('first', 'key'), 'second: viewer'],
  'deleting oneself': both('first', 'key'),
  'revoking a management key': both('first', 'second'),
};

/** As whoever opens an invitation does. */
async function join(
  repositories: Store['repositories'],
  accountId: string,
  userId: string,
  role: 'owner',
): Promise<void> {
  const email = `${userId}@example.org`;
  const tokenHash = await invite(repositories, accountId, 'test', role, email);
  assert.ok(await repositories.acceptInvitation({ tokenHash, userId, email, at: Date.now() }));
}

async function invite(
  repositories: Store['repositories'],
  accountId: string,
  invitedBy: string,
  role: 'owner' | 'viewer',
  email = `${Buffer.from(uuid()).toString('hex')}@example.org`,
): Promise<Uint8Array> {
  const id = `inv_${Buffer.from(uuid()).toString('hex')}`;
  const tokenHash = hashLinkToken(id);
  const [createdAt, expiresAt] = [Date.now(), Date.now() + 60_000];
  await repositories.createInvitation({ id, accountId, email, role, invitedBy, tokenHash, createdAt, expiresAt });
  return tokenHash;
}

export function endingClaims(open: (t: TestContext) => Promise<Store>): void {
  for (const [kind, use] of Object.entries(uses))
    test(`without an event, ${kind} is open`, async (t) => {
      assert.equal(await use(await openScene(t, open)), 200);
    });

  for (const [event, { elsewhere, here, run }] of Object.entries(events))
    test(`${event} ends what was open before`, async (t) => {
      const scene = await openScene(t, open);
      await run(scene);
      const found: Record<string, boolean> = {};
      for (const kind of Object.keys(uses).reverse() as (keyof typeof uses)[])
        found[kind] = (await uses[kind](scene)) === 200;
      assert.deepEqual(found, {
        'this session': here,
        'another session': elsewhere,
        'a sign-in that waits for its code': false,
        'a link for a new address': false,
        'a link for a new password': false,
      });
    });

  test('codes turned on end other sessions and links', async (t) => {
    const scene = await openScene(t, open);
    const { browser, host, email } = scene;
    await post(browser, '/v1/auth/two-factor/disable', { password });
    const elsewhere = new Browser(host);
    await elsewhere.signIn(email, password);
    await post(new Browser(host), '/v1/auth/password/forgot', { email });
    const token = tokenOf(host, 'reset');
    const { body } = await browser.ask('POST', '/v1/auth/two-factor', { password });
    const secret = new URL(body['totp_uri'] as string).searchParams.get('secret')!;
    await post(browser, '/v1/auth/two-factor/verify', { code: totp(secret) });
    assert.deepEqual(
      [(await browser.ask('GET', '/v1/me')).status, (await elsewhere.ask('GET', '/v1/me')).status],
      [200, 401],
    );
    const reset = await new Browser(host).ask('POST', '/v1/auth/password/reset', { token, password: other });
    assert.equal(reset.status, 404);
  });

  for (const [event, change] of Object.entries(leavings))
    test(`${event} ends the invitations that its maker could not make any more`, async (t) => {
      const { ledger, repositories } = await open(t);
      const host = await openHost(t, userRoutes, Date.now, { signIn: openSignUp, store: { ledger, repositories } });
      const accountId = await host.account(`acct_${++scenes}`);
      const [first, second] = [
        await person(host, `o${scenes}@example.org`),
        await person(host, `i${scenes}@example.org`),
      ];
      await join(repositories, accountId, first, 'owner');
      await join(repositories, accountId, second, 'owner');
      const { row } = issueKey({
        accountId,
        name: 'k',
        role: 'owner',
        isOperator: false,
        secret: host.services.operations.secret,
        now: Date.now(),
      });
      await repositories.createKey({ key: row, changeId: uuid() });
      for (const by of [first, second, row.id])
        for (const role of ['owner', 'viewer'] as const) await invite(repositories, accountId, by, role);
      await change(repositories, { accountId, userId: second, keyId: row.id });
      const names: Readonly<Record<string, string>> = { [first]: 'first', [second]: 'second', [row.id]: 'key' };
      const left = await repositories.listInvitations({ accountId, at: Date.now(), limit: 100 });
      assert.deepEqual(
        left.map(({ invitedBy, role }) => `${names[invitedBy]}: ${role}`).toSorted(),
        leftAfter[event]!.toSorted(),
      );
    });

  test('an owner who is made without the link ends the link', async (t) => {
    const { ledger, repositories } = await open(t);
    const host = await openHost(t, userRoutes, Date.now, { store: { ledger, repositories } });
    await host.account(`acct_${++scenes}`);
    const tokenHash = hashLinkToken('a token that was printed');
    await repositories.setOwnerLink({ tokenHash, expiresAt: Date.now() + 60_000 });
    assert.equal(await repositories.isOwnerLink({ tokenHash, at: Date.now() }), true);
    const passwordHash = await host.services.users.passwords.hash(other);
    await createOwner({ email: `own${scenes}@example.org`, name: 'Ada', passwordHash }, host.services.operations);
    assert.equal(await repositories.isOwnerLink({ tokenHash, at: Date.now() }), false);
  });

  test('nobody else’s secrets end, and a link works once', async (t) => {
    const [ada, eve] = [await openScene(t, open), await openScene(t, open)];
    await events['a new password by link']!.run(ada);
    await assert.rejects(events['a new password by link']!.run(ada));
    assert.equal(await uses['a link for a new password'](eve), 200);
  });
}
