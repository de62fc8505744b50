/** What the defence against guessed passwords promises, on whichever store: by one process, or by several as if they were one. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { ApiError } from '../../../src/platform/errors.ts';
import { attemptRules } from '../../../src/accounts/users/attempts.ts';
import type { Attempts } from '../../../src/accounts/users/attempts.ts';

export const dayMs = 86_400_000;
export const secret = 'x'.repeat(64);

/** How many of these tries, spread over a time and over the processes, got as far as a password. */
async function passing(
  processes: readonly Attempts[],
  clock: { now: number },
  tries: number,
  overMs: number,
  at: (index: number) => [string, string],
) {
  let passed = 0;
  for (let index = 0; index < tries; index++) {
    clock.now += overMs / tries;
    if (await mayTry(processes[index % processes.length]!, at(index))) passed += 1;
  }
  return passed;
}

async function mayTry(attempts: Attempts, who: [string, string]): Promise<boolean> {
  try {
    await attempts.begin(...who);
    return true;
  } catch (error) {
    assert.ok(error instanceof ApiError && error.code === 'rate_limit_exceeded' && error.retryAfterSeconds! >= 1);
    return false;
  }
}

/** `open` makes the processes, on one new database. */
export function attemptClaims(open: (t: TestContext, now: () => number) => Promise<readonly Attempts[]>): void {
  const scene = async (t: TestContext) => {
    const clock = { now: 1_700_000_000_000 };
    const processes = await open(t, () => Math.floor(clock.now));
    return { clock, processes, one: processes[0]! };
  };

  test('ten thousand tries at one person from one network are a hundred in a day, and a thousand fifteen in a minute', async (t) => {
    const { clock, processes } = await scene(t);
    const minute = await passing(processes, clock, 1_000, 60_000, () => ['eve', '198.51.100.1']);
    assert.ok(minute <= 15, `${minute}`);
    const day = await passing(processes, clock, 10_000, dayMs, () => ['ada', '192.0.2.1']);
    assert.ok(day <= 5 + 10 + dayMs / attemptRules.pair.pauseMaxMs, `${day}`);
  });

  test('two thousand tries from one network at as many people are as few', async (t) => {
    const { clock, processes } = await scene(t);
    const passed = await passing(processes, clock, 2_000, dayMs, (index) => [`p${index}`, '192.0.2.1']);
    assert.ok(passed <= 20 + 10 + dayMs / attemptRules.network.pauseMaxMs, `${passed}`);
  });

  test('a hundred at the same moment are a hundred', async (t) => {
    const { processes } = await scene(t);
    const all = Array.from({ length: 100 }, (_, index) =>
      mayTry(processes[index % processes.length]!, ['ada', '192.0.2.1']),
    );
    assert.equal((await Promise.all(all)).filter(Boolean).length, 5);
  });

  test('tries from many networks slow each of them, and never keep the right person out who comes from elsewhere', async (t) => {
    const { clock, processes, one } = await scene(t);
    const passed = await passing(processes, clock, 2_000, 3_600_000, (index) => ['ada', `10.0.0.${index % 200}`]);
    // Some get their five before the attack is one; then each has one, and what the pauses leave of an hour.
    assert.ok(passed <= 30 + 200 * (1 + 12), `${passed}`);
    for (let times = 0; times < 50; times++) await (await one.begin('ada', '198.51.100.7'))();
  });

  test('tries from all networks of an IPv6 customer are those of a few, at one person and at many', async (t) => {
    const { clock, processes, one } = await scene(t);
    const addressOf = (index: number): string => `2001:db8:7:${((index * 251) % 65_536).toString(16)}::1`;
    const many = await passing(processes, clock, 1_000, 600_000, (index) => [`p${index}`, addressOf(index)]);
    assert.ok(many <= 16 * 20 + 10 + 600_000 / attemptRules.network.pauseMaxMs, `${many}`);
    clock.now += dayMs + 1;
    const single = await passing(processes, clock, 1_000, 600_000, (index) => ['ada', addressOf(index)]);
    assert.ok(single <= 16 * 5 + 10, `${single}`);
    await (
      await one.begin('ada', '2001:db8:8::1')
    )();
  });

  test('who was right begins anew', async (t) => {
    const { one } = await scene(t);
    const fails = async (): Promise<void> => {
      for (let failures = 0; failures < 4; failures++) await one.begin('ada', '192.0.2.1');
    };
    await fails();
    await (
      await one.begin('ada', '192.0.2.1')
    )();
    await fails();
    await one.begin('ada', '192.0.2.1');
    await assert.rejects(one.begin('ada', '192.0.2.1'), /Try again in 1 s/);
  });
}
