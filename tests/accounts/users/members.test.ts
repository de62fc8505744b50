import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { ownAccountRoutes } from '../../../src/account-api/routes/account.ts';
import { memberRoutes } from '../../../src/account-api/routes/members.ts';
import { userRoutes } from '../../../src/account-api/routes/users.ts';
import type { Role } from '../../../src/account-api/route.ts';
import { operate } from '../../../src/accounts/operations.ts';
import { openHost } from '../../account-api/host.ts';
import type { TestHost } from '../../account-api/host.ts';
import { until } from '../../support/service.ts';
import { Browser, password, person, tokenOf } from './person.ts';

interface Scene {
  readonly host: TestHost;
  readonly clock: { now: number };
  /** Somebody with a role in `acct_a`, signed in. */
  readonly join: (name: string, role: Role) => Promise<Browser & { readonly id: string }>;
}

async function scene(t: TestContext): Promise<Scene> {
  const clock = { now: Date.now() };
  const host = await openHost(t, [...userRoutes, ...memberRoutes, ...ownAccountRoutes], () => clock.now, {
    signIn: { signUp: 'open', oidc: [] },
  });
  await host.account('acct_a');
  await host.account('acct_b');
  return {
    host,
    clock,
    join: async (name, role) => {
      const id = await person(host, `${name}@example.org`, name);
      await host.services.operations.repositories.addMember({ accountId: 'acct_a', userId: id, role, at: clock.now++ });
      const browser = new Browser(host);
      await browser.signIn(`${name}@example.org`, password);
      return Object.assign(browser, { id });
    },
  };
}

test('somebody is invited, joins with a password, and is a member with that role', async (t) => {
  const { host, join } = await scene(t);
  const owner = await join('owner', 'owner');
  const made = await owner.ask('POST', '/v1/invites', { email: 'New@Example.org', role: 'developer' });
  assert.equal(made.status, 200, JSON.stringify(made.body));
  assert.ok(!JSON.stringify(made.body).includes(tokenOf(host, 'invitation')));
  assert.equal((await owner.ask('GET', '/v1/invites')).body['data'][0].email, 'new@example.org');
  const token = tokenOf(host, 'invitation');
  const newcomer = new Browser(host);
  const bare = await newcomer.ask('POST', '/v1/invites/accept', { token });
  assert.deepEqual([bare.status, bare.body['error'].param], [400, 'name']);
  const joined = await newcomer.ask('POST', '/v1/invites/accept', { token, name: 'Newcomer', password });
  assert.deepEqual(joined, { status: 200, body: { object: 'membership', account_id: 'acct_a', role: 'developer' } });
  const { body: me } = await newcomer.ask('GET', '/v1/me');
  assert.deepEqual(
    [me['email'], me['accounts']],
    ['new@example.org', [{ id: 'acct_a', name: 'acct_a', role: 'developer', status: 'active' }]],
  );
  const members = await newcomer.ask('GET', '/v1/members?limit=1');
  assert.deepEqual([members.body['data'].length, members.body['has_more']], [1, true]);
  const rest = await newcomer.ask('GET', `/v1/members?after=${members.body['next_after']}`);
  assert.deepEqual([rest.body['data'].length, rest.body['has_more']], [1, false]);
  assert.equal((await newcomer.ask('POST', '/v1/invites', { email: 'x@example.org', role: 'viewer' })).status, 403);
  const again = { token, name: 'Again', password };
  assert.equal((await new Browser(host).ask('POST', '/v1/invites/accept', again)).status, 404, 'once');
});

test('an invitation is for one address, for seven days, until it is taken back or a newer one is sent', async (t) => {
  const { host, clock, join } = await scene(t);
  const owner = await join('owner', 'owner');
  await person(host, 'guest@example.org');
  const invite = async (): Promise<[string, string]> => {
    const { body } = await owner.ask('POST', '/v1/invites', { email: 'guest@example.org', role: 'viewer' });
    return [tokenOf(host, 'invitation'), body['id'] as string];
  };
  const eve = new Browser(host);
  await person(host, 'eve@example.org');
  await eve.signIn('eve@example.org', password);
  const accept = (browser: Browser, token: string) => browser.ask('POST', '/v1/invites/accept', { token });

  const [first] = await invite();
  const [second, id] = await invite();
  const guest = new Browser(host);
  assert.equal((await accept(guest, second)).status, 401, 'they are known, so they sign in first');
  await guest.signIn('guest@example.org', password);
  assert.equal((await accept(guest, first)).status, 404);
  assert.equal((await accept(eve, second)).status, 404, 'for others it is as dead as any');
  assert.equal((await accept(guest, 'A'.repeat(43))).status, 404);
  assert.equal((await owner.ask('DELETE', `/v1/invites/${id}`)).status, 200);
  assert.equal((await owner.ask('DELETE', `/v1/invites/${id}`)).status, 404);
  assert.equal((await accept(guest, second)).status, 404);
  const [third] = await invite();
  clock.now += 7 * 86_400_000;
  const { operations, users } = host.services;
  const late = await operations.repositories.listInvitations({ accountId: 'acct_a', at: clock.now, limit: 10 });
  assert.deepEqual(late, []);
  assert.equal((await accept(new Browser(host), third)).status, 404);
  assert.equal(await users.tidy(), true, 'there may be more');
  assert.equal(await users.tidy(), false);
});

test('owners see in the log who of their people signed in, since they belong to the account', async (t) => {
  const { host, clock, join } = await scene(t);
  const owner = await join('owner', 'owner');
  const early = new Browser(host);
  const id = await person(host, 'late@example.org', 'late');
  await early.signIn('late@example.org', password);
  clock.now += 1000;
  const { repositories } = host.services.operations;
  await repositories.addMember({ accountId: 'acct_a', userId: id, role: 'viewer', at: clock.now });
  const logged = async (limit: number) =>
    (await repositories.listAudit({ accountId: 'acct_a', limit })).map(({ action, actor }) => [action, actor.name]);
  assert.deepEqual(await logged(10), [['session.create', 'owner@example.org']], 'what was before is their own affair');
  clock.now += 1000;
  const browser = new Browser(host);
  await browser.signIn('late@example.org', password);
  await browser.ask('POST', '/v1/auth/sign-out');
  await owner.ask('POST', '/v1/invites', { email: 'new@example.org', role: 'viewer' });
  const all = [
    ['invite.create', 'owner@example.org'],
    ['session.delete', 'late@example.org'],
    ['session.create', 'late@example.org'],
    ['session.create', 'owner@example.org'],
  ];
  assert.deepEqual(await logged(10), all);
  assert.deepEqual(await logged(2), all.slice(0, 2));
  assert.deepEqual(await repositories.listAudit({ accountId: 'acct_b', limit: 10 }), []);
  await repositories.setMemberRole({ accountId: 'acct_a', userId: id, role: null });
  assert.deepEqual(await logged(10), [all[0], all[3]], 'nor when they have left');
});

test('nobody gives or takes a role above their own, and an account keeps an owner', async (t) => {
  const { join } = await scene(t);
  const [owner, admin, billing] = [
    await join('owner', 'owner'),
    await join('admin', 'admin'),
    await join('billing', 'billing'),
  ];
  const set = (browser: Browser, id: string, role: Role) => browser.ask('PATCH', `/v1/members/${id}`, { role });
  assert.equal((await admin.ask('POST', '/v1/invites', { email: 'x@example.org', role: 'owner' })).status, 403);
  assert.equal((await set(admin, billing.id, 'owner')).status, 403);
  assert.equal((await set(admin, admin.id, 'owner')).status, 403);
  assert.equal((await set(admin, owner.id, 'viewer')).status, 403);
  assert.equal((await admin.ask('DELETE', `/v1/members/${owner.id}`)).status, 403);
  assert.equal((await set(billing, billing.id, 'admin')).status, 403);
  assert.equal((await billing.ask('DELETE', `/v1/members/${admin.id}`)).status, 403);
  assert.equal((await set(owner, owner.id, 'admin')).status, 409);
  assert.equal((await owner.ask('DELETE', `/v1/members/${owner.id}`)).status, 409);
  assert.equal((await set(owner, admin.id, 'owner')).status, 200);
  // Two owners who leave at once: one stays.
  const left = await Promise.all([owner, admin].map((one) => one.ask('DELETE', `/v1/members/${one.id}`)));
  assert.deepEqual(left.map(({ status }) => status).toSorted(), [200, 409]);
});

test('a role that changes, and a member who is removed, feel it in the session that runs', async (t) => {
  const { host, join } = await scene(t);
  const [owner, admin] = [await join('owner', 'owner'), await join('admin', 'admin')];
  const { operations } = host.services;
  const keyOf = async (userId: string | undefined) => {
    const made = await operate(
      { kind: 'create_key', accountId: 'acct_a', name: 'x', userId, expiresAt: undefined },
      operations,
    );
    return made.keyId;
  };
  const [own, shared] = [await keyOf(admin.id), await keyOf(undefined)];
  assert.equal((await admin.ask('GET', '/v1/invites')).status, 200);
  assert.equal((await owner.ask('PATCH', `/v1/members/${admin.id}`, { role: 'viewer' })).status, 200);
  assert.equal((await admin.ask('GET', '/v1/invites')).status, 403);
  assert.equal((await admin.ask('GET', '/v1/members')).status, 200);
  const removed = await owner.ask('DELETE', `/v1/members/${admin.id}`);
  assert.deepEqual(removed.body, { id: admin.id, object: 'member', deleted: true, revoked_keys: [own] });
  assert.equal((await admin.ask('GET', '/v1/members')).status, 403);
  assert.equal((await admin.ask('GET', '/v1/me')).body['accounts'].length, 0);
  const keys = await operations.repositories.listKeys({ accountId: 'acct_a' });
  assert.deepEqual(
    new Map(keys.map(({ id, status }) => [id, status])),
    new Map([
      [own, 'revoked'],
      [shared, 'active'],
    ]),
  );
});

test('members of another account are not there', async (t) => {
  const { host, join } = await scene(t);
  const member = await join('member', 'owner');
  const stranger = new Browser(host);
  const strangerId = await person(host, 'stranger@example.org');
  await stranger.signIn('stranger@example.org', password);
  for (const [browser, id] of [
    [stranger, member.id],
    [member, strangerId],
    [member, '0'.repeat(32)],
  ] as const)
    for (const [method, body] of [
      ['GET', undefined],
      ['PATCH', { role: 'viewer' }],
      ['DELETE', undefined],
    ] as const) {
      const { status, body: answer } = await browser.ask(method, `/v1/members/${id}`, body);
      assert.deepEqual([status, answer['error'].message], [404, 'Nothing with this id was found.'], `${method} ${id}`);
    }
});

test('what takes a fresh sign-in is refused a quarter of an hour after it', async (t) => {
  const { clock, join } = await scene(t);
  const owner = await join('owner', 'owner');
  clock.now += 15 * 60_000 + 1000;
  const stale = await owner.ask('POST', '/v1/invites', { email: 'x@example.org', role: 'viewer' });
  assert.deepEqual([stale.status, stale.body['error'].step_up_required], [403, true]);
  assert.equal((await owner.ask('GET', '/v1/invites')).status, 200);
});

test('owners and admins see when members last signed in since they joined, others their own alone', async (t) => {
  const { join } = await scene(t);
  const owner = await join('owner', 'owner');
  const viewer = await join('viewer', 'viewer');
  const shown = async (by: Browser): Promise<readonly (readonly [string, boolean])[]> =>
    (await by.ask('GET', '/v1/members')).body['data'].map(
      (member: { readonly name: string; readonly joined_at: number; readonly last_sign_in_at: number | null }) => [
        member.name,
        member.last_sign_in_at !== null && member.last_sign_in_at >= member.joined_at,
      ],
    );
  assert.deepEqual(await shown(owner), [
    ['viewer', true],
    ['owner', true],
  ]);
  assert.deepEqual(await shown(viewer), [
    ['viewer', true],
    ['owner', false],
  ]);
  const one = (await viewer.ask('GET', `/v1/members/${owner.id}`)).body;
  assert.deepEqual([one['id'], one['last_sign_in_at']], [owner.id, null]);
});

test('owners and admins set what a member may spend; an admin not for an owner, and others see their own alone', async (t) => {
  const { host, join } = await scene(t);
  const [owner, admin, billing, viewer] = [
    await join('owner', 'owner'),
    await join('admin', 'admin'),
    await join('billing', 'billing'),
    await join('viewer', 'viewer'),
  ];
  const set = (by: Browser, { id }: { readonly id: string }, json: object) =>
    by.ask('PATCH', `/v1/members/${id}`, json);
  const limit = { limit_cents: 250, limit_reset: 'weekly' };
  for (const [by, of] of [
    [admin, owner],
    [billing, viewer],
    [viewer, viewer],
  ] as const)
    assert.equal((await set(by, of, limit)).status, 403);
  const early = await set(admin, viewer, { limit_reset: 'daily' });
  assert.deepEqual([early.status, early.body['error'].param], [400, 'limit_reset']);
  for (const [json, param] of [
    [{ limit_cents: -1 }, 'limit_cents'],
    [{ limit_cents: 1.5 }, 'limit_cents'],
    [{ limit_cents: 1, limit_reset: 'hourly' }, 'limit_reset'],
  ] as const) {
    const { status, body } = await set(admin, viewer, json);
    assert.deepEqual([status, body['error'].param], [422, param]);
  }
  const both = (await set(admin, viewer, { ...limit, role: 'developer' })).body;
  assert.deepEqual(
    [both['role'], both['limit_cents'], both['limit_microcents'], both['limit_remaining_microcents']],
    ['developer', 250, 250_000_000, 250_000_000],
  );
  assert.equal((await set(admin, viewer, { limit_reset: 'daily' })).body['limit_cents'], 250, 'the amount stays');
  assert.equal((await set(owner, owner, { limit_cents: 7 })).body['limit_reset'], null);
  const seen = async (by: Browser) =>
    (await by.ask('GET', '/v1/members')).body['data'].map((member: Record<string, unknown>) => [
      member['name'],
      member['limit_cents'],
      member['limit_reset'],
    ]);
  const none = [
    ['billing', null, null],
    ['admin', null, null],
  ];
  const all = [['viewer', 250, 'daily'], ...none, ['owner', 7, null]];
  assert.deepEqual([await seen(owner), await seen(admin)], [all, all]);
  assert.deepEqual(await seen(viewer), [['viewer', 250, 'daily'], ...none, ['owner', null, null]]);

  const { repositories } = host.services.operations;
  const logged = await repositories.listAudit({ accountId: 'acct_a', limit: 100 });
  const changes = logged.filter(({ action, outcome }) => action === 'member.budget' && outcome === 'done');
  assert.deepEqual(
    changes.map(({ actor, target, before, after }) => [actor.id, target, before, after].map(String)),
    [
      [
        owner.id,
        owner.id,
        '{"role":"owner","budget":null}',
        '{"role":"owner","budget":{"microcents":"7000000","per":"total"}}',
      ],
      [
        admin.id,
        viewer.id,
        '{"role":"developer","budget":{"microcents":"250000000","per":"week"}}',
        '{"role":"developer","budget":{"microcents":"250000000","per":"day"}}',
      ],
      [
        admin.id,
        viewer.id,
        '{"role":"developer","budget":null}',
        '{"role":"developer","budget":{"microcents":"250000000","per":"week"}}',
      ],
    ],
  );
  assert.equal((await set(admin, viewer, { limit_cents: null })).body['limit_cents'], null);
});

test('what a member did keeps their name when they have left; what they do here later has none', async (t) => {
  const { host, join, clock } = await scene(t);
  const owner = await join('owner', 'owner');
  const admin = await join('admin', 'admin');
  await admin.ask('POST', '/v1/invites', { email: 'new@example.org', role: 'viewer' });
  assert.equal((await owner.ask('DELETE', `/v1/members/${admin.id}`)).status, 200);
  // Their way back in: as the operator of the server, for example.
  const removedAt = Date.now();
  await until(() => Date.now() > removedAt);
  const { repositories, newId } = host.services.operations;
  const actor = { kind: 'user', id: admin.id, name: 'admin@example.org' } as const;
  const later = { action: 'credit.grant', target: null, before: null, after: null, requestId: null, address: null };
  await repositories.recordAudit({ ...later, id: newId(), at: clock.now, accountId: 'acct_a', actor });
  const seen = async (query = ''): Promise<unknown> =>
    (await owner.ask('GET', `/v1/audit_logs?action=credit&action=invite${query}`)).body['data'].map(
      (entry: { readonly action: string; readonly actor: { readonly name: string | null } }) => [
        entry.action,
        entry.actor.name,
      ],
    );
  assert.deepEqual(await seen(), [
    ['credit.grant', null],
    ['invite.create', 'admin@example.org'],
  ]);
  assert.deepEqual(await seen(`&actor=${admin.id}`), [['invite.create', 'admin@example.org']]);
  assert.deepEqual(await seen(`&actor=${'0'.repeat(32)}`), []);
});
