/** The links that confirm a new address: what their token says, and the row that ends with the person's other links. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { emailChangeOf, isChangeLinkOpen, rememberChangeLink } from '../../../src/accounts/users/email-change.ts';
import type { AuthRequest } from '../../../src/store/repositories/auth.ts';

const encoded = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
const tokenOf = (claims: unknown): string => `${encoded({ alg: 'HS256' })}.${encoded(claims)}.signature`;

test('a token is of a change if it says both addresses', () => {
  const [email, updateTo] = ['old@example.org', 'new@example.org'];
  assert.deepEqual(emailChangeOf(tokenOf({ email, updateTo })), { from: email, to: updateTo });
  for (const claims of [{ email }, { updateTo }, { email, updateTo: 1 }, { email: 1, updateTo }, [], null])
    assert.equal(emailChangeOf(tokenOf(claims)), undefined, JSON.stringify(claims));
  for (const token of ['', 'a', 'a.b', encoded({ email, updateTo }), `a.b.${encoded({ email, updateTo })}`])
    assert.equal(emailChangeOf(token), undefined, token);
});

test('a link is open while its row is there, for its person and until its end; the row does not have the token', async () => {
  const asked: AuthRequest[] = [];
  const storing = (count: number) => ({
    authStore: (request: AuthRequest) => {
      asked.push(request);
      return Promise.resolve({ rows: [], count });
    },
  });
  const token = tokenOf({});
  await rememberChangeLink(storing(1), { id: 'id', userId: 'ada', token, at: 5, expiresAt: 9 });
  for (const [count, isOpen] of [
    [0, false],
    [1, true],
    [2, true],
  ] as const)
    assert.equal(await isChangeLinkOpen(storing(count), { userId: 'ada', token, at: 7 }), isOpen);
  const [created, looked] = asked;
  assert.ok(created?.act === 'create' && looked?.act === 'count');
  const identifier = created.row['identifier']!;
  assert.match(String(identifier), /^change-email:[\w-]{43}$/);
  assert.deepEqual(created.row, { id: 'id', identifier, value: 'ada', expiresAt: 9, createdAt: 5, updatedAt: 5 });
  assert.deepEqual(
    looked.where.map(({ column, operator, value, connector }) => [column, operator, value, connector]),
    [
      ['identifier', 'eq', identifier, 'AND'],
      ['value', 'eq', 'ada', 'AND'],
      ['expiresAt', 'gt', 7, 'AND'],
    ],
  );
});
