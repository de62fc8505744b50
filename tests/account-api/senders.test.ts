import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { roles } from '../../src/account-api/route.ts';
import type { AccountRoute, Role } from '../../src/account-api/route.ts';
import { accountRoutes } from '../../src/account-api/routes.ts';
import { provedForMs } from '../../src/account-api/senders.ts';
import { Browser, password, person } from '../accounts/users/person.ts';
import { uuid } from '../store/fixture.ts';
import { openHost } from './host.ts';

/**
 * Every route of the table with every kind of sender: who is let in, and who is not (reliability §3.5). A request carries a
 * parameter that no route has, so that a caller who is let in is refused before anything is done.
 */
const probe = '?no_such_parameter=1';
const minuteMs = 60_000;

interface Sender {
  readonly name: string;
  readonly role?: Role;
  readonly isPerson?: boolean;
  readonly isOperator?: boolean;
  /** The refusal's status where it is not let in. */
  readonly refusal: 401 | 403;
  readonly headers: readonly (readonly [string, string])[];
}

const routeName = ({ method, path }: AccountRoute): string => `${method.toUpperCase()} ${path}`;

function isLetIn({ access }: AccountRoute, { role, isPerson, isOperator }: Sender): boolean {
  if (access === 'anyone') return true;
  if (access === 'user') return isPerson === true;
  if (access === 'operator') return isOperator === true;
  return role !== undefined && access.includes(role);
}

async function scene(t: TestContext) {
  const clock = { now: Date.now() };
  const host = await openHost(t, accountRoutes, () => clock.now, { signIn: { signUp: 'open', oidc: [] } });
  await host.account('acct_a');
  const { repositories } = host.services.operations;
  const bearer = (key: string) => [['authorization', `Bearer ${key}`]] as const;
  const senders: Sender[] = [
    { name: 'nobody', refusal: 401, headers: [] },
    { name: 'junk', refusal: 401, headers: bearer('tkh_junk') },
    {
      name: 'an invalid session',
      refusal: 401,
      headers: [['cookie', 'session=forged; tokenhouse.session_token=a.b']],
    },
    { name: 'an inference key', refusal: 403, headers: bearer(await host.key('acct_a', null)) },
  ];
  for (const role of roles)
    senders.push({ name: `a key, ${role}`, role, refusal: 403, headers: bearer(await host.key('acct_a', role)) });
  senders.push({
    name: 'a key of the operator, viewer',
    role: 'viewer',
    isOperator: true,
    refusal: 403,
    headers: bearer(await host.key('acct_a', 'viewer', true)),
  });
  const signedIn = async (name: string): Promise<Sender['headers']> => {
    const browser = new Browser(host);
    await browser.signIn(`${name}@example.org`, password);
    return [['cookie', [...browser.cookies].map(([cookie, value]) => `${cookie}=${value}`).join('; ')]];
  };
  const join = async (name: string, role: Role | undefined): Promise<void> => {
    const id = await person(host, `${name}@example.org`, name);
    if (role !== undefined) await repositories.addMember({ accountId: 'acct_a', userId: id, role, at: clock.now });
    senders.push({
      name: `a person, ${role ?? 'of another account'}`,
      ...(role === undefined ? {} : { role }),
      isPerson: true,
      refusal: 403,
      // A user who signs up has an account of their own too, and it is not meant here.
      headers: [...(await signedIn(name)), ['x-account-id', 'acct_a']],
    });
    clock.now += minuteMs / 4;
  };
  for (const role of roles) await join(role, role);
  await join('stranger', undefined);
  return { clock, host, senders };
}

test('each sender is let in where the table says so, and nowhere else', async (t) => {
  const { clock, host, senders } = await scene(t);
  for (const sender of senders) {
    for (const [index, route] of accountRoutes.entries()) {
      // Who has no name is counted by the address.
      if (index % 50 === 0 && sender.refusal === 401) clock.now += minuteMs;
      if (route.access === 'anyone' && sender.name !== 'nobody') continue;
      const answer = await host.ask(route.method.toUpperCase(), route.path.replaceAll(/\{\w+\}/g, 'x') + probe, {
        headers: sender.headers,
      });
      const what = `${sender.name}: ${routeName(route)}: ${answer.status} ${answer.body.slice(0, 200)}`;
      if (isLetIn(route, sender)) {
        assert.ok(answer.status === 400 || answer.status === 404, what);
        assert.match(answer.body, /no_such_parameter|Nothing with this id/, what);
      } else {
        const isStranger = sender.isPerson === true && sender.role === undefined && typeof route.access !== 'string';
        assert.equal(answer.status, isStranger ? 404 : sender.refusal, what);
        assert.match(answer.body, sender.refusal === 401 ? /(missing|invalid)_api_key/ : /http_40[34]/, what);
      }
    }
  }
  assert.deepEqual(host.failures, []);
});

test('people prove again who they are before what is dangerous, and keys need not', async (t) => {
  const { clock, host, senders } = await scene(t);
  clock.now += provedForMs + minuteMs;
  const dangerous = accountRoutes.filter(({ stepUp }) => stepUp === true);
  assert.ok(dangerous.length > 10);
  for (const sender of senders) {
    for (const route of dangerous) {
      if (!isLetIn(route, sender)) continue;
      const answer = await host.ask(route.method.toUpperCase(), route.path.replaceAll(/\{\w+\}/g, 'x') + probe, {
        headers: sender.headers,
      });
      const what = `${sender.name}: ${routeName(route)}: ${answer.body}`;
      if (sender.isPerson === true) {
        assert.equal(answer.status, 403, what);
        assert.equal((answer.json()['error'] as Record<string, unknown>)['step_up_required'], true, what);
      } else assert.match(answer.body, /no_such_parameter|Nothing with this id/, what);
    }
  }
});

test('a suspended account is looked at by its people and keys, and changed by nobody', async (t) => {
  const { clock, host, senders } = await scene(t);
  const { ledger } = host.services.operations;
  await ledger.setAccountStatus('acct_a', 'suspended', clock.now, uuid());
  let refused = 0;
  for (const sender of senders) {
    for (const route of accountRoutes) {
      if (typeof route.access === 'string' && (route.access !== 'operator' || sender.isPerson === true)) continue;
      if (!isLetIn(route, sender)) continue;
      const answer = await host.ask(route.method.toUpperCase(), route.path.replaceAll(/\{\w+\}/g, 'x') + probe, {
        headers: sender.headers,
      });
      const what = `${sender.name}: ${routeName(route)}: ${answer.status} ${answer.body.slice(0, 200)}`;
      const isLook = route.method === 'get' && route.access !== 'operator';
      const mayBe =
        sender.isPerson === true
          ? isLook || routeName(route) === 'DELETE /v1/account'
          : isLook && route.stepUp !== true;
      if (mayBe) assert.match(answer.body, /no_such_parameter|Nothing with this id/, what);
      else {
        assert.equal(answer.status, 403, what);
        assert.match(answer.body, /http_403.*suspended/s, what);
        refused++;
      }
    }
    clock.now += minuteMs / 4;
  }
  assert.ok(refused > 100, `${refused} refused`);

  // As before, once it is revived.
  await ledger.setAccountStatus('acct_a', 'active', clock.now, uuid());
  const owner = senders.find(({ name }) => name === 'a key, owner')!;
  const revived = await host.ask('POST', `/v1/keys${probe}`, { headers: owner.headers });
  assert.match(revived.body, /no_such_parameter/);
  assert.deepEqual(host.failures, []);
});

test('nobody joins an account that is suspended; the same link works when it is revived', async (t) => {
  const clock = { now: Date.now() };
  const host = await openHost(t, accountRoutes, () => clock.now);
  const { ledger } = host.services.operations;
  const owner = await host.key(await host.account('acct_a'), 'owner');
  const invited = await host.ask('POST', '/v1/invites', {
    key: owner,
    json: { email: 'new@example.org', role: 'viewer' },
  });
  assert.equal(invited.status, 200, invited.body);
  const token = /#([\w-]+)/.exec(host.mails[0]!.text)![1]!;
  const accept = () =>
    host.ask('POST', '/v1/invites/accept', { json: { token, name: 'New', password: 'a long password of theirs' } });
  await ledger.setAccountStatus('acct_a', 'suspended', clock.now, uuid());
  assert.equal((await accept()).status, 404);
  await ledger.setAccountStatus('acct_a', 'active', clock.now, uuid());
  assert.equal((await accept()).status, 200);
});
