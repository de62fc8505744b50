import assert from 'node:assert/strict';
import { test } from 'node:test';

import { presentedKey } from '../../src/accounts/presented-key.ts';
import { ApiError } from '../../src/platform/errors.ts';
import { accountRoutes } from '../../src/account-api/routes.ts';
import { openHost } from '../account-api/host.ts';

type Sent = Readonly<Record<string, string | readonly string[] | undefined>>;
const refused = Symbol('invalid_api_key');

/** What a request carries, and the key that both hosts take it for. */
const table: readonly (readonly [what: string, headers: Sent, key: string | undefined | typeof refused])[] = [
  ['nothing', {}, undefined],
  ['a bearer', { authorization: 'Bearer tkh_a' }, 'tkh_a'],
  ['a bearer in capitals', { authorization: 'BEARER tkh_a' }, 'tkh_a'],
  ['x-api-key', { 'x-api-key': 'tkh_b' }, 'tkh_b'],
  ['both', { authorization: 'Bearer tkh_a', 'x-api-key': 'tkh_b' }, 'tkh_a'],
  ['an empty Authorization', { authorization: '' }, undefined],
  ['an empty Authorization beside a key', { authorization: '', 'x-api-key': 'tkh_b' }, 'tkh_b'],
  ['an empty bearer', { authorization: 'Bearer ' }, undefined],
  ['an empty bearer beside a key', { authorization: 'Bearer ', 'x-api-key': 'tkh_b' }, 'tkh_b'],
  ['an empty x-api-key', { 'x-api-key': '' }, undefined],
  ['an x-api-key twice', { 'x-api-key': ['tkh_b', 'tkh_c'] }, 'tkh_b'],
  ['two blanks', { authorization: 'Bearer  tkh_a' }, ' tkh_a'],
  ['the scheme alone', { authorization: 'Bearer' }, refused],
  ['another scheme', { authorization: 'Basic dTpw' }, refused],
  ['another scheme beside a key', { authorization: 'Basic dTpw', 'x-api-key': 'tkh_b' }, refused],
  ['a key without a scheme', { authorization: 'tkh_a' }, refused],
];

for (const [what, headers, key] of table)
  test(`${what}: ${key === refused ? 'refused' : key === undefined ? 'no key' : JSON.stringify(key)}`, () => {
    if (key === refused)
      assert.throws(
        () => presentedKey(headers),
        (error) => error instanceof ApiError && error.code === 'invalid_api_key',
      );
    else assert.equal(presentedKey(headers), key);
  });

test('the account host takes them so', async (t) => {
  const host = await openHost(t, accountRoutes);
  for (const [what, headers, key] of table) {
    const sent = Object.entries(headers).flatMap(([name, value]) =>
      typeof value === 'string' ? [[name, value] as const] : [],
    );
    // HTTP strips the blank behind a bearer that is empty, and the edge refuses a header that comes twice.
    if (headers['authorization'] === 'Bearer ' || sent.length !== Object.keys(headers).length) continue;
    const { status, body } = await host.ask('GET', '/v1/account', { headers: sent });
    const { code } = (JSON.parse(body) as { readonly error: { readonly code: string } }).error;
    assert.deepEqual([status, code], [401, key === undefined ? 'missing_api_key' : 'invalid_api_key'], what);
  }
});
