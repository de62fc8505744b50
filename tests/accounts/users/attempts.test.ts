import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { userRoutes } from '../../../src/account-api/routes/users.ts';
import { Attempts } from '../../../src/accounts/users/attempts.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { openHost } from '../../account-api/host.ts';
import { openStore, temporaryFolder } from '../../store/fixture.ts';
import { attemptClaims, dayMs, secret } from './attempt-claims.ts';
import { Browser, password, person } from './person.ts';

attemptClaims(async (t, now) => {
  const { repositories } = await openStore(t, join(temporaryFolder(t), 'x.db'));
  return [new Attempts({ repositories, secret, now })];
});

test('counts name nobody, and their number is bounded', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const { repositories } = await openStore(t, file);
  const clock = { now: 1_700_000_000_000 };
  const attempts = new Attempts({ repositories, secret, now: () => clock.now });
  for (let index = 0; index < 10; index++) {
    clock.now += 1;
    await attempts.begin(`ada${index}@example.org`, '192.0.2.1');
  }
  const connection = openConnection(file);
  t.after(() => connection.close());
  const rows = (): readonly unknown[] => connection.prepare('select who, failures from sign_in_attempt').all();
  assert.equal(rows().length, 21);
  assert.doesNotMatch(
    JSON.stringify(rows(), (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value)),
    /ada|192/,
  );
  assert.equal(
    await repositories.forgetAttempts({ at: clock.now, keepMax: 10 }),
    12,
    'those of one moment go together',
  );
  assert.equal(await attempts.tidy(), false);
  clock.now += dayMs + 1;
  assert.equal(await attempts.tidy(), true);
  assert.equal(rows().length, 0);
});

test('over HTTP: the sixth wrong password in a row waits, and so do the right one from there', async (t) => {
  const clock = { now: Date.now() };
  const host = await openHost(t, userRoutes, () => clock.now, { signIn: { signUp: 'open', oidc: [] } });
  await person(host, 'ada@example.org');
  await person(host, 'eve@example.org');
  const browser = new Browser(host);
  const { passwords } = host.services.users;
  const before = passwords.work.done;
  const attempt = (email: string, of = 'wrong password') =>
    browser.ask('POST', '/v1/auth/sign-in', { email, password: of });
  const statuses: number[] = [];
  for (let times = 0; times < 30; times++) statuses.push((await attempt('ADA@example.org')).status);
  assert.deepEqual(statuses, [...Array<number>(5).fill(401), ...Array<number>(25).fill(429)]);
  assert.equal(passwords.work.done - before, 5, 'who waits costs no hash');
  assert.equal((await attempt('ada@example.org', password)).status, 429);
  assert.equal((await attempt('eve@example.org', password)).status, 200, 'others are let in from there');
  clock.now += 2000;
  assert.equal((await attempt('ada@example.org', password)).status, 200);
  assert.equal((await attempt('ada@example.org')).status, 401);
});
