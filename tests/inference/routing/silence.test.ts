/** Backends that answer nothing are looked at until they do, get no request meanwhile, and need not wait for the end of a pause. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { idleLoad, type BackendLoad } from '../../../src/inference/routing/backend-load.ts';
import { Fleet } from '../../../src/inference/routing/fleet.ts';
import { answered, failed, fellSilent, isInUse, spoke } from '../../../src/inference/routing/health.ts';
import { Silence } from '../../../src/inference/routing/silence.ts';
import { until } from '../../support/service.ts';

type Seen = 'answered' | 'silent' | 'closed';

/** Looks that a test answers, one by one. */
class Looks {
  readonly waiting: ((seen: Seen) => void)[] = [];
  readonly changes: string[] = [];
  readonly silence: Silence<BackendLoad>;

  constructor(lateMs = Infinity) {
    this.silence = new Silence<BackendLoad>({
      look: () => new Promise<Seen>((resolve) => this.waiting.push(resolve)),
      changed: (_, atMs) => this.changes.push(atMs === undefined ? 'may be used' : 'left out'),
      pauseMs: 0,
      lateMs,
    });
  }

  async answer(seen: Seen): Promise<void> {
    await until(() => this.waiting.length > 0);
    this.waiting.shift()!(seen);
  }
}

test('a backend that answers the look is left as it is: its engine may hang while its HTTP server does not', async () => {
  const looks = new Looks();
  const member = idleLoad();
  failed(member, 0);
  looks.silence.watch(member);
  looks.silence.watch(member);
  assert.equal(looks.waiting.length, 1, 'it is asked once at a time');
  await looks.answer('answered');
  await until(() => {
    looks.silence.watch(member);
    return looks.waiting.length === 1;
  });
  assert.deepEqual([looks.changes, member.failures, member.ejectedUntilMs], [[], 1, 0]);
});

test('one that does not is asked again until it answers; then it is on probation at once', async () => {
  const looks = new Looks();
  const member = idleLoad();
  looks.silence.watch(member);
  await looks.answer('silent');
  await until(() => member.isSilent);
  assert.ok(!isInUse(member, Infinity), 'no pause ends it');
  for (let count = 0; count < 5; count++) await looks.answer('silent');
  await looks.answer('answered');
  await until(() => !member.isSilent);
  const nowMs = performance.now();
  assert.ok(isInUse(member, nowMs), 'one request may try');
  assert.ok(!isInUse({ ...member, probes: 1 }, nowMs), 'and only one');
  assert.ok(answered(member), 'its answer is its return');
  assert.deepEqual([looks.changes, member.ejections], [['left out', 'may be used'], 1]);
});

test('one that answers its first look late was frozen for a moment: what is left of its pause is not waited for', async () => {
  for (const [lateMs, changes] of [
    [0, ['may be used']],
    [Infinity, []],
  ] as const) {
    const looks = new Looks(lateMs);
    const member = idleLoad();
    // As at its fourth failure in a row and later: a pause that would outlast the test.
    for (let count = 0; count < 3; count++) failed(member, performance.now());
    for (let pause = 0; pause < 4; pause++) failed(member, member.ejectedUntilMs);
    looks.silence.watch(member);
    await looks.answer('answered');
    await until(() => {
      looks.silence.watch(member);
      return looks.waiting.length === 1;
    });
    assert.deepEqual(looks.changes, changes);
    assert.equal(isInUse(member, performance.now()), lateMs === 0);
  }
});

test('nobody asks a server any more that has left', async () => {
  const looks = new Looks();
  const member = idleLoad();
  looks.silence.watch(member);
  await looks.answer('silent');
  await looks.answer('closed');
  await until(() => {
    looks.silence.watch(member);
    return looks.waiting.length === 1;
  });
  assert.deepEqual(looks.changes, ['left out']);
});

test('silence shortens a pause and does not make one longer; it is reported once', () => {
  const member = idleLoad();
  for (let count = 0; count < 3; count++) failed(member, 0);
  for (let pause = 0; pause < 4; pause++) failed(member, member.ejectedUntilMs);
  const until = member.ejectedUntilMs;
  assert.ok(until > 20_000);
  assert.ok(!fellSilent(member, 15_001), 'it was left out before');
  assert.ok(!fellSilent(member, 15_002));
  assert.ok(spoke(member, 15_003));
  assert.ok(!spoke(member, 15_004));
  assert.ok(isInUse(member, 15_003) && member.ejectedUntilMs < until);
  // What it fails then is a failure on probation.
  assert.ok(failed(member, 15_003));
});

test('where every backend is silent, all are used: nothing better is known', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  for (const member of fleet.members) fellSilent(member, 5);
  const place = () => fleet.place({ promptTokens: 10, prefixes: () => ({ hashes: [], tokens: [] }) }, () => true, 10);
  assert.notEqual(place(), undefined);
  spoke(fleet.members[1]!, 10);
  assert.equal(place()?.backend, fleet.members[1]);
});
