/** Operators who look at an account as a viewer: begin, end, and what of it is in the audit logs, on one store or another. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { viewForMs } from '../../src/accounts/account-views.ts';
import { createOwner } from '../../src/accounts/owner.ts';
import { accountRoutes } from '../../src/account-api/routes.ts';
import { provedForMs } from '../../src/account-api/senders.ts';
import { Browser, password, person, type Answer } from '../accounts/users/person.ts';
import { uuid } from '../store/fixture.ts';
import { openHost, type HostOptions, type TestHost } from './host.ts';

type Store = NonNullable<HostOptions['store']>;

/** The operator of the server, whose own account is the oldest one; they sign in by themselves. */
export async function operatorOf({ services: { users, operations } }: TestHost): Promise<string> {
  const passwordHash = await users.passwords.hash(password);
  const made = await createOwner({ email: 'op@example.org', name: 'Op', passwordHash }, operations);
  return made!.userId;
}

/** `sql` changes what no route changes. */
async function scene(t: TestContext, open: (t: TestContext) => Promise<Store>) {
  const clock = { now: Date.now() };
  const host = await openHost(t, accountRoutes, () => clock.now, {
    signIn: { signUp: 'open', oidc: [] },
    store: await open(t),
  });
  // A name of each, because stores of several tests may be one.
  await host.account('acct_own');
  const userId = await operatorOf(host);
  for (const id of ['acct_a', 'acct_b']) await host.account(id);
  const operator = await signedIn(host);
  const log = async (accountId: string): Promise<Answer[]> => {
    const key = await host.key(accountId, 'owner');
    const { data } = (await host.ask('GET', '/v1/audit_logs', { key })).json() as { data: Answer[] };
    return data.filter(({ action }) => String(action).startsWith('account.view'));
  };
  return { clock, host, operator, userId, log };
}

async function signedIn(host: TestHost): Promise<Browser> {
  const browser = new Browser(host);
  await browser.signIn('op@example.org', password);
  return browser;
}

const view = async (browser: Browser, account = 'acct_a'): Promise<number> =>
  (await browser.ask('POST', `/v1/admin/accounts/${account}/view`)).status;
const viewed = async (browser: Browser): Promise<string | undefined> =>
  (await browser.ask('GET', '/v1/me')).body['viewing']?.account_id as string | undefined;
const because = (entries: readonly Answer[]): unknown[] =>
  entries.map(({ action, after }) => (action === 'account.view' ? 'begun' : after.because)).toReversed();

/** How a view ends, what the log says of it, and what of the session is left: its own rights, or nothing. */
type Scene = Awaited<ReturnType<typeof scene>>;
const endings: Readonly<
  Record<string, { readonly because: string; readonly isOut?: true; readonly end: (s: Scene) => Promise<unknown> }>
> = {
  leaving: { because: 'left', end: ({ operator }) => operator.ask('DELETE', '/v1/auth/view') },
  time: { because: 'time', end: async ({ clock }) => void (clock.now += viewForMs) },
  'signing out': { because: 'session', isOut: true, end: ({ operator }) => operator.ask('POST', '/v1/auth/sign-out') },
  'another sign-in in the browser': {
    because: 'session',
    end: ({ operator }) => operator.signIn('op@example.org', password),
  },
  'its session ended from another browser': {
    because: 'session',
    isOut: true,
    end: async ({ host }) => (await signedIn(host)).ask('DELETE', '/v1/auth/sessions'),
  },
  'a new password, chosen in another browser': {
    because: 'session',
    isOut: true,
    end: async ({ host }) => {
      const changed = { current_password: password, new_password: 'another long password' };
      const { status } = await (await signedIn(host)).ask('POST', '/v1/auth/password', changed);
      assert.equal(status, 200);
    },
  },
};

export function viewClaims(open: (t: TestContext) => Promise<Store>): void {
  for (const [name, ending] of Object.entries(endings))
    test(`a view ends by ${name}, and the log of the account says who looked, when, and why it ended`, async (t) => {
      const one = await scene(t, open);
      const { clock, host, operator, userId, log } = one;
      assert.equal((await operator.ask('GET', '/v1/admin/accounts')).status, 200);
      const begun = await operator.ask('POST', '/v1/admin/accounts/acct_a/view');
      assert.deepEqual(
        [begun.status, begun.body['until']],
        [201, Math.floor((clock.now + viewForMs) / 1000)],
        JSON.stringify(begun.body),
      );
      const me = (await operator.ask('GET', '/v1/me')).body;
      assert.deepEqual(
        [me['is_operator'], me['accounts']],
        [false, [{ id: 'acct_a', name: 'acct_a', role: 'viewer', status: 'active' }]],
      );
      assert.equal((await operator.ask('GET', '/v1/admin/accounts')).status, 403);
      clock.now += viewForMs - 1;
      assert.equal(await viewed(operator), 'acct_a');
      clock.now -= viewForMs - 1;
      assert.deepEqual(because(await log('acct_a')), ['begun']);

      await ending.end(one);
      const after = await operator.ask('GET', '/v1/me');
      if (ending.isOut === true) assert.equal(after.status, 401);
      else {
        assert.deepEqual(
          [after.body['viewing'], after.body['is_operator'], after.body['accounts'][0].role],
          [null, true, 'owner'],
        );
        assert.equal((await operator.ask('GET', '/v1/admin/accounts')).status, 200);
        assert.equal((await operator.ask('GET', '/v1/keys')).status, 200);
      }
      while (await host.services.users.tidy());
      await host.services.users.tidy();
      const entries = await log('acct_a');
      assert.deepEqual(because(entries), ['begun', ending.because], 'once each');
      for (const { actor, target, account_id: account } of entries)
        assert.deepEqual(
          [actor, target, account],
          [{ kind: 'user', id: userId, name: 'op@example.org' }, 'acct_a', 'acct_a'],
        );
      assert.deepEqual(await log('acct_b'), [], 'nothing in that of another account');
      const fresh = new Browser(host);
      const again = ending.isOut === true && name.includes('password') ? 'another long password' : password;
      await fresh.signIn('op@example.org', again);
      const listed = (await fresh.ask('GET', '/v1/admin/audit?action=account.view&action=account.view_end')).body;
      assert.deepEqual(
        (listed['data'] as Answer[]).map((entry) => ({ ...entry, address: null })),
        entries,
        'the operator’s log has the same, and from where they looked',
      );
    });

  test('a session views one account: all of its tabs, and no other session', async (t) => {
    const { host, operator, log } = await scene(t, open);
    const other = await signedIn(host);
    const at = async (account: string, path = '/v1/keys') =>
      await host.ask('GET', path, {
        headers: [
          ['cookie', [...operator.cookies].map(([name, value]) => `${name}=${value}`).join('; ')],
          ['x-account-id', account],
        ],
      });
    assert.equal((await at('acct_own')).status, 200);
    const both = await Promise.all([view(operator), view(operator, 'acct_b')]);
    assert.deepEqual(both.toSorted(), [201, 409], 'two tabs at the same moment');
    const seen = (await viewed(operator))!;
    assert.equal(seen, both[0] === 201 ? 'acct_a' : 'acct_b');
    assert.equal((await at(seen)).status, 200);
    // A tab that still shows the operator's own account, one that asks for a third, and one that asks for none at all.
    for (const account of ['acct_own', seen === 'acct_a' ? 'acct_b' : 'acct_a', 'acct_none']) {
      const refused = await at(account);
      assert.equal(refused.status, 403);
      assert.equal((refused.json()['error'] as Answer)['viewing_account'], seen, 'and the tab is told why');
    }
    assert.equal(await view(operator, 'acct_b'), 403, 'first leave');
    assert.deepEqual([await viewed(other), (await other.ask('GET', '/v1/admin/accounts')).status], [undefined, 200]);
    assert.equal(await view(other, 'acct_b'), 201, 'another session views another account');
    assert.equal((await operator.ask('DELETE', '/v1/auth/view')).status, 200);
    assert.equal((await operator.ask('DELETE', '/v1/auth/view')).status, 200, 'the other tab leaves too');
    assert.deepEqual([await viewed(operator), await viewed(other)], [undefined, 'acct_b']);
    assert.equal((await at('acct_own')).status, 200);
    assert.equal((await at(seen)).status, 404);
    assert.equal(because(await log(seen)).filter((why) => why === 'left').length, 1);
  });

  test('who may view what: operators who are signed in and have proved it, accounts that are there', async (t) => {
    const { clock, host, operator, log } = await scene(t, open);
    const { ledger, repositories } = host.services.operations;
    const [found] = await repositories.listCustomers({ limit: 1 });
    assert.ok(found !== undefined);
    for (const id of ['acct_none', 'house', 'revenue', '..%2Facct_a']) assert.equal(await view(operator, id), 404, id);
    const key = await host.key('acct_own', 'owner', true);
    assert.equal(
      (await host.ask('POST', '/v1/admin/accounts/acct_a/view', { key })).status,
      403,
      'a key has no session',
    );
    const id = await person(host, 'ada@example.org');
    await repositories.addMember({ accountId: 'acct_b', userId: id, role: 'owner', at: clock.now });
    const ada = new Browser(host);
    await ada.signIn('ada@example.org', password);
    assert.deepEqual([await view(ada), await view(ada, 'acct_b')], [403, 403]);

    clock.now += provedForMs + 1;
    const late = await operator.ask('POST', '/v1/admin/accounts/acct_a/view');
    assert.deepEqual([late.status, late.body['error'].step_up_required], [403, true]);
    await operator.signIn('op@example.org', password);
    await ledger.setAccountStatus('acct_a', 'suspended', clock.now, uuid());
    assert.equal(await view(operator), 201, 'a suspended account is one that people ask about');
    assert.equal((await operator.ask('GET', '/v1/keys')).status, 200);
    assert.equal((await operator.ask('GET', '/v1/me')).body['accounts'][0].status, 'suspended');
    // Deleted under the eyes of the operator: nothing of it is seen any more.
    await repositories.eraseAccount({ accountId: 'acct_a', at: clock.now, changeId: uuid() });
    assert.deepEqual(
      [await viewed(operator), (await operator.ask('GET', '/v1/admin/accounts')).status],
      [undefined, 200],
    );
    assert.equal(await view(operator), 404);
    await host.services.users.tidy();
    assert.equal(because(await log('acct_b')).length, 0);
  });

  test('a link of an invitation takes no operator who views an account anywhere', async (t) => {
    const { host, operator } = await scene(t, open);
    const key = await host.key('acct_b', 'owner');
    const invited = await host.ask('POST', '/v1/invites', { key, json: { email: 'op@example.org', role: 'admin' } });
    assert.equal(invited.status, 200, invited.body);
    const token = /#([\w-]+)/.exec(host.mails.at(-1)!.text)![1]!;
    assert.equal(await view(operator), 201);
    const refused = await operator.ask('POST', '/v1/invites/accept', { token });
    assert.deepEqual([refused.status, refused.body['error'].viewing_account], [403, 'acct_a']);
    await operator.ask('DELETE', '/v1/auth/view');
    assert.equal((await operator.ask('POST', '/v1/invites/accept', { token })).status, 200);
  });
}
