import assert from 'node:assert/strict';
import { test } from 'node:test';

import { peopleRoutes } from '../../src/account-api/routes/people.ts';
import { ApiError } from '../../src/errors.ts';
import { Attempts, attemptRules } from '../../src/people/attempts.ts';
import { openHost } from '../account-api/host.ts';
import { Browser, password, person } from './person.ts';

const dayMs = 86_400_000;

/** How many of these tries, spread over a time, got as far as a password. */
function passing(
  attempts: Attempts,
  clock: { now: number },
  tries: number,
  overMs: number,
  at: (index: number) => [string, string],
) {
  let passed = 0;
  for (let index = 0; index < tries; index++) {
    clock.now += overMs / tries;
    try {
      attempts.begin(...at(index));
      passed += 1;
    } catch (error) {
      assert.ok(error instanceof ApiError && error.code === 'rate_limit_exceeded' && error.retryAfterSeconds! >= 1);
    }
  }
  return passed;
}

test('ten thousand tries at one person from one network are a hundred in a day, and fifteen in a minute', () => {
  const clock = { now: 0 };
  const day = passing(new Attempts(() => clock.now), clock, 10_000, dayMs, () => ['ada', '192.0.2.1']);
  assert.ok(day <= 5 + 10 + dayMs / attemptRules.pair.pauseMaxMs, `${day}`);
  const minute = passing(new Attempts(() => clock.now), clock, 10_000, 60_000, () => ['ada', '192.0.2.1']);
  assert.ok(minute <= 15, `${minute}`);
});

test('ten thousand tries from one network at as many people are as few', () => {
  const clock = { now: 0 };
  const passed = passing(new Attempts(() => clock.now), clock, 10_000, dayMs, (index) => [`p${index}`, '192.0.2.1']);
  assert.ok(passed <= 20 + 10 + dayMs / attemptRules.network.pauseMaxMs, `${passed}`);
});

test('a hundred at the same moment are a hundred', () => {
  assert.equal(
    passing(new Attempts(() => 0), { now: 0 }, 100, 0, () => ['ada', '192.0.2.1']),
    5,
  );
});

test('tries from many networks slow each of them, and never keep the right person out who comes from elsewhere', () => {
  const clock = { now: 0 };
  const attempts = new Attempts(() => clock.now);
  const passed = passing(attempts, clock, 10_000, 3_600_000, (index) => ['ada', `10.0.0.${index % 200}`]);
  // Some get their five before the attack is one; then each has one, and what the pauses leave of an hour.
  assert.ok(passed <= 30 + 200 * (1 + 12), `${passed}`);
  const right = attempts.begin('ada', '198.51.100.7');
  right();
  for (let times = 0; times < 50; times++) attempts.begin('ada', '198.51.100.7')();
});

test('who was right begins anew', () => {
  const attempts = new Attempts(() => 0);
  const fails = (): void => {
    for (let failures = 0; failures < 4; failures++) attempts.begin('ada', '192.0.2.1');
  };
  fails();
  attempts.begin('ada', '192.0.2.1')();
  fails();
  attempts.begin('ada', '192.0.2.1');
  assert.throws(() => attempts.begin('ada', '192.0.2.1'), /Try again in 1 s/);
});

test('over HTTP: the sixth wrong password in a row waits, and so do the right one from there', async (t) => {
  const clock = { now: Date.now() };
  const host = await openHost(t, peopleRoutes, () => clock.now, { signIn: { signUp: 'open', oidc: [] } });
  await person(host, 'ada@example.org');
  await person(host, 'eve@example.org');
  const browser = new Browser(host);
  const { passwords } = host.services.people;
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
