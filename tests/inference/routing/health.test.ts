/** Backends that fail are left out, come back, and never all of them; retries have a budget. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { idleLoad, type BackendLoad } from '../../../src/inference/routing/backend-load.ts';
import { Fleet } from '../../../src/inference/routing/fleet.ts';
import { answered, failed, isInUse, soundHealth } from '../../../src/inference/routing/health.ts';
import { RetryBudget } from '../../../src/inference/routing/retry-budget.ts';
import { mulberry32 } from '../../support/random.ts';

const able = (): boolean => true;
let prompts = 0;
const request = () => {
  const first = 10 * ++prompts;
  return { promptTokens: 1_000, prefixes: () => ({ hashes: [first], tokens: [512] }) };
};

test('three failures in a row leave a backend out for 1, 2, 4, … 30 seconds; the first answer brings it back', () => {
  const health = soundHealth();
  assert.deepEqual([failed(health, 0), failed(health, 0), failed(health, 0)], [false, false, true]);
  let nowMs = 0;
  const pauses = [];
  for (let count = 0; count < 7; count++) {
    pauses.push(health.ejectedUntilMs - nowMs);
    assert.ok(!isInUse(health, health.ejectedUntilMs - 1));
    assert.ok(!failed(health, health.ejectedUntilMs - 1), 'what began before does not make it longer');
    nowMs = health.ejectedUntilMs;
    assert.ok(isInUse(health, nowMs), 'one request may try');
    assert.ok(!isInUse({ ...health, probes: 1 }, nowMs), 'and only one');
    assert.ok(failed(health, nowMs));
  }
  assert.deepEqual(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
  assert.ok(answered(health));
  assert.ok(isInUse({ ...health, probes: 5 }, nowMs));
  assert.ok(!answered(health));
  assert.ok(!failed(health, nowMs));
});

test('a backend that fails one request in ten is left out seldom, one that fails two of three soon', () => {
  const ejectionsOf = (share: number): number => {
    const random = mulberry32(7);
    const health = soundHealth();
    for (let count = 0; count < 1_000; count++) {
      if (random() < share) failed(health, 1_000_000 * count);
      else answered(health);
    }
    return health.ejections;
  };
  assert.ok(ejectionsOf(0.01) === 0);
  assert.ok(ejectionsOf(0.1) <= 3, String(ejectionsOf(0.1)));
  assert.ok(ejectionsOf(0.67) > 50, String(ejectionsOf(0.67)));
});

const failAt = (fleet: Fleet<BackendLoad>, member: BackendLoad, nowMs: number): void => {
  const placement = fleet.place(request(), (each) => each === member, nowMs)!;
  placement.failed(nowMs);
  placement.end(nowMs);
};
const placeAt = (fleet: Fleet<BackendLoad>, nowMs: number, mayTake = (_: BackendLoad): boolean => true) =>
  fleet.place(request(), mayTake, nowMs);

test('requests go to those that do not fail, and wait for them when they are full', () => {
  const changes: (number | undefined)[] = [];
  const fleet = new Fleet([idleLoad(), idleLoad({ concurrencyMax: 2 })], undefined, (_, atMs) => changes.push(atMs));
  const [bad, good] = fleet.members as [BackendLoad, BackendLoad];
  for (let count = 0; count < 3; count++) failAt(fleet, bad, 5);
  const taken = [placeAt(fleet, 100)!, placeAt(fleet, 100)!];
  assert.deepEqual(
    taken.map(({ backend }) => backend === good),
    [true, true],
  );
  assert.equal(placeAt(fleet, 100), undefined);
  // It has failed there: the bad one is better than none.
  const last = placeAt(fleet, 100, (member) => member !== good)!;
  assert.equal(last.backend, bad);
  last.end(100);
  // After the pause one request tries; its answer brings the backend back.
  const probe = placeAt(fleet, 1_010)!;
  assert.equal(probe.backend, bad);
  assert.equal(placeAt(fleet, 1_010), undefined);
  probe.answered({ cachedTokens: 0 });
  assert.equal(placeAt(fleet, 1_010)!.backend, bad);
  assert.deepEqual(changes, [5, undefined]);
});

test('what a backend still writes of before keeps no request from trying it, and neither does what waits there since it was stopped', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  const [bad, good] = fleet.members as [BackendLoad, BackendLoad];
  const before = fleet.place(request(), (member) => member === bad, 0)!;
  before.begun(200);
  for (let count = 0; count < 2; count++) {
    const measured = fleet.place(request(), (member) => member === good, 0)!;
    measured.begun(200);
    measured.end(200);
  }
  const waiting = fleet.place(request(), (member) => member === bad, 1_000)!;
  for (let count = 0; count < 3; count++) failAt(fleet, bad, 6_000);
  assert.equal(placeAt(fleet, 8_000)!.backend, good, 'it has one that waits for too long');
  fleet.goesOn(bad, 8_000);
  const busy = Array.from({ length: 3 }, () => fleet.place(request(), (member) => member === good, 8_000)!);
  const probe = placeAt(fleet, 8_001)!;
  assert.equal(probe.backend, bad);
  assert.equal(placeAt(fleet, 8_002)!.backend, good, 'one at a time');
  probe.failed(8_100);
  probe.end(8_100);
  assert.equal(placeAt(fleet, 8_101)!.backend, good, 'its pause begins anew');
  fleet.goesOn(bad, 10_200);
  assert.equal(placeAt(fleet, 10_200)!.backend, bad);
  for (const each of [before, waiting, ...busy]) each.end(10_300);
});

test('where all backends fail, all of them are used', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  for (const member of fleet.members) for (let count = 0; count < 3; count++) failAt(fleet, member, 0);
  const placed = Array.from({ length: 6 }, () => placeAt(fleet, 10)!);
  assert.deepEqual(
    fleet.members.map((member) => placed.filter(({ backend }) => backend === member).length),
    [3, 3],
  );
});

test('a backend that stops in the middle of a prompt gets nothing more until its next first token', () => {
  const fleet = new Fleet([idleLoad(), idleLoad()]);
  const [one, other] = fleet.members as [BackendLoad, BackendLoad];
  // Both read 1,000 tokens in 200 ms.
  for (const member of fleet.members) {
    const placement = fleet.place(request(), (each) => each === member, 0)!;
    placement.begun(200);
    placement.end(200);
  }
  const stuck = fleet.place(request(), (member) => member === one, 1_000)!;
  const later = Array.from({ length: 10 }, (_, index) => {
    const placement = placeAt(fleet, 4_100 + 500 * index)!;
    placement.begun(4_300 + 500 * index);
    placement.end(4_300 + 500 * index);
    return placement.backend;
  });
  assert.ok(later.every((backend) => backend === other));
  assert.equal(fleet.place(request(), (member) => member === one, 9_000)!.backend, one, 'better than none');
  stuck.begun(20_000);
  assert.equal(fleet.place(request(), able, 20_001)!.backend, other, 'it has more to read');
  assert.equal(placeAt(fleet, 20_001)!.backend, one, 'and is in use again');
});

test('at most a tenth of the requests is tried again, beside a hundred that are saved and one for each second', () => {
  const budget = new RetryBudget();
  let retries = 0;
  for (let count = 0; count < 10_000; count++) {
    budget.requested();
    if (budget.take(0)) retries++;
  }
  assert.ok(retries >= 1_000 && retries <= 1_100, String(retries));
  assert.deepEqual([budget.taken, budget.refused], [retries, 10_000 - retries]);
  let later = 0;
  while (budget.take(1_000)) later++;
  assert.ok(later === 1 || later === 2, 'one a second, and what was left');
});
