/** Management keys that are kept to addresses (contracts.md, section 2; docs/keys.md). */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { accountRoutes } from '../../src/account-api/routes.ts';
import { operate } from '../../src/accounts/operations.ts';
import { OperationError } from '../../src/accounts/operation.ts';
import { AddressRanges } from '../../src/platform/ip/ranges.ts';
import { Browser, password, person } from '../accounts/users/person.ts';
import { openHost } from './host.ts';

const codeOf = (body: string): string | undefined =>
  (JSON.parse(body) as { readonly error?: { readonly code: string } }).error?.code;

test('a management key works from its addresses alone, the client’s behind a trusted proxy', async (t) => {
  for (const isProxied of [false, true]) {
    const host = await openHost(t, accountRoutes, Date.now, {
      ...(isProxied ? { trustedProxies: new AddressRanges(['127.0.0.1']) } : {}),
    });
    await host.account('acct_a');
    const made = async (addresses: readonly string[]): Promise<string> => {
      const input = {
        kind: 'create_key',
        accountId: 'acct_a',
        name: 'kept',
        expiresAt: undefined,
        role: 'admin',
      } as const;
      const answer = await operate({ ...input, limits: { addresses } }, host.services.operations);
      return answer.key;
    };
    const ask = async (key: string, forwardedFor?: string) => {
      const headers = forwardedFor === undefined ? [] : ([['x-forwarded-for', forwardedFor]] as const);
      const { status, body } = await host.ask('GET', '/v1/key', { key, headers });
      return [status, codeOf(body)];
    };
    const [here, there] = [await made(['127.0.0.0/8']), await made(['192.0.2.0/24'])];
    assert.deepEqual(await ask(here), [200, undefined]);
    assert.deepEqual(await ask(there), [403, 'http_403']);
    assert.deepEqual(await ask(here, '192.0.2.9'), isProxied ? [403, 'http_403'] : [200, undefined]);
    assert.deepEqual(await ask(there, '192.0.2.9'), isProxied ? [200, undefined] : [403, 'http_403']);
    assert.deepEqual(await ask(there, '192.0.2.9, 198.51.100.1'), [403, 'http_403'], 'the right-most one counts');
  }
});

test('nothing else that requests are kept to is taken for one; people set and take away its addresses', async (t) => {
  const host = await openHost(t, accountRoutes, Date.now, { signIn: { signUp: 'open', oidc: [] } });
  await host.account('acct_a');
  const id = await person(host, 'owner@example.org', 'owner');
  const { operations } = host.services;
  await operations.repositories.addMember({ accountId: 'acct_a', userId: id, role: 'owner', at: Date.now() });
  const input = { kind: 'create_key', accountId: 'acct_a', name: 'x', expiresAt: undefined, role: 'admin' } as const;
  await assert.rejects(operate({ ...input, limits: { zdrOnly: true } }, operations), OperationError);
  const browser = new Browser(host);
  await browser.signIn('owner@example.org', password);
  const ask = (method: string, path: string, body: object) => browser.ask(method, path, body);
  const made = await ask('POST', '/v1/keys', {
    name: 'program',
    type: 'management',
    role: 'admin',
    ip_ranges: ['192.0.2.0/24'],
  });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const key = made.body['key'] as string;
  assert.equal((await host.ask('GET', '/v1/key', { key })).status, 403);
  const path = `/v1/keys/${made.body['data'].id}`;
  assert.equal((await ask('PATCH', path, { ip_ranges: null })).status, 200);
  assert.equal((await host.ask('GET', '/v1/key', { key })).status, 200);
  assert.equal((await ask('PATCH', path, { requests_per_minute: 5 })).status, 400);
});
